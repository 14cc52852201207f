"""Accuracy-based calibration: the ranking, the smallest set of float layers, best so far, and going on after a kill."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from onnx_networks import depthwise, random_inputs, residual_cnn, save

from qbench.errors import EvaluateError, UsageError
from qbench.onnx import accuracy_search, search_log
from qbench.quant import scale_rules
from qbench.quant.onnx import sensitivity, sites
from qbench.quant.onnx.formats import config, scale_record
from qbench.quant.onnx.graph import equivalence
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.graph.layers import layers
from qbench.quant.onnx.graph.prepare import prepare
from qbench.quant.onnx.sites import Scales
from qbench.quant.onnx.weights.weight_scales import arq


def calibrated(model, folder, batch=4):
    """A prepared graph, its default configuration, a record by min/max over one batch, and that batch."""
    graph = prepare(save(model, folder))
    settings = config.default(graph)
    feed = dict(zip(graph.inputs, random_inputs(model, batch), strict=True))
    expected = sites.find(graph, settings)
    watched = graph.copy()
    tensors = [site.tensor for site in expected.activations if site.tensor not in feed]
    for tensor in tensors:
        watched.model.graph.output.add().name = tensor
    values = feed | dict(zip(tensors, equivalence.run(watched, feed)[len(graph.outputs) :], strict=True))
    scales: dict[str, Scales] = {}
    for site in expected.activations:
        params = scale_rules.amct_qparams(float(values[site.tensor].min()), float(values[site.tensor].max()))
        scales |= {key: Scales(scale_d=params.scale, offset_d=params.zero_point) for key in site.keys}
    for site in expected.weights:
        content = arq(graph.constant(site.tensor), site.axis)
        params = scales[site.layer]
        scales[site.layer] = Scales(
            scale_d=params.scale_d, offset_d=params.offset_d, scale_w=content, offset_w=(0,) * len(content)
        )
    return graph, settings, scales, feed


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return calibrated(residual_cnn(), tmp_path_factory.mktemp("residual"))


NAMES = ("conv1", "conv2", "conv3", "fc")


class Judge:
    """Scores by the layers that are quantized: 100 less the damage of each. ``build`` writes them into the file."""

    def __init__(self, **damage):
        self.damage = damage
        self.scored = []

    @staticmethod
    def build(graph, own_sites, _):
        changed = graph.copy()
        changed.model.metadata_props.add(key="int8", value=",".join(site.layer for site in own_sites.weights))
        return changed

    def __call__(self, file: Path) -> float:
        content = {prop.key: prop.value for prop in Graph.load(file).model.metadata_props}
        int8 = [name for name in content.get("int8", "").split(",") if name]
        self.scored.append(tuple(sorted(set(NAMES) - set(int8))) if int8 else "float")
        return 100 - sum(self.damage.get(name, 0) for name in int8)


@pytest.fixture
def ranked(monkeypatch):
    """Ranks the layers in the order given to it."""

    def given_order(*order):
        places = {name: i / 10 for i, name in enumerate(order)}
        monkeypatch.setattr(sensitivity, "of_layer", lambda *arguments: places[arguments[3]])
        monkeypatch.setattr(sensitivity, "outputs", lambda *_: [])

    return given_order


def hunt(network, judge, folder, loss, **options):
    graph, actual, scales, feed = network
    return accuracy_search.search(
        graph, actual, scales, judge, [feed], loss=loss, folder=folder, build=Judge.build, **options
    )


def test_nothing_goes_back_to_float_where_int8_is_good_enough(network, tmp_path, ranked):
    """One model is scored beside the float one."""
    ranked(*NAMES)
    judge = Judge(conv1=0.5)
    outcome = hunt(network, judge, tmp_path, 0.5)
    assert (outcome.met, outcome.best.floats, outcome.baseline, outcome.best.score) == (True, (), 100, 99.5)
    assert judge.scored == ["float", ()]


def test_the_number_of_float_layers_is_bisected(network, tmp_path, ranked):
    """Two, then one of four are float; that none is too few is known already, and that all are enough needs no run."""
    ranked("conv2", "conv1", "conv3", "fc")
    judge = Judge(conv2=3)
    hunt(network, judge, tmp_path, 1)
    assert judge.scored == ["float", (), ("conv1", "conv2"), ("conv2",)]


def test_only_the_layer_that_costs_goes_back(network, tmp_path, ranked):
    """Those ranked before it are tried in int8 again and stay there."""
    ranked("conv3", "conv1", "fc", "conv2")
    outcome = hunt(network, Judge(fc=5, conv1=0.1), tmp_path, 1)
    assert outcome.met
    assert outcome.best.floats == ("fc",)
    assert outcome.best.score == pytest.approx(99.9)
    assert [name for name, _ in outcome.ranking] == ["conv3", "conv1", "fc", "conv2"]


@settings(max_examples=8)
@given(
    damage=st.fixed_dictionaries({name: st.floats(0, 10) for name in NAMES}),
    order=st.permutations(NAMES),
    loss=st.floats(0, 20),
)
def test_no_layer_of_the_set_can_be_spared(network, tmp_path_factory, damage, order, loss):
    """Whatever layers cost and however they are ranked: the target is met, and with any one back in int8 it is not."""
    places = {name: i / 10 for i, name in enumerate(order)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sensitivity, "of_layer", lambda *arguments: places[arguments[3]])
        outcome = hunt(network, Judge(**damage), tmp_path_factory.mktemp("hunt"), loss)
    assert outcome.met

    def lost(floats):
        return sum(cost for name, cost in damage.items() if name not in floats)

    assert lost(outcome.best.floats) <= loss + 1e-9
    for name in outcome.best.floats:
        assert lost(set(outcome.best.floats) - {name}) > loss - 1e-9


def test_the_best_so_far_is_kept_where_the_target_cannot_be_met(network, tmp_path, ranked):
    """At most two float layers are allowed: the better of the models seen is told and written."""
    ranked("conv1", "conv2", "conv3", "fc")
    outcome = hunt(network, Judge(conv1=1, conv2=1, conv3=1, fc=1), tmp_path, 0.5, max_float=2)
    assert not outcome.met
    assert outcome.best == accuracy_search.ScoredModel(floats=("conv1", "conv2"), score=98)
    content = config.read(tmp_path / "config.json")
    assert [name for name, entry in content.layers.items() if not entry.quant_enable] == ["conv1", "conv2"]


def test_no_more_models_are_scored_than_allowed(network, tmp_path, ranked):
    """``max_trials`` counts quantized models; what was found until then is told."""
    ranked(*NAMES)
    judge = Judge(conv1=1, conv2=1, conv3=1, fc=1)
    outcome = hunt(network, judge, tmp_path, 0.5, max_trials=1)
    assert len(outcome.trials) == 1
    assert (outcome.met, outcome.best.floats) == (False, ())
    with pytest.raises(UsageError, match="max_trials"):
        hunt(network, judge, tmp_path / "none", 0.5, max_trials=0)


def test_a_killed_search_goes_on_where_it_was(network, tmp_path, ranked, monkeypatch):
    """No model is scored twice, and the outcome is that of a search that was not killed."""
    ranked(*NAMES)
    damage = {"conv2": 3, "fc": 3}
    whole = hunt(network, Judge(**damage), tmp_path / "whole", 1)

    class Killed(Judge):
        def __call__(self, file):
            if len(self.scored) == 2:
                raise KeyboardInterrupt
            return super().__call__(file)

    first = Killed(**damage)
    with pytest.raises(KeyboardInterrupt):
        hunt(network, first, tmp_path / "killed", 1)
    best = config.read(tmp_path / "killed" / "config.json")
    assert not any(entry.quant_enable for entry in best.layers.values()), "so far the float model alone is good enough"
    assert (tmp_path / "killed" / "record.txt").read_text() == ""
    second = Judge(**damage)
    resumed = hunt(network, second, tmp_path / "killed", 1)
    assert resumed == whole
    assert set(first.scored) & set(second.scored) == set()
    third = Judge(**damage)
    monkeypatch.setattr(sensitivity, "outputs", lambda *_: pytest.fail("the float model was run again"))
    assert hunt(network, third, tmp_path / "killed", 1) == whole
    assert third.scored == []


def test_the_float_models_score_is_kept_before_layers_are_ranked(network, tmp_path, ranked, monkeypatch):
    """Ranking takes an inference per layer and batch; killed in it, the float model is not scored again."""
    ranked(*NAMES)
    with monkeypatch.context() as patched:
        patched.setattr(sensitivity, "outputs", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            hunt(network, Judge(), tmp_path, 1)
    judge = Judge()
    hunt(network, judge, tmp_path, 1)
    assert judge.scored == [()]


def test_another_target_uses_what_is_known(network, tmp_path, ranked):
    """The ledger holds scores, not verdicts."""
    ranked(*NAMES)
    hunt(network, Judge(fc=3), tmp_path, 1)
    again = Judge(fc=3)
    assert hunt(network, again, tmp_path, 5).best.floats == ()
    assert again.scored == []


def test_a_ledger_of_something_else_is_refused(network, tmp_path, ranked):
    """Another record, or no ledger at all: the message says what to do."""
    ranked(*NAMES)
    hunt(network, Judge(), tmp_path, 1)
    graph, actual, scales, feed = network
    other = scales | {"fc": Scales(scale_d=1.0, offset_d=0, scale_w=scales["fc"].scale_w)}
    with pytest.raises(UsageError, match=r"accuracy.json: the ledger of another model.*delete it"):
        hunt((graph, actual, other, feed), Judge(), tmp_path, 1)
    later = json.loads((tmp_path / "accuracy.json").read_text()) | {"schema": 2}
    (tmp_path / "accuracy.json").write_text(json.dumps(later), encoding="utf-8")
    with pytest.raises(UsageError, match=r"accuracy.json: the ledger of another model.*delete it"):
        hunt(network, Judge(), tmp_path, 1)
    (tmp_path / "accuracy.json").write_text("{", encoding="utf-8")
    with pytest.raises(UsageError, match=r"accuracy.json: not a ledger.*delete it"):
        hunt(network, Judge(), tmp_path, 1)


def test_layers_are_ranked_on_data(network, tmp_path, ranked, monkeypatch):
    """Without any it is said so; what an earlier search has ranked is known."""
    ranked(*NAMES)
    graph, actual, scales, _ = network
    options = {"loss": 1, "folder": tmp_path, "build": Judge.build}
    with pytest.raises(UsageError, match="ranks layers on data: give at least one batch"):
        accuracy_search.search(graph, actual, scales, Judge(), [], **options)
    ask, asked = sensitivity.of_layer, []

    def of_layer(*arguments):
        asked.append(arguments[3])
        if len(asked) == 2:
            raise KeyboardInterrupt
        return ask(*arguments)

    monkeypatch.setattr(sensitivity, "of_layer", of_layer)
    with pytest.raises(KeyboardInterrupt):
        hunt(network, Judge(), tmp_path, 1)
    again = Judge()
    hunt(network, again, tmp_path, 1)
    assert asked == [NAMES[0], *NAMES[1:2], *NAMES[1:]]
    assert again.scored == [()]
    assert accuracy_search.search(graph, actual, scales, Judge(), [], **options).met


def test_a_ledger_is_of_one_model_one_configuration_and_one_record(network):
    """Each node and each constant of the model, its type and shape too, and how the scored model is built."""
    graph, actual, scales, _ = network

    def identify(change=None, held=actual, record=scales, build=Judge.build):
        changed = graph.copy()
        if change is not None:
            change(changed)
        return search_log.identity(changed, held, record, build)

    def rename(changed):
        changed.model.graph.node[0].attribute[0].doc_string = "other"

    def set_weights(value):
        def change(changed):
            name = next(name for name in changed.constants if changed.constant(name).ndim == 4)
            changed.set_constant(name, value(changed.constant(name)))

        return change

    others = [
        identify(rename),
        identify(set_weights(lambda weights: weights + 1)),
        identify(set_weights(lambda weights: weights.reshape(1, *weights.shape))),
        identify(set_weights(lambda weights: weights.view(np.int32))),
        identify(held=replace(actual, batch_num=actual.batch_num + 1)),
        identify(record=scales | {"fc": replace(scales["fc"], offset_d=scales["fc"].offset_d + 1)}),
        identify(build=hunt),
    ]
    assert len({identify(), *others}) == 8
    assert identify() == identify()


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_a_score_that_is_no_number_is_refused(network, tmp_path, ranked, score):
    """Nothing is concluded from it."""
    ranked(*NAMES)
    with pytest.raises(EvaluateError, match=f"the evaluator gave {score} for the float model"):
        hunt(network, lambda _: score, tmp_path, 1)
    scores = iter([100.0, score])
    with pytest.raises(EvaluateError, match=f"the evaluator gave {score} for the model with 0 layers in float"):
        hunt(network, lambda _: next(scores), tmp_path, 1)


def test_a_negative_loss_is_refused(network, tmp_path, ranked):
    """int8 that must be better than fp32 is no target; as good as fp32 is one."""
    for loss in (-1, float("nan")):
        with pytest.raises(UsageError, match=f"loss: expected a number from 0 on, got {loss}"):
            hunt(network, Judge(), tmp_path, loss)
    ranked(*NAMES)
    assert hunt(network, Judge(), tmp_path, 0).best.floats == ()


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ({("a", "b"): 99.5, ("a",): 99.2, ("b",): 99.4, (): 50.0}, ("b",)),
        ({("b",): 99.4, ("a",): 99.2}, ("b",)),
        ({("a", "b"): 60.0, ("a",): 70.0, (): 50.0}, ("a",)),
        ({("a", "b"): 70.0, ("a",): 70.0, (): 50.0}, ("a",)),
    ],
)
def test_the_best_has_the_fewest_float_layers_that_do(tmp_path, scores, best):
    """Of as many the better score; where none does, the best score, and of equal ones the fewest float layers."""
    ledger = search_log.Ledger(file=tmp_path / "l.json", identity="i", baseline=100.0, scores=scores)
    hunting = accuracy_search._Hunt(
        model=None, ledger=ledger, folder=tmp_path, loss=1.0, max_trials=None, max_float=None
    )
    assert hunting._best() == accuracy_search.ScoredModel(floats=best, score=scores[best])


def test_a_ledger_is_written_for_people_too(tmp_path):
    """A value a line, the most sensitive layer first, the models in their order."""
    ledger = search_log.Ledger(file=tmp_path / "l.json", identity="i", baseline=1.0)
    ledger.similarity, ledger.scores = {"a": 0.9, "b": 0.5}, {("b",): 0.75, (): 0.5}
    ledger.write()
    content = {
        "schema": 1,
        "identity": "i",
        "baseline": 1.0,
        "ranking": [{"layer": "b", "similarity": 0.5}, {"layer": "a", "similarity": 0.9}],
        "trials": [{"float": ["b"], "score": 0.75}, {"float": [], "score": 0.5}],
    }
    assert (tmp_path / "l.json").read_text() == json.dumps(content, indent=2) + "\n"


def test_the_files_are_those_of_the_best_model(network, tmp_path, ranked):
    """config.json and record.txt read back, fit together and fit the graph; the ledger holds ranking and trials."""
    ranked(*NAMES)
    graph = network[0]
    outcome = hunt(network, Judge(conv2=9), tmp_path, 1)
    files, scales = config.read(tmp_path / "config.json"), scale_record.read(tmp_path / "record.txt")
    assert files == outcome.config
    assert scales.keys() == outcome.record.keys()
    actual = sites.find(graph, files)
    scale_record.require_complete(scales, graph, actual, file=tmp_path / "record.txt", batch_num=1)
    content = json.loads((tmp_path / "accuracy.json").read_text())
    assert [trial["layer"] for trial in content["ranking"]] == list(NAMES)
    assert {tuple(trial["float"]): trial["score"] for trial in content["trials"]} == {
        trial.floats: trial.score for trial in outcome.trials
    }
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o640}


def test_a_layer_between_int8_layers_still_reads_int8(network):
    """conv2 in float: what conv1 gives stays quantized at its input, what only conv2 made int8 no longer is."""
    graph, actual, scales, _ = network
    result, stored = accuracy_search.without(graph, actual, scales, ["conv2"])
    places = {(tensor.layer_name, tensor.input_index) for tensor in result.tensor_quantize}
    assert ("conv2", 0) in places
    assert stored["conv2:0"].scale_d == scales["conv2"].scale_d
    assert not stored["conv2:0"].scale_w
    assert result.layers["conv2"].quant_enable is False
    again = {tensor.layer for tensor in sites.find(graph, result).weights}
    assert again == {"conv1", "conv3", "fc"}


def test_the_last_layer_leaves_nothing_quantized(network):
    """All layers in float: no tensor stays quantized, the record is empty."""
    graph, actual, scales, _ = network
    result, stored = accuracy_search.without(graph, actual, scales, NAMES)
    assert (result.tensor_quantize, stored) == ((), {})


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1, 2], [2, 4], 1.0), ([1, 0], [0, 1], 0.5), ([1, 2], [-1, -2], 0.0), ([0, 0], [0, 0], 1.0),
        ([0, 0], [1, 1], 0.5), ([1, 1], [np.nan, 1], 0.0), ([1, 1], [1, np.inf], 0.0), ([], [], 1.0),
    ],
)  # fmt: skip
def test_similarity_is_half_plus_half_the_cosine(first, second, expected):
    """1 for the same direction, 0.5 for a right angle, 0 for the opposite and for what is not finite."""
    assert sensitivity.similarity(np.float32(first), np.float32(second)) == pytest.approx(expected)


def test_the_spoilt_layer_is_ranked_first_and_alone_goes_back(tmp_path):
    """A real search: in every channel of one layer's weight the largest value meets an input that is always zero, so
    that int8 leaves nothing of the others; the evaluator runs the models and compares them with the float one."""
    model = depthwise()
    _change(model, "project_conv.weight", lambda values: np.multiply(values[:, 0], 2000, out=values[:, 0]))
    _change(model, "depthwise_bn.bias", lambda values: np.copyto(values[:1], -1000))
    graph, actual, scales, feed = calibrated(model, tmp_path)
    feed = {"image": random_inputs(model, 8, seed=5)[0]}
    expected = equivalence.run(graph, feed)[0]

    def evaluate(file):
        return -float(np.abs(equivalence.run(Graph.load(file), feed)[0] - expected).mean())

    all_int8 = evaluate(_saved(accuracy_search.fake_quant(graph, sites.find(graph, actual), scales), tmp_path))
    outcome = accuracy_search.search(
        graph, actual, scales, evaluate, [feed], loss=-all_int8 / 4, folder=tmp_path / "out"
    )
    assert outcome.met
    assert outcome.ranking[0][0] == "project_conv"
    assert outcome.best.floats == ("project_conv",)
    assert {layer.name for layer in layers(graph) if layer.reason is None} > set(outcome.best.floats)


def _change(model, name, change):
    """Changes an initializer in place."""
    match = next(entry for entry in model.graph.initializer if entry.name == name)
    values = numpy_helper.to_array(match).copy()
    change(values)
    match.raw_data = values.tobytes()


def _saved(graph, folder):
    file = folder / "int8.onnx"
    graph.save(file)
    return file
