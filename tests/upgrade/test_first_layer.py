"""Rules of qbench/upgrade/first_layer.py: the first layer whose bits differ, each version in a process of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from made_wheels import use_index, wrap_onnxruntime
from onnx import TensorProto, helper, numpy_helper

from qbench.environments.environment import find_present
from qbench.environments.making import make_environment
from qbench.environments.pins import parse_pins
from qbench.process.child_process import Limits
from qbench.upgrade import first_layer
from qbench.upgrade.first_layer import digest_layers, find_first_layer

LIMITS = Limits(seconds=120)
# The second of two layers gives something else.
PATCH = """
class InferenceSession(Session):
    def run(self, names, feed, options=None):
        outputs = super().run(names, feed, options)
        return [output + 1 if name == "second" else output for name, output in zip(names, outputs)]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two matrix products."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.random((4, 4), dtype=np.float32), name) for name in ("a", "b")]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["first"], name="layer1"),
        helper.make_node("MatMul", ["first", "b"], ["second"], name="layer2"),
        helper.make_node("Relu", ["second"], ["y"], name="relu"),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xy")
    graph = helper.make_graph(nodes, "net", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(tmp_path / "model.onnx"))
    return tmp_path / "model.onnx"


INPUTS = (np.ones((2, 4), dtype=np.float32),)


def test_each_layer_has_a_digest_in_the_order_of_the_graph(file: Path) -> None:
    """The file itself stays as it is."""
    before = file.read_bytes()
    digests = digest_layers(file, INPUTS, progress=lambda text, share: None)
    assert list(digests) == ["layer1", "layer2", "relu"]
    assert len(set(digests.values())) >= 2
    assert file.read_bytes() == before
    with pytest.raises(ValueError, match=r"zip\(\)"):
        digest_layers(file, INPUTS * 2, progress=lambda text, share: None)


def test_each_version_runs_in_a_new_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """None that was forked from one with another version loaded; each is ready before it is asked, and ended."""
    told: list[object] = []

    class Pretended:
        def __init__(self, *session: object, **options: object) -> None:
            told.append((options["fresh"], options["limits"], options["environment"]))

        def __enter__(self) -> Pretended:
            return self

        def __exit__(self, *_: object) -> None:
            told.append("ended")

        def ready(self) -> None:
            told.append("ready")

        def ask(self, *words: object) -> dict[str, str]:
            told.append(words)
            return {}

    monkeypatch.setattr(first_layer, "Worker", Pretended)
    here = find_present()
    assert find_first_layer(Path("model.onnx"), INPUTS, here, here, LIMITS) is None
    asked = ("run", (Path("model.onnx"), INPUTS))
    assert told == [(True, LIMITS, here.worker_variables), "ready", asked, "ended"] * 2


def test_the_first_layer_that_differs(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same version none does."""
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))
    wrap_onnxruntime(tmp_path / "index", "93.0", PATCH)
    use_index(tmp_path / "index", monkeypatch)
    planted = make_environment(parse_pins(["onnxruntime==93.0"]))
    assert find_first_layer(file, INPUTS, find_present(), planted, LIMITS) == "layer2"
    assert find_first_layer(file, INPUTS, planted, planted, LIMITS) is None


@pytest.mark.parametrize(
    ("after", "first"),
    [({"a": "1", "b": "2"}, None), ({"a": "1", "b": "3"}, "b"), ({"a": "3", "b": "3"}, "a"), ({"a": "1"}, "b")],
)
def test_layers_are_held_against_each_other_by_name(
    monkeypatch: pytest.MonkeyPatch, after: dict[str, str], first: str | None
) -> None:
    """The first in the order of the old side; one that the new side has not is another."""
    sides = iter([{"a": "1", "b": "2"}, after])
    monkeypatch.setattr(first_layer, "_ask", lambda *words: next(sides))
    assert find_first_layer(Path("model.onnx"), INPUTS, find_present(), find_present(), LIMITS) == first


def test_a_file_that_does_not_load_tells_nothing(tmp_path: Path) -> None:
    """It is no error: the bits of the outputs are known all the same."""
    (tmp_path / "model.onnx").write_bytes(b"no model")
    assert find_first_layer(tmp_path / "model.onnx", INPUTS, find_present(), find_present(), LIMITS) is None
