"""An int8 file in OpenVINO's own form: taken as it is, counted by what OpenVINO runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from qbench import registry
from qbench.backends import own_openvino
from qbench.backends.base import BuildJob, Built
from qbench.errors import BuildError, ModelError
from qbench.models.base import Network
from qbench.models.own_int8 import why_not_int8
from qbench.quant.artifacts import onnx_file, openvino_ir, openvino_model
from qbench.quant.onnx import onnxruntime_session
from qbench.quant.recipe import Recipe
from tests.backends.test_own_int8_file import network, vectors

BACKEND = registry.load("backend", "openvino")
pytestmark = pytest.mark.skipif(BACKEND.missing() is not None, reason=str(BACKEND.missing()))
DATA = (vectors(), vectors(seed=9))


def by_nncf(source: Path, file: Path) -> Path:
    """An .xml with its .bin, quantized by NNCF."""
    import zipfile

    pair = file.with_suffix(".zip")
    openvino_model.quantize(source, pair, DATA)
    with zipfile.ZipFile(pair) as archive:
        file.write_bytes(archive.read(openvino_model.GRAPH))
        openvino_ir.find_weights(file).write_bytes(archive.read(openvino_model.WEIGHTS))
    return file


def as_float(source: Path, file: Path) -> Path:
    """The .xml and .bin of a float network."""
    import openvino

    openvino.save_model(openvino.Core().read_model(str(source)), str(file), compress_to_fp16=False)
    return file


def build(own: Path, folder: Path) -> Built:
    """The file as the artifact of a job."""
    folder.mkdir(exist_ok=True)
    job = BuildJob(
        network=Network(kind="onnx", path=network(folder / "float.onnx")),
        mode="static",
        recipe=BACKEND.resolve("static", Recipe(name="file", file=own.name)),
        calibration=DATA,
        training=None,
        folder=folder,
        int8_file=own,
    )
    return BACKEND.build(job)


def test_a_file_of_nncf_is_taken_as_it_is(tmp_path: Path) -> None:
    """Both files in one artifact, all that multiplies in int8; the note says whose it is."""
    own = by_nncf(network(tmp_path / "m.onnx"), tmp_path / "int8.xml")
    built = build(own, tmp_path / "x")
    assert built.format == "openvino"
    assert sorted(layer.macs for layer in built.layers) == [32 * 10, 64 * 32]
    assert all(layer.int8 for layer in built.layers)
    assert built.fixed_batch is None
    told = "compiled for any number of examples" in str(built.note)  # AVX512: 2026.4 answers with zeros for a known one
    assert told is not openvino_model.read_file(tmp_path / "x" / built.file).is_compiled_for_each()
    assert str(built.note).startswith("the user's own file, int8.xml: qbench quantized nothing")
    runner = BACKEND.load(tmp_path / "x" / built.file, threads=1)
    few = tuple(array[:4] for array in DATA)
    actual, expected = runner.outputs(runner(runner.prepare(few))), onnxruntime_session.run(tmp_path / "m.onnx", few)
    assert np.abs(actual - expected).max() < 0.1 * np.abs(expected).max()


@pytest.mark.parametrize(("batch", "fixed"), [("n", None), (4, 4)])
def test_the_batch_that_a_file_demands_is_read_from_it(batch: str | int, fixed: int | None, tmp_path: Path) -> None:
    """Models that were converted with the shape of an example take no other."""
    file = as_float(network(tmp_path / "m.onnx", batch=batch), tmp_path / "m.xml")
    assert openvino_model.find_fixed_batch(openvino_model.compile_file(file)) == fixed


def test_a_file_that_does_not_fit_the_float_network_is_refused(tmp_path: Path) -> None:
    """Float, inputs in another order, fewer of them, another number of classes: each says what to do."""
    with pytest.raises(BuildError, match=r"f.xml: nothing in it is quantized"):
        build(as_float(network(tmp_path / "f.onnx"), tmp_path / "f.xml"), tmp_path / "a")
    turned = by_nncf(network(tmp_path / "t.onnx", inputs=("z", "x")), tmp_path / "t.xml")
    with pytest.raises(BuildError, match="t.xml takes z, x, the float model x, z: the same inputs in another order"):
        build(turned, tmp_path / "b")
    seven = by_nncf(network(tmp_path / "s.onnx", classes=7), tmp_path / "s.xml")
    with pytest.raises(BuildError, match=r"s.xml has the shape \[1, 7\], that of the float model \[1, 10\]"):
        build(seven, tmp_path / "c")


def port(name: str, kind: str = "float32") -> Any:
    """An input of a compiled model."""
    element = SimpleNamespace(to_dtype=lambda: np.dtype(kind))
    return SimpleNamespace(get_element_type=lambda: element, get_names=lambda: {name, "of no matter"})


@pytest.mark.parametrize(
    ("inputs", "outputs", "told"),
    [
        ((port("x"), port("z", "int64")), 2, None),
        ((port("x"), port("z", "int64")), 1, None),
        ((port("a"), port("b", "int64")), 2, None),  # names may be others
        ((), 2, "takes nothing, the float model float32, int64: give an int8 file that was made from this very model"),
        ((port("x"), port("z")), 2, "takes float32, float32, the float model float32, int64: give"),
        ((port("x"), port("z", "int64")), 3, "returns 3 outputs, the float model 2: save an int8 file that returns"),
    ],
)
def test_inputs_and_outputs_are_those_of_the_float_network(
    inputs: tuple[Any, ...], outputs: int, told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the types of the inputs one after the other; outputs may be fewer, not more."""
    monkeypatch.setattr(onnx_file, "input_types", lambda source: {"x": "float32", "z": "int64"})
    monkeypatch.setattr(onnx_file, "output_names", lambda source: ("y", "w"))
    compiled = SimpleNamespace(inputs=inputs, outputs=range(outputs))
    if told is None:
        own_openvino._require_inputs(Path("own.xml"), compiled, Path("source"))
        return
    with pytest.raises(BuildError) as raised:
        own_openvino._require_inputs(Path("own.xml"), compiled, Path("source"))
    assert str(raised.value).startswith(f"own.xml {told}")


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (
            RuntimeError("shape mismatch"),
            BuildError,
            r"does not take this data \(float32\[1, 64\], float32\[1, 64\]\): ",
        ),
        (RuntimeError("std::bad_alloc"), RuntimeError, "^std::bad_alloc$"),
    ],
)
def test_data_that_a_file_does_not_take_is_told_by_its_shape(
    error: RuntimeError, kind: type[Exception], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But a lack of memory, which is no fault of the file."""
    own = by_nncf(network(tmp_path / "m.onnx"), tmp_path / "int8.xml")

    def fail(*words: object) -> None:
        raise error

    monkeypatch.setattr(openvino_model, "run", fail)
    with pytest.raises(kind, match=said):
        build(own, tmp_path / "x")


def test_a_file_is_told_by_its_text(tmp_path: Path) -> None:
    """Int8, float, weights alone, of the other mode, without its weights, another .xml, none at all."""
    import nncf
    import openvino

    source = network(tmp_path / "m.onnx")
    own = by_nncf(source, tmp_path / "int8.xml")
    assert why_not_int8(own, "int8.xml", "static") is None
    assert "write `int8: {file: int8.xml, mode: static}`" in str(why_not_int8(own, "int8.xml", "dynamic"))
    compressed = nncf.compress_weights(openvino.Core().read_model(str(source)))
    openvino.save_model(compressed, str(tmp_path / "w.xml"))
    assert str(why_not_int8(tmp_path / "w.xml", "w.xml", "static")).startswith("only its weights are stored in bytes")
    openvino_ir.find_weights(own).unlink()
    (tmp_path / "page.xml").write_text("<html><body/></html>")
    (tmp_path / "bad.xml").write_text("<net>")
    for name, said in {
        "int8.xml": "its weights are not beside it: no such file or folder: .*int8.bin",
        "page.xml": "this .xml is no model of OpenVINO's",
        "bad.xml": "cannot read this .xml",
        "gone.xml": "cannot read this .xml",
    }.items():
        with pytest.raises(ModelError, match=f"{name}: {said}"):
            why_not_int8(tmp_path / name, name, "static")
