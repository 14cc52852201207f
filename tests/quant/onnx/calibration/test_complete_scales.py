"""Rules of qbench/quant/onnx/calibration/complete_scales.py and calibration_model.py: what a record holds at last."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from calibration_models import cnn, config

from qbench.errors import BuildError
from qbench.quant.onnx.calibration import calibration_model, complete_scales
from qbench.quant.onnx.calibration.calibration_model import CalibrationModel
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.sites import Scales
from qbench.quant.onnx.weights.weight_scales import arq
from qbench.quant.scale_rules import QParams


@pytest.fixture(name="model")
def model_(tmp_path: Path) -> CalibrationModel:
    """Of the residual network, with an addition that is quantized."""
    network = cnn()
    return CalibrationModel.write(network, config(network, tensors=[("sum", 0)]), tmp_path / "c.onnx")


def test_scales_of_weights_are_held_or_those_of_their_maximum(model: CalibrationModel) -> None:
    """Of other weights, where a changed graph is given, for all layers."""
    held = {"stem": Scales(scale_w=(0.5,) * 8, scale_d=2.0), "deep": Scales(scale_d=3.0)}
    completed = complete_scales.with_weights(held, model)
    assert completed["stem"] == held["stem"]
    weight = cnn().constant("deep_w")
    assert weight is not None
    assert completed["deep"] == Scales(scale_d=3.0, scale_w=arq(weight, 0), offset_w=(0,) * 8)
    assert set(completed) == {"stem", "deep", "point", "head"}
    assert held["deep"].scale_w == ()
    changed = cnn()
    changed.set_constant("stem_w", np.ones((8, 3, 3, 3), np.float32))
    assert complete_scales.with_weights(held, model, changed)["stem"].scale_w == pytest.approx((1 / 127,) * 8)


def test_a_weight_that_is_no_number_names_its_layer(model: CalibrationModel) -> None:
    """With what to do."""
    changed = cnn()
    changed.set_constant("head_w", np.full((5, 8), np.nan, np.float32))
    with pytest.raises(BuildError, match="^head: the weight has 40 values that are NaN or inf; correct the model, or"):
        complete_scales.with_weights({}, model, changed)


def test_a_record_is_complete_in_the_order_of_the_graph(model: CalibrationModel) -> None:
    """Activations first; what calibration did not see stays as it is."""
    order = complete_scales.keys(model.sites)
    assert order == ("stem", "deep", "point", "sum:0", "head")
    record = {"head": Scales(scale_w=(1.0,)), "sum:0": Scales(scale_d=9.0, offset_d=9)}
    params = {"head": QParams(scale=0.1, zero_point=-3), "stem": QParams(scale=0.2, zero_point=4)}
    completed = complete_scales.complete(record, params, model)
    assert tuple(completed) == order
    assert completed["head"] == Scales(scale_w=(1.0,), scale_d=0.1, offset_d=-3)
    assert completed["stem"] == Scales(scale_d=0.2, offset_d=4)
    assert completed["sum:0"] == record["sum:0"]
    assert completed["deep"] == Scales()


def test_scales_in_float16_are_rounded(model: CalibrationModel) -> None:
    """Where the configuration asks for it; one that is none there is an error."""
    half = replace(model, config=replace(model.config, fp16_scales=True))
    scale = complete_scales.complete({}, {"stem": QParams(scale=0.1, zero_point=0)}, half)["stem"].scale_d
    assert scale == float(np.float16(0.1)) != 0.1
    for wrong in (1e-9, 1e6):
        with pytest.raises(BuildError, match=r"c\.onnx: a scale of .* is none in float16; leave FORCE_FP16_QUANT out$"):
            complete_scales.complete({}, {"stem": QParams(scale=wrong, zero_point=0)}, half)


def test_factors_stand_beside_the_scales() -> None:
    """Of the layers that were balanced; others lose what they had."""
    record = {"a": Scales(scale_d=1.0, balance=(9.0,)), "b": Scales(scale_d=2.0)}
    result = complete_scales.with_balance(record, {"b": (2.0, 3.0), "c": (4.0,)})
    assert result == {
        "a": Scales(scale_d=1.0), "b": Scales(scale_d=2.0, balance=(2.0, 3.0)), "c": Scales(balance=(4.0,)),
    }  # fmt: skip


def test_files_hold_float32() -> None:
    """What is not known stays so."""
    written = complete_scales.as_written({"a": Scales(scale_d=0.1, offset_d=3, scale_w=(0.2, 0.5), balance=(0.3,))})
    assert written["a"] == Scales(
        scale_d=float(np.float32(0.1)), offset_d=3, scale_w=(float(np.float32(0.2)), 0.5),
        balance=(float(np.float32(0.3)),),
    )  # fmt: skip
    assert complete_scales.as_written({"a": Scales()}) == {"a": Scales()}


def test_a_model_gives_its_activations_behind_its_outputs(model: CalibrationModel) -> None:
    """Each once, with the type that is known; the graph that is read has its own outputs only."""
    file = Graph.load(model.file)
    assert model.tensors == ("x", "b", "d", "e", "h")
    assert file.outputs == ("y", *model.tensors)
    assert model.graph().outputs == ("y",)
    assert (model.inputs, model.outputs, model.done, model.record) == (("x",), ("y",), (), {})
    bare = cnn()
    del bare.model.graph.value_info[:]
    bare.reindex()
    shown = calibration_model.with_activations(bare, model.sites)
    kinds = {value.name: value.type.tensor_type.elem_type for value in shown.model.graph.output}
    assert set(kinds.values()) == {onnx.TensorProto.FLOAT}
    assert bare.outputs == ("y",)


def test_a_rewritten_model_knows_what_was_done(model: CalibrationModel) -> None:
    """And the scales of its weights alone; what others wrote into the file stays, before qbench's own entries."""
    graph = model.graph()
    graph.model.metadata_props.add(key="author", value="me")
    graph.model.metadata_props.add(key="qbench.old", value="gone")
    record = {site.layer: Scales(scale_d=1.0, offset_d=2, scale_w=(3.0,)) for site in model.sites.weights}
    described: list[Any] = []

    def describe(written: CalibrationModel) -> dict[str, str]:
        described.append(written.done)
        return {"qbench.new": "here"}

    first = replace(model, done=("balance",), describe=describe)
    second = first.rewrite(graph, "adaround", record)
    assert second.done == ("balance", "adaround")
    assert described == [second.done]
    assert second.record["stem"] == Scales(scale_w=(3.0,))
    entries = [(entry.key, entry.value) for entry in Graph.load(model.file).model.metadata_props]
    assert entries == [("author", "me"), ("qbench.new", "here")]
    assert replace(model, describe=None).rewrite(graph, "b", record).done == ("b",)
    assert [entry.key for entry in Graph.load(model.file).model.metadata_props] == ["author"]
