"""Rules of qbench/backends/onnx_backend.py and onnx_build.py: what runtimes of ONNX files have in common."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_networks import Draft, save

from qbench import registry
from qbench.backends import onnx_build
from qbench.backends.base import Backend, BuildJob
from qbench.models.base import Network, NetworkKind
from qbench.quant.onnx import graph_process
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.recipe import Recipe

RUNTIMES = ("onnxruntime", "openvino")


def load(runtime: str) -> Backend:
    """The backend; skips where its packages are missing."""
    backend = registry.load("backend", runtime)
    if reason := backend.missing():
        pytest.skip(reason)
    return backend


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(
    ("mode", "kind", "why"),
    [
        ("static", "torchscript", "torch no longer exports TorchScript files to ONNX"),
        ("fp32", "torchscript", "torch no longer exports TorchScript files to ONNX"),
        ("qat", "onnx", "an ONNX file cannot be trained"),
        ("qat", "module", None),
        ("static", "onnx", None),
    ],
)
def test_what_no_runtime_of_onnx_files_builds(runtime: str, mode: str, kind: NetworkKind, why: str | None) -> None:
    """Of TorchScript nothing, and no training of a file."""
    told = registry.load("backend", runtime).why_not(mode=mode, kind=kind)
    assert told is None if why is None else str(told).startswith(why)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_packages_that_are_not_there_are_named(runtime: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what installs them."""
    backend = load(runtime)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    told = str(backend.missing())
    assert told.startswith(f"{' and '.join(backend.packages)} not installed; ")
    assert "pip install" in told


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_what_a_recipe_leaves_open_is_chosen(runtime: str) -> None:
    """Activations by minmax, weights per channel, unless it says otherwise; of the user's own file nothing."""
    backend = registry.load("backend", runtime)
    static = backend.resolve("static", Recipe())
    assert (static.flow, static.calibrator, static.per_channel, static.symmetric) == ("onnx", "minmax", True, False)
    assert (static.narrow_weights, static.reduce_range, static.embeddings) == (True, False, None)
    told = Recipe(calibrator="mse", per_channel=False, symmetric=True, narrow_weights=False)
    kept = backend.resolve("static", told)
    assert (kept.calibrator, kept.per_channel, kept.symmetric, kept.narrow_weights) == ("mse", False, True, False)
    own = backend.resolve("static", Recipe(file="own.onnx"))
    assert (own.flow, own.calibrator, own.per_channel) == ("onnx", None, Recipe().per_channel)
    untouched = backend.resolve("static", Recipe(framework_default=True))
    assert (untouched.calibrator, untouched.per_channel, untouched.canonicalize) == (None, None, False)
    assert "onnxruntime" in backend.libraries()
    assert len(set(backend.libraries())) == len(backend.libraries())


@pytest.fixture(scope="module")
def channels_apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's file: a convolution, a Softmax over channels that lie first, a LayerNorm over those that lie last."""
    draft = Draft()
    tensor = draft.add("Softmax", [draft.conv("x", "conv", 4, 4)], "softmax", axis=1)
    tensor = draft.add("Transpose", [tensor], "moved", perm=[0, 2, 3, 1])
    draft.add("LayerNormalization", [tensor, draft.bias("factors", 4)], "norm", outputs=["y"])
    return save(draft.model({"x": ["n", 4, 6, 6]}, {"y": ["n", 6, 6, 4]}), tmp_path_factory.mktemp("onnx"))


@pytest.mark.parametrize("recipe", [None, Recipe(), Recipe(framework_default=True)], ids=["fp32", "static", "theirs"])
@pytest.mark.parametrize(("runtime", "arranged"), [("onnxruntime", "softmax"), ("openvino", "norm")])
def test_fp32_has_the_fast_forms_that_int8_has(
    runtime: str, arranged: str, recipe: Recipe | None, channels_apart: Path, tmp_path: Path
) -> None:
    """Else int8 would be called faster by what is none of it. Each runtime gets those that it wants; the framework's
    own quantizer gets the file as it is."""
    backend = load(runtime)
    mode = "static" if recipe else "fp32"
    inputs = (np.random.default_rng(0).standard_normal((4, 4, 6, 6), np.float32),)
    folder = tmp_path / "build"
    folder.mkdir()
    built = backend.build(
        BuildJob(network=Network(kind="onnx", path=channels_apart), mode=mode, training=None, folder=folder,
                 recipe=backend.resolve(mode, recipe or Recipe()), calibration=inputs)
    )  # fmt: skip
    if built.format != "onnx":  # OpenVINO's own pair of files
        with zipfile.ZipFile(folder / built.file) as pair:
            assert "norm.back" not in pair.read("model.xml").decode()
        return
    graph = Graph.load(folder / built.file)
    flat = {name for name in ("softmax", "norm") if graph.maker(graph.node(name).input[0]).name.startswith(name)}
    assert flat == (set() if recipe and recipe.framework_default else {arranged})


@pytest.mark.parametrize(("mode", "precision"), [("fp32", "fp32"), ("static", "int8")])
def test_a_layer_in_two_is_the_layer_of_the_file(mode: str, precision: str, tmp_path: Path) -> None:
    """On OpenVINO a convolution of signed and unsigned values side by side runs as two, in fp32 as in int8: under its
    own name, with all of its work."""
    draft = Draft()
    sides = [draft.conv("x", "one", 4, 4), draft.add("Relu", [draft.conv("x", "two", 4, 4)], "relu")]
    draft.add("Relu", [draft.conv(draft.add("Concat", sides, "join", axis=1), "last", 8, 4)], "end", outputs=["y"])
    size = ["n", 4, 6, 6]
    backend, folder = load("openvino"), tmp_path / "build"
    folder.mkdir()
    built = backend.build(
        BuildJob(network=Network(kind="onnx", path=save(draft.model({"x": size}, {"y": size}), tmp_path)), mode=mode,
                 training=None, folder=folder, recipe=backend.resolve(mode, Recipe()),
                 calibration=(np.random.default_rng(0).standard_normal((4, 4, 6, 6), np.float32),))
    )  # fmt: skip
    nodes = {node.name for node in Graph.load(folder / built.file, valid=False).nodes if node.op_type == "Conv"}
    assert nodes == {"one", "two", "last", "last/signed"}
    layers = {(layer.name, layer.macs, layer.precision) for layer in built.layers}
    assert layers == {("one", 5184, precision), ("two", 5184, precision), ("last", 10368, precision)}


def job(shared: Any, tmp_path: Path, **changes: Any) -> BuildJob:
    """A job whose builds share files so."""
    build_job = BuildJob(network=Network(module=None, kind="module"), mode="static", recipe=Recipe(name="mine"),
                    calibration=(), training=None, folder=tmp_path, shared=shared)  # fmt: skip
    return replace(build_job, **changes)


@pytest.mark.parametrize(("mode", "at_once"), [("fp32", 1), ("dynamic", 1), ("static", 1), ("qat", 0)])
def test_only_training_keeps_the_memory_of_arrays(
    channels_apart: Path, mode: str, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its steps takes the same arrays again; all other builds give back large ones as they are freed."""
    told: list[int] = []
    monkeypatch.setattr(graph_process, "return_arrays_at_once", lambda: told.append(1))
    network = Network(kind="onnx", path=channels_apart)
    with onnx_build.fp32_file(job(None, tmp_path, network=network, mode=mode)) as file:
        assert file.read_bytes() == channels_apart.read_bytes()
    assert len(told) == at_once


def test_a_file_that_builds_share_is_made_once(tmp_path: Path) -> None:
    """It is copied to each; without a place to share it is made where it is wanted."""
    asked: list[Mapping[str, Any]] = []

    def shared(ingredients: Mapping[str, Any], make: Callable[[Path], None]) -> Path:
        asked.append(ingredients)
        if not (tmp_path / "kept").exists():
            make(tmp_path / "kept")
        return tmp_path / "kept"

    written: list[Path] = []

    def make(path: Path) -> None:
        written.append(path)
        path.write_text("made")

    for name in ("a", "b"):
        onnx_build.fetch_shared(job(shared, tmp_path), {"what": "x"}, make, tmp_path / name)
    assert (written, asked) == ([tmp_path / "kept"], [{"what": "x"}] * 2)
    assert (tmp_path / "b").read_text() == "made"
    onnx_build.fetch_shared(job(None, tmp_path), {}, make, tmp_path / "c")
    assert written[-1] == tmp_path / "c"


def test_scales_are_shared_whatever_the_recipe_is_called_and_for(tmp_path: Path) -> None:
    """Its name, its CPUs and how weights are narrowed decide nothing of them; everything else does."""
    asked: list[str] = []

    def shared(ingredients: Mapping[str, Any], make: Callable[[Path], None]) -> Path:
        asked.append(json.dumps(ingredients, sort_keys=True, default=str))
        make(tmp_path / "kept")
        return tmp_path / "kept"

    def ask(**changes: Any) -> str:
        build_job = job(shared, tmp_path, recipe=replace(Recipe(), **changes))
        with onnx_build._scaled_file(build_job, {"what": "x"}, lambda path: path.write_text("scales")) as file:  # type: ignore[arg-type, return-value]
            assert file.read_text() == "scales"
        assert not file.exists()
        return asked[-1]

    plain = ask()
    assert ask(name="other", target=("avx2",), narrow_weights=False) == plain
    assert ask(calibrator="mse") != plain


def test_a_digest_tells_arrays_apart_by_values_type_and_shape() -> None:
    """However they lie in memory."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    digests = {
        onnx_build._digest(*arrays)
        for arrays in ((array,), (array + 1,), (array.reshape(3, 2),), (array.astype(np.int32),), (array, array), ())
    }
    assert len(digests) == 6
    assert onnx_build._digest(np.asfortranarray(array)) == onnx_build._digest(array)


@pytest.mark.parametrize(("labels", "count"), [(None, 2), (np.zeros(3), 3)])
def test_a_training_is_known_by_its_inputs_and_labels(labels: Any, count: int, tmp_path: Path) -> None:
    """Where there are some."""
    training = ((np.zeros(3), np.ones(3)), labels)
    assert len(onnx_build._list_training_arrays(job(None, tmp_path, training=training))) == count
