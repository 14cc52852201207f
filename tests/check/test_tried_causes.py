"""Which causes are tried on a file alone, and how."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from people_files import UINT8, node, pair, weight, write

from qbench.check import tried_causes
from qbench.check.budget import open_budget
from qbench.check.finding import RuntimeCheck
from qbench.check.tried_causes import Subject
from qbench.errors import CaseError
from qbench.explain.causes.base import Counterfactual
from qbench.explain.change import Change
from qbench.quant.artifacts import onnx_file
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.artifacts.node_profile import CallProfile, NodeTime

BUDGET = open_budget(Path(__file__))
LAYERS = tuple(Layer(name=name, operator="QLinearConv", macs=1000, precision="int8") for name in ("a", "b"))


def profile(kind, *seconds):
    """Two layers with a conversion before each."""
    times = zip(("q", "a", "p", "b"), ("conversion", kind, "conversion", kind), seconds, strict=True)
    nodes = tuple(NodeTime(layer=name, operator=name, kind=each, seconds=value) for name, each, value in times)
    return CallProfile(nodes=nodes, call_seconds=sum(seconds), watched_seconds=sum(seconds))


def make_subject(folder, *, batch=1, int8=(1e-4, 1e-3, 1e-4, 1e-3)):
    first, dequantize_first = weight("w", 48, 32, 1, 1)
    second, dequantize_second = weight("v", 64, 48, 1, 1)
    nodes = [
        *pair("x", "s", "z"), dequantize_first, node("Conv", ["x_d", "w"], "a"), *pair("a", "s2", "z2"),
        dequantize_second, node("Conv", ["a_d", "v"], "b"), *pair("b", "s2", "z2"), node("Identity", ["b_d"], "y"),
    ]  # fmt: skip
    file = write(folder / "m.onnx", nodes, {**first, **second, **UINT8}, inputs=(("x", [batch, 32, 8, 8]),))
    model = onnx.load(str(file))
    return Subject(
        file=file, model=model, declared=onnx_file.list_inputs(model), inputs=(np.ones((1, 32, 8, 8), np.float32),),
        threads=1, fp32=file,
        check=RuntimeCheck(
            runtime="onnxruntime", version="1", layers=LAYERS, profile=profile("int8 product", *int8)
        ),
    )  # fmt: skip


@pytest.fixture
def fp32(monkeypatch):
    """Profiles of the fp32 in place of those that take time, which are set."""
    times = {"seconds": (0.0, 2e-3, 0.0, 2e-3)}
    monkeypatch.setattr(tried_causes, "_watch_fp32", lambda *_: profile("float product", *times["seconds"]))
    monkeypatch.setattr(tried_causes, "_find_flushing_gain", lambda *_: None)
    return times


def names(candidates):
    return [candidate.counterfactual.cause for candidate in candidates]


def test_a_layer_that_int8_slows_down_is_tried_in_float(fp32, tmp_path):
    """In a file of its own, which is the same but for that layer."""
    fp32["seconds"] = (0.0, 4e-4, 0.0, 2e-3)
    (candidate,) = tried_causes.find_candidates(make_subject(tmp_path), tmp_path, BUDGET)
    assert candidate.counterfactual.cause == "slower-in-int8"
    assert candidate.counterfactual.text == "in float: a"
    assert candidate.arm.file != tmp_path / "m.onnx"
    part = onnx.load(str(candidate.arm.file))
    first, second = (next(each for each in part.graph.node if each.name == name) for name in "ab")
    assert first.input[0] == "x"
    assert second.input[0] == "a_d"


def test_other_batches_are_tried_where_the_file_takes_them(fp32, tmp_path):
    """The file itself on eight times as many examples; not where its batch is fixed, nor where a call is long."""
    (candidate,) = tried_causes.find_candidates(make_subject(tmp_path, batch="n"), tmp_path, BUDGET)
    assert candidate.counterfactual.cause == "little-work"
    assert candidate.arm.file == tmp_path / "m.onnx"
    assert candidate.arm.inputs[0].shape == (8, 32, 8, 8)
    assert tried_causes.find_candidates(make_subject(tmp_path), tmp_path, BUDGET) == ()
    fp32["seconds"] = (0.0, 1.0, 0.0, 1.0)
    long = make_subject(tmp_path, batch="n", int8=(1e-3, 0.5, 1e-3, 0.5))
    assert tried_causes.find_candidates(long, tmp_path, BUDGET) == ()


def test_no_more_are_tried_than_a_reader_wants(fp32, tmp_path, monkeypatch):
    """What changes the file comes before what asks for other requests."""
    fp32["seconds"] = (0.0, 4e-4, 0.0, 2e-3)
    subject = make_subject(tmp_path, batch="n")
    assert names(tried_causes.find_candidates(subject, tmp_path, BUDGET)) == ["slower-in-int8", "little-work"]
    monkeypatch.setattr(tried_causes, "MOST", 1)
    assert names(tried_causes.find_candidates(subject, tmp_path, BUDGET)) == ["slower-in-int8"]


def test_a_variable_is_named_and_not_tried(fp32, tmp_path, monkeypatch):
    """It is read as a process begins; engines that do not read it are not told of it."""
    monkeypatch.setattr(tried_causes.fingerprint, "switches", lambda: ("ONEDNN_MAX_CPU_ISA=AVX2",))
    subject = make_subject(tmp_path)
    assert tried_causes.find_candidates(subject, tmp_path, BUDGET) == ()
    elsewhere = replace(subject, check=replace(subject.check, runtime="openvino"))
    (candidate,) = tried_causes.find_candidates(elsewhere, tmp_path, BUDGET)
    assert (candidate.arm, candidate.counterfactual.cause) == (None, "older-instructions")
    trial = candidate.conclude(reason=candidate.reason)
    assert not trial.confirmed
    assert "check the file again without it" in trial.reason


def test_a_cause_is_told_where_its_gain_is_shown():
    """Its lower limit is above 1, and it is worth a change of the file."""
    from qbench.check.finding import CauseTrial
    from qbench.stats.interval_type import Interval

    def confirmed(value, low):
        gain = None if value is None else Interval(value=value, low=low, high=2.0)
        return CauseTrial(cause="c", title="t", text="x", gain=gain).confirmed

    assert confirmed(1.2, 1.1)
    assert not confirmed(1.2, 0.99)
    assert not confirmed(1.01, 1.005)
    assert not confirmed(1.2, None)
    assert not confirmed(None, None)


def test_the_files_are_made_in_the_folder_that_is_named(fp32, tmp_path):
    """And nowhere else."""
    fp32["seconds"] = (0.0, 4e-4, 0.0, 2e-3)
    (tmp_path / "made").mkdir()
    (candidate,) = tried_causes.find_candidates(make_subject(tmp_path), tmp_path / "made", BUDGET)
    assert Path(candidate.arm.file).parent == tmp_path / "made"


def timed_nodes(**seconds):
    """A profile with so much of each kind of node."""
    nodes = tuple(
        NodeTime(layer=kind, operator=kind, kind=kind.replace("_", " "), seconds=value)
        for kind, value in seconds.items()
    )
    return CallProfile(nodes=nodes, call_seconds=1.0, watched_seconds=1.0)


@pytest.mark.parametrize(
    ("seconds", "looked"),
    [
        ({"int8_product": 0.9, "other": 0.1}, True),
        ({"int8_product": 0.9, "float_product": 0.1}, True),
        ({"int8_product": 0.94, "float_product": 0.03, "other": 0.03}, True),
        ({"int8_product": 0.95, "float_product": 0.05}, True),
        ({"int8_product": 0.96, "float_product": 0.02, "other": 0.02}, False),
        ({"int8_product": 0.5, "conversion": 0.5}, False),
    ],
)
def test_denormals_are_looked_for_where_floats_take_a_part_of_a_call(seconds, looked, tmp_path, monkeypatch):
    """A twentieth of it; nothing is known where a call cannot be made."""
    subject = make_subject(tmp_path)
    subject = replace(subject, check=replace(subject.check, profile=timed_nodes(**seconds)))
    asked = []
    monkeypatch.setattr(tried_causes, "call", lambda *words, limits: asked.append(words[1:]) or 1.5)
    assert tried_causes._find_flushing_gain(subject, BUDGET) == (1.5 if looked else None)
    assert asked == [("onnxruntime", subject.file, subject.inputs, 1)] * looked

    def fail(*_, limits):
        raise CaseError("no such switch here")

    monkeypatch.setattr(tried_causes, "call", fail)
    assert tried_causes._find_flushing_gain(subject, BUDGET) is None


def test_weights_are_read_where_another_batch_can_be_tried(tmp_path, monkeypatch):
    """As many bytes as the file has with its weights; nothing is known where that fails."""
    asked = []
    monkeypatch.setattr(tried_causes.bandwidth, "measure_reading", lambda count, *, limits: asked.append(count) or 0.25)
    fixed, free = make_subject(tmp_path), make_subject(tmp_path, batch="n")
    assert [tried_causes._read_weights(subject, BUDGET) for subject in (fixed, free)] == [None, 0.25]
    assert asked == [free.model.ByteSize()]
    scalar = replace(free, declared=(*free.declared, onnx_file.DeclaredInput(name="s", dtype="float32", sizes=())))
    assert tried_causes._read_weights(scalar, BUDGET) is None


CAUSE = SimpleNamespace(title="t")


@pytest.mark.parametrize(
    ("change", "tried"),
    [
        (Change(backend="openvino"), None),
        (Change(calibrate=("train", 8)), None),
        (Change(recipe={"per_channel": True}), None),
        (Change(recipe={"skip_layers": ("nobody",), "min_coverage": 0.0}), "no node goes by nobody"),
        (Change(mode="fp32"), "it takes calibration data: `qbench init` writes a suite that tries it"),
        (Change(environment={"A": "1"}), "a variable is set as a process begins: check the file again without it"),
        (Change(batch_size=8), None),
        (Change(own_recipe=True), None),
    ],
)
def test_what_only_a_suite_can_have_is_not_tried(change, tried, tmp_path):
    """With the reason where a person can do something about it."""
    counterfactual = Counterfactual(cause="c", text="x", change=change)
    candidate = tried_causes._make_candidate(make_subject(tmp_path), CAUSE, counterfactual, tmp_path / "f.onnx")
    assert (candidate and candidate.reason) == tried
    assert candidate is None or candidate.arm is None


def test_threads_and_flushing_are_tried_on_the_file_itself(tmp_path):
    """All else stays."""
    subject = make_subject(tmp_path)
    for change, threads, flushed in ((Change(threads=2), 2, False), (Change(flush_denormals=True), 1, True)):
        counterfactual = Counterfactual(cause="c", text="x", change=change)
        arm = tried_causes._make_candidate(subject, CAUSE, counterfactual, tmp_path / "f.onnx").arm
        assert (arm.file, arm.inputs, arm.threads, arm.flushed) == (subject.file, subject.inputs, threads, flushed)


@pytest.mark.parametrize(("tried", "untried", "told"), [(2, 2, 4), (3, 2, 5), (5, 0, 3), (5, 2, 5)])
def test_three_causes_are_tried_at_most(tried, untried, told, tmp_path, monkeypatch):
    """Those that cannot be tried are told beside them, as long as another is looked for; each has a file of its own."""
    files = []
    changes = [*[Change(environment={"A": "1"})] * untried, *[Change(threads=2)] * tried]
    monkeypatch.setattr(tried_causes, "_describe", lambda *_: None)
    proposals = [(CAUSE, Counterfactual(cause="c", text="x", change=change)) for change in changes]
    monkeypatch.setattr(tried_causes, "_propose", lambda situation: iter(proposals))
    make = tried_causes._make_candidate
    monkeypatch.setattr(tried_causes, "_make_candidate", lambda *words: files.append(words[3].name) or make(*words))
    candidates = tried_causes.find_candidates(make_subject(tmp_path), tmp_path, BUDGET)
    assert len(candidates) == told
    assert len(set(files)) == len(files)


@pytest.mark.parametrize(("inputs", "batch"), [((np.ones((4, 3)),), 4), ((np.float32(1), np.ones((4, 3))), 1)])
def test_a_call_has_as_many_examples_as_its_first_input(inputs, batch, tmp_path):
    """A scalar is one."""
    subject = replace(make_subject(tmp_path), inputs=inputs)
    assert (subject.batch, subject.arm.examples) == (batch, batch)
    assert (subject.arm.threads, subject.arm.file) == (subject.threads, subject.file)


@pytest.mark.parametrize(("kind", "mode"), [("DynamicQuantizeLinear", "dynamic"), ("QuantizeLinear", "static")])
def test_a_file_whose_ranges_are_found_as_it_runs_is_dynamic(fp32, kind, mode, tmp_path):
    """Causes of the one are none of the other."""
    subject = make_subject(tmp_path)
    subject.model.graph.node.add(op_type=kind)
    case = tried_causes._describe(subject, BUDGET).case
    assert (case.variant.mode, case.threads, case.batch_size) == (mode, 1, 1)


def test_without_a_profile_of_its_fp32_what_needs_none_is_tried(fp32, tmp_path, monkeypatch):
    """Its times are not known then."""

    def fail(*_):
        raise CaseError("it does not run")

    monkeypatch.setattr(tried_causes, "_watch_fp32", fail)
    assert tried_causes._describe(make_subject(tmp_path), BUDGET).times is None
