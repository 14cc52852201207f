"""An artifact as an older CPU answers it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from qbench.errors import CaseSkipped
from qbench.evaluate.older_cpu import OlderCpuRunner
from qbench.machine import fingerprint
from qbench.quant.onnx import onnxruntime_session
from qbench.quant.onnx.export import deploy_onnxruntime
from qbench.quant.saturation import onnxruntime_prediction
from qbench.quant.saturation.onnxruntime_prediction import predict_outputs
from tests.fixtures import integer_layers


def test_sums_are_those_since_the_last_time(tmp_path: Path) -> None:
    """Each part of an evaluation tells its own, so that parts of several processes add up; outputs are predicted."""
    model, x = integer_layers.convolution((5, 8, 1, 1))
    file = tmp_path / "layer.onnx"
    onnx.save(model, str(file))
    runner, whole = OlderCpuRunner(file), predict_outputs(file, (x,))
    outputs = [runner.outputs(runner(runner.prepare((x[:1],))))]
    (first,) = runner.take_sums().values()
    outputs.append(runner.outputs(runner(runner.prepare((x[1:],)))))
    (rest,) = runner.take_sums().values()
    (layer,) = whole.layers
    assert runner.observed() == {"threads": 1}
    assert (first[0] + rest[0], first[1] + rest[1]) == (layer.sums, layer.saturated)
    assert 0 < first[1] < layer.saturated
    assert set(runner.take_sums().values()) == {(0, 0)}
    assert np.array_equal(np.concatenate(outputs), whole.outputs)
    own = np.array_equal(whole.outputs, onnxruntime_session.run(file, (x,)))
    adds_in_16_bits = deploy_onnxruntime.form_for() == "U8U8" and "avx2" in fingerprint.isa()
    assert own is adds_in_16_bits, "what an older CPU answers is what this one does"


def test_what_is_not_modelled_is_skipped_with_its_layer(tmp_path: Path) -> None:
    """A product with signed bytes that are computed has no weights to look at."""
    model, _ = integer_layers.product("MatMulInteger", 8)
    model.graph.initializer.pop(0)
    model.graph.input.append(onnx.helper.make_tensor_value_info("c0", onnx.TensorProto.INT8, [8, 5]))
    onnx.save(model, str(tmp_path / "computed.onnx"))
    with pytest.raises(CaseSkipped, match="^not predicted: layer: its signed bytes are computed"):
        OlderCpuRunner(tmp_path / "computed.onnx")


@pytest.mark.parametrize(("count", "more"), [(1, ""), (3, " (and 2 more)")])
def test_the_first_layer_that_is_not_modelled_is_named(count: int, more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And how many more there are."""
    unknown = {f"layer {number}": "why" for number in range(count)}
    pretended = SimpleNamespace(unknown=unknown, layers=())
    monkeypatch.setattr(onnxruntime_prediction, "OnnxRuntimePredictor", lambda file: pretended)
    with pytest.raises(CaseSkipped) as raised:
        OlderCpuRunner(Path("model.onnx"))
    assert str(raised.value) == f"not predicted: layer 0: why{more}"
