"""A calibrator that another package registers: named in a suite, used in the torch flows and in the ONNX flow."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from networks import perceptron
from onnx_networks import mlp, random_inputs

from qbench import build, registry
from qbench.errors import SuiteError
from qbench.models.base import ModelReference
from qbench.plan.cases import Variant
from qbench.plan.planner import make_plan
from qbench.quant.flow import QuantizeJob
from qbench.quant.onnx import static as onnx_static
from qbench.quant.onnx.formats import algorithms
from qbench.quant.pytorch import fx, pt2e_observers, qconfig, torch_ao
from qbench.quant.recipe import Recipe
from qbench.suite import parse

SOURCE = """
from qbench.quant.calibrators.minmax import MinMax

class Half(MinMax):
    name = "half"

    def range(self):
        low, high = super().range()
        return low / 2, high / 2

class OnnxOnly(Half):
    name = "onnx_only"
    flows = ("onnx",)
"""
ENGINE = next(engine for engine in torch_ao.ENGINES if engine in torch.backends.quantized.supported_engines)
SUITE = """
suite: s
models: [digits-cnn]
data: {dataset: digits}
matrix: {modes: [fp32, static], backends: [torch, onednn, onnxruntime]}
"""


@pytest.fixture(autouse=True)
def plugin(tmp_path, monkeypatch):
    """Installs the package with both calibrators for the length of a test; its module's file."""
    info = tmp_path / "half-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: half\nVersion: 1.0\n")
    points = "half = half_module:Half\nonnx_only = half_module:OnnxOnly\n"
    (info / "entry_points.txt").write_text(f"[qbench.calibrator]\n{points}")
    (tmp_path / "half_module.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    algorithms.names.cache_clear()
    yield tmp_path / "half_module.py"
    algorithms.names.cache_clear()
    sys.modules.pop("half_module", None)


def planned_cases(text):
    suite = parse(SUITE + text)
    plan = make_plan(suite, cores=2)
    recipes = {case.case.variant.backend: case.case.variant.recipe.calibrator for case in plan.cases}
    return {backend: calibrator for backend, calibrator in recipes.items() if calibrator is not None}, plan.notes


@pytest.mark.parametrize("text", ["recipe: {calibrator: half}", "quantize: {static: {calibrator: half}}"])
def test_a_suite_names_it_for_every_flow(text):
    """Static variants of torch and of ONNX Runtime are planned with it."""
    assert planned_cases(text)[0] == {"onednn": "half", "onnxruntime": "half"}


@pytest.mark.parametrize("text", ["recipe: {calibrator: hlaf}", "quantize: {static: {calibrator: hlaf}}"])
def test_a_misspelt_name_is_refused_with_the_registered_names(text):
    """The list of names is the registry, the plug-in among them, at the place of the value."""
    with pytest.raises(
        SuiteError, match=r":6:\d+: .*no calibrator named 'hlaf'; did you mean 'half'. .*entropy, half,"
    ):
        parse(SUITE + text)


def test_a_calibrator_of_one_flow_is_no_case_in_another():
    """The plan names the backend, the calibrator and the flow that it is for."""
    calibrators, notes = planned_cases("recipe: {calibrator: onnx_only}")
    assert calibrators == {"onnxruntime": "onnx_only"}
    reason = "its calibrator onnx_only is for the flow onnx"
    assert f"onednn: static with the recipe onnx_only is no case: {reason}" in notes


def test_torch_flows_take_its_range():
    """An observer of its name gives half the scale that minmax gives, behind FX and behind PT2E."""
    images = torch.randn(16, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    scales = {}
    for calibrator in ("minmax", "half"):
        recipe = Recipe(calibrator=calibrator, per_channel=True, flow="fx")
        torch_ao.set_engine(ENGINE)
        job = QuantizeJob(perceptron().eval(), ENGINE, recipe, (images[:1],))
        converted = fx.static(job, lambda: iter([(images,)]))
        (scale,) = (float(value) for name, value in converted.module.named_buffers() if "input_scale" in name)
        observer = pt2e_observers.adapt_observer(recipe)(torch.uint8, 0, 255, torch.per_tensor_affine)
        observer(images)
        assert float(observer.calculate_qparams()[0]) == pytest.approx(scale)
        scales[calibrator] = scale
    assert scales["half"] == pytest.approx(scales["minmax"] / 2)
    assert isinstance(qconfig.activation_observer(Recipe(calibrator="half"))(), qconfig.CalibratorObserver)


def test_the_onnx_flow_takes_its_range(tmp_path):
    """Every activation of a static ONNX file gets half the scale that minmax gives."""
    import onnx

    model = mlp()
    onnx.save(model, str(tmp_path / "model.onnx"))
    scales = {}
    for calibrator in ("minmax", "half"):
        recipe = Recipe(calibrator=calibrator, per_channel=True, flow="onnx")
        examples = tuple(np.asarray(array) for array in random_inputs(model, 8, 0))
        scaled = onnx_static.choose_scales(tmp_path / "model.onnx", recipe, examples, lambda text, share: None)
        scales[calibrator] = {
            key: content.scale_d for key, content in scaled.record.items() if content.scale_d is not None
        }
    assert scales["half"]
    assert scales["half"] == pytest.approx({key: scale / 2 for key, scale in scales["minmax"].items()})


def test_another_version_of_its_code_is_built_anew(plugin):
    """The key of an artifact has the code of a calibrator that is not qbench's, and nothing more of qbench's own."""
    recipe = Recipe(calibrator="half")
    reference = ModelReference(name="m", source="registry", weights=None)
    variant = Variant(model=reference, mode="static", backend="onednn", recipe=recipe)
    before = build._digest_calibrator(variant)
    plugin.write_text(SOURCE + "# changed")
    assert build._digest_calibrator(variant) != before
    assert build._digest_calibrator(replace(variant, recipe=Recipe(calibrator="minmax"))) == {}


def test_it_is_listed_with_its_package():
    """``qbench list`` shows it as it shows qbench's own."""
    assert registry.entries("calibrator")["half"].distribution == "half"
