"""Rules of qbench/first_suite/model_facts.py: what a suite says of a model, by what its file declares."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import onnx
import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from user_layouts import save_model, save_traced

from qbench.errors import UsageError
from qbench.first_suite import model_facts
from qbench.first_suite.model_facts import (
    InputFacts,
    ModelFacts,
    describe_model,
    is_model,
    name_suite,
    quote,
    relative,
)


def take(*sizes: int | None, dtype: str | None = "float32") -> InputFacts:
    """An input of these sizes."""
    return InputFacts(name="x", dtype=dtype, sizes=sizes, axis=0 if sizes else None)


@pytest.mark.parametrize(
    ("entry", "image"),
    [
        (take(None, 3, 8, 12), (3, 8, 12, False)),
        (take(1, 1, None, 12), (1, None, 12, False)),
        (take(None, 8, 12, 3), (3, 8, 12, True)),
        (take(None, 8, 12, 1), (1, 8, 12, True)),
        (take(None, 3, 8, 1), (3, 8, 1, False)),
        (take(None, 2, 8, 12), None),
        (take(None, 8, 12, 4), None),
        (take(None, 3, 8), None),
        (take(None, 3, 8, 12, dtype="uint8"), None),
        (take(None, 3, 8, 12, dtype=None), None),
        (take(None, 3, 8, 12, dtype="float16"), (3, 8, 12, False)),
    ],
)
def test_an_input_has_the_form_of_images_by_its_channels(
    entry: InputFacts, image: tuple[int, int | None, int | None, bool] | None
) -> None:
    """One or three of them, first or last, in four axes of floats."""
    assert entry.image == image


@pytest.mark.parametrize(
    ("inputs", "fixed"),
    [
        ((take(4, 3), take(4)), (4,)),
        ((take(2, 3),), (2,)),
        ((take(1, 3),), ()),
        ((take(None, 3),), ()),
        ((take(4, 3), take(8, 3)), ()),
        ((take(4, 3), take()), (4,)),
        ((), ()),
    ],
)
def test_a_batch_size_is_fixed_where_all_inputs_have_one(
    inputs: tuple[InputFacts, ...], fixed: tuple[int, ...]
) -> None:
    """Other than 1, which is measured anyway; a scalar has none."""
    assert ModelFacts(name="m", source="", backends=(), int8_modes=(), inputs=inputs).fixed_batch == fixed


def test_what_names_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file by its ending, a function, a built-in unless a file of the working folder is called like it."""
    monkeypatch.chdir(tmp_path)
    assert [is_model(text) for text in ("a.ONNX", "a.pt", "a.pth", "a.ts", "n.py:build", "digits-cnn")] == [True] * 6
    assert [is_model(text) for text in ("a.yaml", "n.py", "n.py:1", "nonsense", "a.py:f:g")] == [False] * 5
    (tmp_path / "digits-cnn").mkdir()
    assert not is_model("digits-cnn")


def test_a_path_is_written_from_the_suite(tmp_path: Path) -> None:
    """Where it lies below it; whole elsewhere."""
    assert relative(tmp_path / "a/b.onnx", tmp_path) == "a/b.onnx"
    assert relative(tmp_path / "b.onnx", tmp_path / "a") == (tmp_path / "b.onnx").as_posix()


@pytest.mark.parametrize(
    ("text", "name"), [("ResNet 50!", "resnet-50"), ("_a.B_", "a.b"), ("日本", "model"), ("--", "model")]
)
def test_a_name_is_one_that_suites_may_have(text: str, name: str) -> None:
    """Small letters, digits and signs between them; of nothing else ``model``."""
    assert name_suite(text) == name


def test_what_yaml_would_read_otherwise_is_quoted() -> None:
    """A path stays as it is."""
    assert quote("a/b-c_d.onnx") == "a/b-c_d.onnx"
    assert quote("a b.onnx") == "'a b.onnx'"


@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_a_text_is_read_as_it_is(text: str) -> None:
    """However long it is, on one line."""
    written = quote(text + "x" * 80)
    assert "\n" not in written
    assert yaml.safe_load(f"{{key: {written}}}") == {"key": text + "x" * 80}


def test_an_onnx_file_tells_its_ends(tmp_path: Path) -> None:
    """Its inputs by name, type and size, None where one is free; how many values an example has; where it lies."""
    facts = describe_model(save_model(tmp_path, outputs=7), tmp_path)
    assert facts.inputs == (InputFacts(name="image", dtype="float32", sizes=(None, 3, 8, 8), example=(3, 8, 8)),)
    assert (facts.outputs, facts.output_sizes, facts.file) == (7, (None, 7), "model.onnx")
    assert facts.int8_modes == ("dynamic", "static")
    (tmp_path / "B.ONNX").write_bytes((tmp_path / "model.onnx").read_bytes())
    assert describe_model(str(tmp_path / "B.ONNX"), tmp_path).name == "b"


def test_what_is_no_model_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is missing, Python without its function, a format that nothing is built from, a state dict."""
    monkeypatch.chdir(tmp_path)
    for name in ("net.py", "net.tflite"):
        (tmp_path / name).write_text("def build(): ...")
    torch.save({"weight": torch.ones(2)}, tmp_path / "state.pt")
    for text, why in (
        ("none.py:build", "none.py: no such file$"),
        ("none.onnx", "none.onnx: no such file; a model is an .onnx"),
        ("net.py", "net.py: name the function that returns the network, as in net.py:build"),
        ("net.tflite", "net.tflite: '.tflite' is no format that a suite builds from; `qbench check net.tflite`"),
        ("state.pt", "a state dict needs its network: give file.py:function and write weights: state.pt"),
    ):
        with pytest.raises(UsageError, match=why):
            describe_model(text, tmp_path)


def test_a_function_a_built_in_and_a_traced_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function and a built-in are quantized in both ways; of TorchScript nothing is, it has an int8 file beside."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my net.py").write_text("def build(): ...")
    function, built_in = describe_model("my net.py:build", tmp_path), describe_model("digits-cnn", tmp_path)
    assert (function.name, function.source) == ("my-net", "{python: 'my net.py:build'}")
    assert (built_in.name, built_in.source) == ("digits-cnn", "")
    assert function.int8_modes == built_in.int8_modes == ("dynamic", "static")
    traced = describe_model(save_traced(tmp_path), tmp_path)
    assert (traced.source, traced.backends, traced.int8_modes) == ("{torchscript: traced.pt}", ("torch",), ())


def test_weights_beside_a_file_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a file declares stands in itself: that of a large one is told at once."""
    from qbench.quant.artifacts import onnx_check

    model = onnx.load(save_model(tmp_path))
    onnx.save(model, str(tmp_path / "apart.onnx"), save_as_external_data=True, location="w.bin", size_threshold=0)
    monkeypatch.setattr(onnx_check, "_take_in", lambda *_: pytest.fail("its weights were read"))
    assert describe_model(str(tmp_path / "apart.onnx"), tmp_path).outputs == 4


def test_a_traced_network_that_is_int8_starts_no_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands beside its float model; weights are not looked at."""
    from qbench.quant.artifacts import torchscript_archive

    file = save_traced(tmp_path)
    monkeypatch.setattr(torchscript_archive, "list_operators", lambda file: ("quantized::conv2d",))
    with pytest.raises(UsageError, match=r"traced\.pt: it is int8 already; beside its float model it stands as"):
        describe_model(file, tmp_path)


def test_only_backends_that_are_installed_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that build from such a source, in their order."""
    lacking = {"fbgemm": "no kernels", "onnxruntime": None, "openvino": None, "torch": None}
    monkeypatch.setattr(model_facts.registry, "load", lambda kind, name: SimpleNamespace(missing=lambda: lacking[name]))
    assert describe_model("digits-cnn", tmp_path).backends == ("torch", "onnxruntime", "openvino")
    lacking["openvino"] = "openvino is not installed"
    assert describe_model(save_model(tmp_path), tmp_path).backends == ("onnxruntime",)
