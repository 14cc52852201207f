"""One network on two runtimes: what rounding explains, what it does not, and the first layer that differs."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from made_artifacts import make_artifact
from made_records import accuracy, int8
from onnx_networks import Draft

from qbench.errors import CaseError
from qbench.evaluate import runtime_difference
from qbench.evaluate.runtime_difference import (
    Difference,
    RuntimeVariant,
    difference_here,
    list_differing_here,
    pairs,
)
from qbench.quant.onnx import onnxruntime_session
from qbench.quant.recipe import Recipe
from qbench.record.jsonl import from_line, to_line
from qbench.record.schema import OtherRuntime
from qbench.report.run_warnings import warn_of_runtimes
from qbench.running import runtimes_stage
from qbench.running.build_stage import BuiltVariant
from qbench.running.evaluate_stage import EvaluatedCase

ONNX = Recipe(flow="onnx", calibrator="minmax")


def artifact(folder, backend, *, sha256="a", mode="static", recipe=ONNX):
    file = folder / "model.onnx"
    return make_artifact(file, mode=mode, backend=backend, recipe=recipe, sha256=sha256, format="onnx")


def test_variants_of_one_file_or_one_recipe_are_one_network(tmp_path):
    """The same bytes on two backends, or the same recipe in one flow; not a framework's own way, nor one backend."""
    own = replace(ONNX, framework_default=True)
    result = {
        "a": artifact(tmp_path, "onnxruntime"),
        "b": artifact(tmp_path, "openvino", sha256="b"),
        "other recipe": artifact(tmp_path, "openvino", sha256="c", recipe=replace(ONNX, calibrator="mse")),
        "other mode": artifact(tmp_path, "openvino", sha256="d", mode="qat"),
        "own": artifact(tmp_path, "onnxruntime", sha256="e", recipe=own),
        "nncf": artifact(tmp_path, "openvino", sha256="f", recipe=own),
        "fp32": artifact(tmp_path, "onnxruntime", sha256="g", mode="fp32", recipe=Recipe()),
        "its fp32": artifact(tmp_path, "openvino", sha256="g", mode="fp32", recipe=Recipe()),
        "torch": artifact(tmp_path, "torch", sha256="h", mode="fp32", recipe=Recipe()),
    }
    assert pairs(list(result.items())) == [("a", "b"), ("fp32", "its fp32")]


def predictions(file, outputs):
    np.savez(file, outputs=outputs)
    return file


def arms(folder, ours, theirs, fp32=None):
    """Two variants with these outputs, of which no layer can be looked at."""
    base = None if fp32 is None else predictions(folder / "fp32.npz", fp32)
    return [
        RuntimeVariant(
            backend=name, file=folder, format="x", predictions=predictions(folder / f"{name}.npz", result), fp32=base
        )
        for name, result in (("a", ours), ("b", theirs))
    ]


def look(ours, theirs, data=None):
    return difference_here(ours, theirs, data, progress=lambda *_: None)


RNG = np.random.default_rng(0)
FP32 = RNG.standard_normal((64, 10)).astype(np.float32)


def noisy(decibels, seed):
    noise = np.random.default_rng(seed).standard_normal(FP32.shape)
    return (FP32 + 10 ** (-decibels / 20) * noise).astype(np.float32)


@pytest.mark.parametrize(
    ("ours", "theirs", "differs"),
    [
        (32, 32, False),  # two independent errors of one size
        (34, 32, False),
        (32, 20, True),
        (34.3, 10.9, True),  # a ViT on ONNX Runtime and OpenVINO
        (70, 42, False),  # of a difference of a hundredth nobody sees anything
    ],
)
def test_two_errors_of_quantization_are_no_difference(tmp_path, ours, theirs, differs):
    """Only what is more than twice what two independent errors of the better one's size would give."""
    actual = look(*arms(tmp_path, noisy(ours, 1), noisy(theirs, 2), FP32))
    assert (actual is not None) == differs
    if actual is not None:
        assert actual.better_db == pytest.approx(ours, abs=1)
        assert actual.between_db == pytest.approx(theirs, abs=1)


def test_fp32_differs_by_more_than_a_thousandth(tmp_path):
    """fp32 in another order of additions has some 120 dB, in bfloat16 40 to 50."""
    assert look(*arms(tmp_path, FP32, noisy(110, 1))) is None
    actual = look(*arms(tmp_path, FP32, noisy(45, 1)))
    assert actual is not None
    assert actual.between_db == pytest.approx(45, abs=1)


def test_who_watches_is_told_what_is_compared(tmp_path):
    """Before it begins, also where nothing differs: two files of predictions can be large."""
    told, pair = [], arms(tmp_path, FP32, FP32)
    assert difference_here(*pair, None, progress=lambda *step: told.append(step)) is None
    assert list_differing_here([pair], progress=lambda *step: told.append(step)) == []
    assert told == [("compare with another runtime", 0.9), ("compare runtimes", 0.5)]


def test_garbage_on_one_runtime_differs(tmp_path):
    """NaN, infinity and huge values on one side: a number that a record can hold."""
    for wrong in (np.nan, np.inf, 3e38):
        broken = noisy(32, 1)
        broken[3, 4] = wrong
        actual = look(*arms(tmp_path, noisy(32, 2), broken, FP32))
        assert actual is not None
        assert actual.between_db == -100.0


def test_numbers_of_classes_are_not_compared(tmp_path):
    """Outputs that are whole numbers have no SQNR; those of another shape fail elsewhere."""
    assert look(*arms(tmp_path, np.arange(4), np.arange(4)[::-1])) is None
    assert look(*arms(tmp_path, FP32, FP32[:, :5])) is None


def deep(file, wrong=None):
    """Six matrix products; the fourth of the second file has another weight."""
    draft = Draft()
    name = "x"
    for i in range(6):
        weight = draft.rng.standard_normal((16, 16)).astype(np.float32) / 4
        if i == wrong:
            weight = weight[::-1].copy()
        last = i == 5
        name = draft.add("MatMul", [name, draft.constant(f"w{i}", weight)], f"m{i}", outputs=["y"] if last else None)
        if not last:
            name = draft.add("Tanh", [name], f"t{i}")
    onnx.save(draft.model({"x": ["n", 16]}, {"y": ["n", 16]}), str(file))
    return file


@pytest.mark.parametrize("wrong", [0, 3, 5])
def test_the_first_layer_that_differs_is_named(tmp_path, wrong):
    """Found by halving, on the runtimes themselves."""
    x = np.random.default_rng(3).standard_normal((16, 16)).astype(np.float32)
    files = [deep(tmp_path / "a.onnx"), deep(tmp_path / "b.onnx", wrong)]
    pair = [
        RuntimeVariant(backend="onnxruntime", file=file, format="onnx", fp32=None,
            predictions=predictions(tmp_path / f"{i}.npz", onnxruntime_session.run(file, (x,))))
        for i, file in enumerate(files)
    ]  # fmt: skip
    data = SimpleNamespace(evaluation_count=16, evaluation=lambda start, end: (x[start:end],))
    actual = look(*pair, data)
    assert actual is not None
    assert actual.layer == f"m{wrong}"


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_keeps_what_differs_with_both_cases(tmp_path, monkeypatch, fails):
    """Both records tell of the other; where nobody can look, that is noted and no case fails."""
    cases, built, evaluated, notes, steps = [], {}, {}, [], []
    for backend in ("onnxruntime", "openvino"):
        variant = SimpleNamespace(id=f"net/static/{backend}", model=SimpleNamespace(name="net"), backend=backend)
        key = SimpleNamespace(model="net", threads=1, batch_size=1, host="native")
        case = SimpleNamespace(id=f"{variant.id}/t1/b1", key=key, variant=variant, **vars(key))
        cases.append(SimpleNamespace(case=case, reference=SimpleNamespace(id="net/fp32")))
        built[variant.id] = BuiltVariant(artifact=artifact(tmp_path, backend), seconds=1.0)
        evaluated[case.id] = EvaluatedCase(predictions=tmp_path / f"{backend}.npz", accuracy=accuracy(), seconds=1.0)
    context = SimpleNamespace(
        tracker=SimpleNamespace(open_cases=lambda: cases), limits=None, report_under=lambda name: None,
        progress=SimpleNamespace(stage=lambda *stage: steps.append(stage), advance=steps.append),
        note_missing=lambda name, reason: notes.append(f"{name}: {reason}"),
    )  # fmt: skip

    def difference(first, second, data, **rest):
        if fails:
            raise CaseError("it was killed")
        return Difference(between_db=1.8, better_db=32.4, layer="patch")

    monkeypatch.setattr(runtimes_stage, "difference", difference)
    monkeypatch.setattr(runtimes_stage, "list_differing", lambda variants, **rest: [0])
    compared = runtimes_stage.compare_runtimes(context, SimpleNamespace(data=None), built, evaluated)
    assert steps == [("runtimes", 1), "net/static/onnxruntime/t1/b1 and openvino"]
    others = [case.accuracy.other_runtime for case in compared.values()]
    assert [case.accuracy.other_runtime for case in evaluated.values()] == [None, None]
    if fails:
        assert others == [None, None]
        assert notes == ["net/static/onnxruntime/t1/b1: not compared with openvino: it was killed"]
    else:
        ids = ["net/static/openvino/t1/b1", "net/static/onnxruntime/t1/b1"]
        assert others == [OtherRuntime(case=name, between_db=1.8, better_db=32.4, layer="patch") for name in ids]


@pytest.mark.parametrize("dies", [False, True])
def test_one_process_tells_which_pairs_are_looked_at(tmp_path, dies, monkeypatch):
    """Those that rounding explains get no process of their own; where that one dies, each gets it."""
    cases, built, evaluated, looked_at = [], {}, {}, []
    for network in ("alike", "apart"):
        for backend in ("onnxruntime", "openvino"):
            variant = SimpleNamespace(id=f"{network}/static/{backend}", backend=backend)
            key = SimpleNamespace(model=network, threads=1, batch_size=1, host="native")
            case = SimpleNamespace(id=variant.id, key=key, variant=variant, **vars(key))
            cases.append(SimpleNamespace(case=case, reference=None))
            built[variant.id] = BuiltVariant(artifact=artifact(tmp_path, backend), seconds=1.0)
            file = tmp_path / f"{network}{backend}.npz"
            evaluated[case.id] = EvaluatedCase(predictions=file, accuracy=accuracy(), seconds=1.0)
    context = SimpleNamespace(
        tracker=SimpleNamespace(open_cases=lambda: cases), limits=None, report_under=lambda name: None,
        progress=SimpleNamespace(stage=lambda *_: None, advance=lambda *_: None),
    )  # fmt: skip

    def list_differing(variants, **rest):
        if dies:
            raise CaseError("it was killed")
        return [i for i, (first, _) in enumerate(variants) if first.predictions.name.startswith("apart")]

    monkeypatch.setattr(runtimes_stage, "list_differing", list_differing)
    monkeypatch.setattr(
        runtimes_stage, "difference", lambda first, *rest, **more: looked_at.append(first.predictions.stem)
    )
    runtimes_stage.compare_runtimes(context, SimpleNamespace(data=None), built, evaluated)
    assert looked_at == (["alikeonnxruntime"] if dies else []) + ["apartonnxruntime"]


def test_pairs_that_rounding_does_not_explain_are_listed(tmp_path):
    """By their positions."""
    outputs = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    pairs_of_arms = []
    for name, theirs in (("alike", outputs * 1.0001), ("apart", -outputs)):
        (tmp_path / name).mkdir()
        pairs_of_arms.append(tuple(arms(tmp_path / name, outputs, theirs)))
    assert list_differing_here(pairs_of_arms, progress=lambda *_: None) == [1]


def test_two_cases_are_one_warning_and_the_record_holds_it():
    """It names both, how far they lie apart, and the layer."""
    ids = ["net/static/onnxruntime/t1/b1", "net/static/openvino/t1/b1"]
    records = []
    for name, other in zip(ids, reversed(ids), strict=True):
        other_runtime = OtherRuntime(case=other, between_db=1.8, better_db=32.4, layer="patch")
        records.append(int8(name, accuracy=replace(accuracy(), other_runtime=other_runtime)))
    assert warn_of_runtimes([int8()]) == ()
    (message,) = warn_of_runtimes(records)
    assert "net/static · onnxruntime and net/static/openvino/t1/b1 are one file" in message
    assert "1.8 dB, where the better of them keeps 32.4 dB of fp32; the first layer that differs is patch." in message
    assert from_line(to_line(records[0])) == records[0]


@pytest.mark.parametrize(("decibels", "names_roundings"), [(29.9, False), (30.0, True), (44.1, True)])
def test_what_roundings_can_make_is_no_proof_of_a_fault(decibels, names_roundings):
    """A network may amplify them; then a message that blames a runtime alone would be wrong."""
    other_runtime = OtherRuntime(case="net/fp32/openvino/t1/b1", between_db=decibels, better_db=100.0, layer=None)
    records = [int8("net/fp32/onnxruntime/t1/b1", accuracy=replace(accuracy(), other_runtime=other_runtime))]
    records.append(int8("net/fp32/openvino/t1/b1"))
    (message,) = warn_of_runtimes(records)
    assert ("or the network makes much of roundings" in message) is names_roundings
    assert ("One of the two runtimes computes something else" in message) is not names_roundings


def test_variants_of_one_recipe_are_not_called_one_file():
    """Engines store other numbers of one recipe: fbgemm narrows weights, qnnpack does not."""
    own, other = "net/static/fbgemm/t1/b1", "net/static/qnnpack/t1/b1"
    records = []
    for name, beside in ((own, other), (other, own)):
        other_runtime = OtherRuntime(case=beside, between_db=1.8, better_db=32.4, layer="patch")
        record = int8(name, accuracy=replace(accuracy(), other_runtime=other_runtime))
        records.append(
            replace(record, artifact=replace(record.artifact, sha256=name.encode().hex()[:64].ljust(64, "0")))
        )
    (message,) = warn_of_runtimes(records)
    assert "are made of one network by one recipe" in message
    assert "or one of them stores coarser numbers" in message


@pytest.mark.parametrize(("ours", "least_decibels"), [(32, 26), (60, 30)])
def test_a_layer_is_named_where_it_differs_by_more_than_the_outputs_explain(
    tmp_path, monkeypatch, ours, least_decibels
):
    """Than the better one's own noise would, and by what a step of 8 bits makes at most."""
    bars = []
    monkeypatch.setattr(runtime_difference, "_first_layer", lambda *words: bars.append(words[-1]))
    assert look(*arms(tmp_path, noisy(ours, 1), noisy(10, 2), FP32)) is not None
    assert bars == [pytest.approx(least_decibels, abs=0.5)]


@pytest.mark.parametrize("formats", [("onnx", "openvino"), ("openvino", "onnx")])
def test_layers_are_looked_for_in_two_onnx_files_alone(tmp_path, formats):
    """No other form tells them."""
    pair = [replace(arm, format=name) for arm, name in zip(arms(tmp_path, FP32, -FP32), formats, strict=True)]
    assert look(*pair).layer is None


@pytest.mark.parametrize(
    ("better", "between", "differs"),
    [
        (32.0, 26.0, False),
        (32.0, 25.9, True),
        (70.0, 40.0, False),
        (70.0, 39.9, True),
        (None, 60.0, False),
        (None, 59.9, True),
    ],
)
def test_where_a_difference_begins(monkeypatch, better, between, differs):
    """6 dB below the better one's own noise, int8 at less than 40 dB in any case, fp32 at less than 60."""
    fp32 = None if better is None else "fp32"
    pair = [SimpleNamespace(predictions=name, fp32=fp32) for name in ("ours", "theirs")]
    outputs = {name: np.full(1, number, np.float32) for number, name in enumerate(("fp32", "ours", "theirs"))}
    monkeypatch.setattr(runtime_difference, "load_predictions", lambda name: {"outputs": outputs[name]})
    monkeypatch.setattr(runtime_difference, "measure_sqnr", lambda base, _: better if base[0] == 0 else between)
    measured = runtime_difference._measure(*pair)
    assert measured == ((between, 100.0 if better is None else better) if differs else None)


@pytest.fixture
def layers(monkeypatch):
    """Of two files the layers, each as far apart as the table says, and the examples on which they are looked at."""
    looked_at = []

    def tensor(variant, name, inputs):
        looked_at.append(inputs)
        return float(name)

    def pretend(*decibels, fixed_batch=None):
        named = [SimpleNamespace(name=f"layer {i}", tensor=str(each)) for i, each in enumerate(decibels)]
        monkeypatch.setattr("qbench.quant.analysis.onnx_tensors.shared_layers", lambda *_: named)
        monkeypatch.setattr("qbench.quant.artifacts.onnx_file.fixed_batch", lambda _: fixed_batch)
        return looked_at

    monkeypatch.setattr(runtime_difference, "_tensor", tensor)
    monkeypatch.setattr(runtime_difference, "measure_sqnr", lambda ours, _: ours)
    return pretend


def find_layer(count):
    """The first layer that differs by more than 30 dB allow, looked for on so many examples."""
    variant = SimpleNamespace(format="onnx", file=None)
    data = SimpleNamespace(evaluation_count=count, evaluation=lambda start, stop: (list(range(start, stop)),))
    return runtime_difference._first_layer(variant, variant, data, 30.0)


@pytest.mark.parametrize(
    ("decibels", "layer"),
    [((50, 30, 29, 10), "layer 2"), ((29, 20), "layer 0"), ((50, 40, 30), None), ((), None), ((60, 29), "layer 1")],
)
def test_the_first_layer_below_the_bar_is_found(layers, decibels, layer):
    """None where all reach it."""
    layers(*decibels)
    assert find_layer(9) == layer


@pytest.mark.parametrize(("count", "fixed", "asked"), [(9, None, 8), (3, None, 3), (9, 4, 4), (3, 4, None), (4, 4, 4)])
def test_layers_are_looked_at_on_eight_examples_or_a_batch(layers, count, fixed, asked):
    """The first ones; where there are fewer than a file takes, nobody can look."""
    looked_at = layers(29, fixed_batch=fixed)
    assert find_layer(count) == (None if asked is None else "layer 0")
    assert {tuple(inputs[0]) for inputs in looked_at} == (set() if asked is None else {tuple(range(asked))})


class Passing:
    """A runner that gives what it is given."""

    context = staticmethod(contextlib.nullcontext)

    def prepare(self, inputs):
        return inputs

    def __call__(self, prepared):
        return prepared

    def outputs(self, result):
        return result[0]


def test_a_layer_is_computed_on_one_thread(monkeypatch):
    """As the outputs that differ were."""
    did = []
    backend = SimpleNamespace(load=lambda file, *, threads: did.append((file, threads)) or Passing())
    monkeypatch.setattr(runtime_difference.registry, "load", lambda kind, name: backend)
    monkeypatch.setattr("qbench.quant.analysis.onnx_tensors.with_first_output", lambda source, tensor, file: source)
    variant = SimpleNamespace(backend="own", file="model.onnx")
    assert runtime_difference._tensor(variant, "t", ("x", "y")) == "x"
    assert did == [("model.onnx", 1)]
