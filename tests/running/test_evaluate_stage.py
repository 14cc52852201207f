"""What a run builds and evaluates beside the cases: the same variants with other calibration subsets."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from kept_notes import Notes
from made_artifacts import make_artifact

from qbench import suite
from qbench.errors import BuildError, CaseError, CaseSkipped, EvaluateError
from qbench.evaluate import predictions
from qbench.process.cpu_slots import Slots
from qbench.progress.live import Silent
from qbench.record.schema import Accuracy, CalibrationSeeds, TwinChange
from qbench.running import build_stage, evaluate_stage, run
from qbench.running.build_stage import BuiltVariant
from qbench.running.context import RunContext
from qbench.running.prepare_stage import Prepared, prepare
from qbench.stats.interval_type import Interval

NETWORKS = Path(__file__).parent.parent / "fixtures" / "networks.py"
TEXT = f"""
suite: small
models: [{{name: mine, source: {{python: "{NETWORKS}:perceptron"}}}}]
data: {{dataset: {{npz: data.npz}}, calibrate: {{samples: 32, seed: 4, seeds: 3}}}}
matrix: {{modes: [fp32, dynamic, static], backends: [fake]}}
"""
STATIC = "mine/static/fake"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the stages before the measuring gave; ``accuracy`` by case id."""

    context: RunContext
    prepared: Prepared
    built: dict[str, BuiltVariant]
    evaluated: dict[str, evaluate_stage.EvaluatedCase]

    @property
    def accuracy(self):
        return {case: known.accuracy for case, known in self.evaluated.items()}


@pytest.fixture
def folder(tmp_path):
    """The folder of a suite and its data."""
    rng = np.random.default_rng(0)
    arrays = {"train_inputs": rng.random((64, 1, 8, 8), dtype=np.float32), "train_labels": np.arange(64) % 10}
    arrays |= {"test_inputs": rng.random((40, 1, 8, 8), dtype=np.float32), "test_labels": np.arange(40) % 10}
    np.savez(tmp_path / "data.npz", **arrays)
    (tmp_path / "s.yaml").write_text(TEXT)
    return tmp_path


@pytest.fixture
def go(folder):
    """Runs the stages of the suite with overrides up to the measuring."""

    def go(*overrides):
        read = suite.read(folder / "s.yaml", list(overrides))
        context = run.open_run(read, out=folder / "reports", only=None, resume=None, jobs=1, progress=Notes())
        prepared = prepare(context, read)
        built = build_stage.build_variants(context, prepared)
        evaluated = evaluate_stage.evaluate(context, prepared, built)
        return Outcome(context=context, prepared=prepared, built=built, evaluated=evaluated)

    return go


class FakeStages:
    """Stands for building, evaluating and scoring; keeps what it was asked for and fails where it is told to."""

    def __init__(self, monkeypatch, *, no_build=(), no_prediction=()):
        self.built, self.no_build, self.no_prediction = [], no_build, no_prediction
        monkeypatch.setattr(build_stage, "build", self.build)
        monkeypatch.setattr(evaluate_stage, "predict_cached", self.predict)
        monkeypatch.setattr(evaluate_stage, "score", self.score)
        monkeypatch.setattr(evaluate_stage, "_hold_against_network", lambda *others: None)

    def build(self, variant, *, data, **others):
        self.built.append((variant.mode, data.calibration_seed))
        if self.built[-1] in self.no_build:
            raise BuildError("no int8 today")
        return make_artifact(mode=variant.mode, key=data.calibration_digest)

    def predict(self, artifact, data, batch_size, file, **others):
        assert artifact.key == data.calibration_digest
        if (artifact.mode, data.calibration_seed) in self.no_prediction:
            raise EvaluateError("gave NaN")
        np.savez(file, seed=data.calibration_seed)
        return predictions.Predicted(cached=False)

    def score(self, metric, file, base, classes, **others):
        with np.load(file) as stored:
            return Accuracy(metric=metric.name, value=stored["seed"] / 10, low=None, high=None, n=40)


def test_a_static_variant_is_scored_with_each_calibration_subset(go, monkeypatch):
    """Three seeds: three builds and scores of static, the first one shipped; fp32 and dynamic know no calibration."""
    stages = FakeStages(monkeypatch)
    outcome = go()
    assert stages.built == [("fp32", 4), ("dynamic", 4), ("static", 4), ("static", 5), ("static", 6)]
    accuracy = outcome.accuracy[f"{STATIC}/t1/b1"]
    assert (accuracy.value, accuracy.shared_examples) == (0.4, 0)
    assert accuracy.calibration == CalibrationSeeds(
        seeds=(4, 5, 6),
        values=(0.4, 0.5, 0.6),
        predictions=tuple(f"predictions/mine__static__fake{seed}.npz" for seed in ("", "__seed5", "__seed6")),
        reasons=(None, None, None),
    )
    for file, seed in zip(accuracy.calibration.predictions, accuracy.calibration.seeds, strict=True):
        assert np.load(outcome.context.directory.path / file)["seed"] == seed
    assert outcome.built[STATIC].artifact.key == outcome.prepared.data.calibration_digest
    assert [outcome.accuracy[f"mine/{mode}/fake/t1/b1"].calibration for mode in ("fp32", "dynamic")] == [None, None]
    assert 0 < outcome.evaluated[f"{STATIC}/t1/b1"].calibration_seconds < 60
    assert all(0 <= known.seconds < 60 for known in outcome.evaluated.values())
    assert outcome.evaluated["mine/fp32/fake/t1/b1"].calibration_seconds is None


class Compared(FakeStages):
    """Keeps whose predictions were held against whose."""

    def __init__(self, monkeypatch, **faults):
        super().__init__(monkeypatch, **faults)
        self.compared = []

    def score(self, metric, file, base, classes, **others):
        self.compared.append((file.stem, None if base is None else base.stem))
        delta = None if base is None else Interval(value=-0.01 if "@twin" in base.stem else 0.04)
        return Accuracy(metric=metric.name, value=0.9, low=None, high=None, n=40, delta=delta)


TWINS = ("matrix.modes=[fp32, qat]", "quantize.qat.fp32_twin=true", "data.calibrate.seeds=1")


def test_a_qat_case_is_held_against_its_fp32_and_against_its_twin(go, monkeypatch):
    """The change that counts stays the one against the like-for-like fp32; that against the twin stands beside it. The
    twin is scored first, and itself held against the fp32."""
    stages = Compared(monkeypatch)
    outcome = go(*TWINS)
    assert stages.compared == [
        ("mine__fp32__fake", None),
        ("mine__fp32@twin__fake", "mine__fp32__fake"),
        ("mine__qat__fake", "mine__fp32@twin__fake"),
        ("mine__qat__fake", "mine__fp32__fake"),
    ]
    accuracy = outcome.accuracy["mine/qat/fake/t1/b1"]
    assert accuracy.delta.value == 0.04
    assert accuracy.twin == TwinChange(baseline="mine/fp32@twin/fake/t1/b1", delta=Interval(value=-0.01))
    assert [outcome.accuracy[f"mine/{mode}/fake/t1/b1"].twin for mode in ("fp32", "fp32@twin")] == [None, None]


def test_a_qat_case_does_without_a_twin_that_failed(go, monkeypatch):
    """The twin is no baseline: its failure takes no other case along."""
    stages = Compared(monkeypatch)
    predict = stages.predict

    def fail_twin(artifact, data, batch_size, file, **others):
        if "@twin" in file.stem:
            raise EvaluateError("gave NaN")
        return predict(artifact, data, batch_size, file, **others)

    monkeypatch.setattr(evaluate_stage, "predict_cached", fail_twin)
    outcome = go(*TWINS)
    assert outcome.accuracy["mine/qat/fake/t1/b1"].twin is None
    assert outcome.accuracy["mine/qat/fake/t1/b1"].delta.value == 0.04
    assert "mine/fp32@twin/fake/t1/b1" not in outcome.accuracy


@pytest.mark.parametrize(
    ("faults", "words"),
    [({"no_build": [("static", 5)]}, "no int8 today"), ({"no_prediction": [("static", 5)]}, "gave NaN")],
)
def test_a_subset_that_fails_breaks_no_case(go, monkeypatch, faults, words):
    """Its value is null with the reason, which is told; the case and the other seeds have theirs."""
    FakeStages(monkeypatch, **faults)
    outcome = go()
    seeds = outcome.accuracy[f"{STATIC}/t1/b1"].calibration
    assert seeds.values == (0.4, None, 0.6)
    assert seeds.reasons == (None, words, None)
    assert seeds.predictions[1] is None
    assert [words in note and "calibration seed 5" in note for note in outcome.context.progress.notes] == [True]
    assert len(outcome.context.tracker.open_cases()) == 3


def test_an_interrupt_says_nothing_of_what_it_ended(go, monkeypatch):
    """Once the user interrupts, children that end have not failed; before, what is lacking is told."""
    FakeStages(monkeypatch)
    outcome = go("data.calibrate.seeds=1")
    outcome.context.note_missing("mine (calibration seed 5)", "not built: ended")
    outcome.context.tracker.stopping = True
    outcome.context.note_missing("mine (calibration seed 6)", "not built: ended")
    assert outcome.context.progress.notes == ["mine (calibration seed 5): not built: ended"]


def test_a_variant_that_fails_has_no_seed_spread(go, monkeypatch):
    """What is not built with its own subset is not built with others either."""
    stages = FakeStages(monkeypatch, no_build=[("static", 4)])
    outcome = go()
    assert ("static", 5) not in stages.built
    assert f"{STATIC}/t1/b1" not in outcome.accuracy
    assert {record.case.mode: record.status for record in outcome.context.directory.records()} == {"static": "failed"}


def test_a_variant_that_cannot_be_evaluated_has_no_seed_spread(go, monkeypatch):
    """Its other subsets would be the spread of nothing; they are not evaluated either."""
    stages = FakeStages(monkeypatch, no_prediction=[("static", 4)])
    outcome = go()
    assert ("static", 5) in stages.built
    assert f"{STATIC}/t1/b1" not in outcome.accuracy
    assert list((outcome.context.directory.path / "predictions").glob("*seed*")) == []


def test_one_seed_has_no_spread(go, monkeypatch):
    """Without `calibrate.seeds` nothing is built twice, and the record says null."""
    stages = FakeStages(monkeypatch)
    outcome = go("data.calibrate.seeds=1")
    assert len(stages.built) == 3
    assert outcome.accuracy[f"{STATIC}/t1/b1"].calibration is None


def test_a_warm_cache_evaluates_nothing_again(go, monkeypatch, tmp_path):
    """The second run of a suite has the same predictions and evaluates none; other examples are evaluated."""
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))  # other tests evaluate the same network's fp32
    real, evaluated = predictions.predict, []

    def counted(artifact, *rest, **options):
        evaluated.append(artifact.mode)
        real(artifact, *rest, **options)

    monkeypatch.setattr(predictions, "predict", counted)
    first, again = go(), go()
    assert sorted(evaluated) == ["dynamic", "fp32", "static", "static", "static"]
    assert again.accuracy == first.accuracy
    names = [outcome.accuracy[f"{STATIC}/t1/b1"].calibration.predictions for outcome in (first, again)]
    for before, after in zip(*names, strict=True):
        folders = (first.context.directory.path, again.context.directory.path)
        assert (folders[0] / before).read_bytes() == (folders[1] / after).read_bytes()
    go("data.evaluate.samples=30")
    assert len(evaluated) == 10


BRANCHES = """
from networks import Branching, BranchingAsTraced


def build(compiled):
    return (Branching if compiled else BranchingAsTraced)()
"""


@pytest.mark.parametrize("compiled", [True, False])
def test_fp32_is_the_network_that_its_author_calls_or_no_reference(compiled, folder, monkeypatch):
    """The evaluation examples take the branch that no calibration example takes: what torch.jit.script takes keeps the
    decision; where a trace froze it, the case fails with the line, and nothing is compared with it."""
    arrays = dict(np.load(folder / "data.npz"))
    np.savez(folder / "data.npz", **arrays | {"test_inputs": -arrays["test_inputs"]})
    monkeypatch.syspath_prepend(NETWORKS.parent)
    (folder / "branches.py").write_text(BRANCHES)
    text = TEXT.replace(f"{NETWORKS}:perceptron", "branches.py:build").replace("fake", "torch, onednn")
    source = f'"branches.py:build", args: {{compiled: {str(compiled).lower()}}}'
    text = text.replace('"branches.py:build"', source).replace("fp32, dynamic, static", "fp32")
    file = folder / "s.yaml"
    file.write_text(text)
    result = run.run(suite.read(file), out=folder / "reports", only=None, resume=None, jobs=None, progress=Silent())
    (record,) = result.records
    if compiled:
        assert record.status == "ok"
        assert record.accuracy.as_called.compared == record.accuracy.as_called.of == 40
        assert record.accuracy.as_called.differing == 0
    else:
        assert (record.status, record.stage) == ("failed", "evaluate")
        assert "decides on values at networks.py:" in record.reason
        assert "40 of 40 evaluation examples differ" in record.reason


def plan(name, *, reference=None, twin=None, is_twin=False):
    """A planned case ``net/MODE/BACKEND/tN/bN[/HOST]``."""
    model, mode, backend, _, batch, *host = name.split("/")
    key = SimpleNamespace(backend=backend, mode=mode, is_twin=is_twin, host=host[0] if host else "native", id=name)
    variant = SimpleNamespace(id=f"{model}/{mode}/{backend}", mode=mode, model=SimpleNamespace(name=model))
    case = SimpleNamespace(id=name, variant=variant, batch_size=int(batch[1:]), host=key.host, key=key)
    ids = [None if each is None else SimpleNamespace(id=each) for each in (reference, twin)]
    return SimpleNamespace(case=case, reference=ids[0], twin=ids[1])


def group_of(name, **options):
    """The cases of one file of predictions: one."""
    return evaluate_stage._Group(name=name.replace("/", "__"), planned=[plan(name, **options)])


FP32, INT8 = "net/fp32/torch/t1/b1", "net/static/x86/t1/b1"


def test_cases_share_predictions_where_their_outputs_are_the_same():
    """Whatever their threads and, but for dynamic ones, their batch; on each host apart."""
    cases = ("static/x86/t1/b1", "static/x86/t2/b4", "static/x86/t1/b1/avx2", "dynamic/x86/t1/b1", "dynamic/x86/t2/b1",
             "dynamic/x86/t1/b4", "dynamic/x86/t1/b4/ray:zen4")  # fmt: skip
    groups = evaluate_stage._group_by_predictions([plan(f"net/{case}") for case in cases])
    assert {group.name: len(group.planned) for group in groups} == {
        "net__static__x86": 2, "net__static__x86__avx2": 1, "net__dynamic__x86__b1": 2, "net__dynamic__x86__b4": 1,
        "net__dynamic__x86__b4__ray-zen4": 1,
    }  # fmt: skip


def test_each_is_evaluated_behind_what_it_is_compared_with(monkeypatch):
    """fp32, its twins, those that are compared with either, and the emulated, which need the answers of all."""
    monkeypatch.setattr(evaluate_stage, "is_emulated", lambda case: case.host == "qemu")
    emulated, int8 = group_of(f"{INT8}/qemu", reference=INT8), group_of(INT8, reference=FP32)
    twin, fp32 = group_of("net/fp32@twin/torch/t1/b1", reference=FP32, is_twin=True), group_of(FP32)
    assert evaluate_stage._order_groups([emulated, int8, twin, fp32]) == ([fp32], [twin], [int8], [emulated])


def test_only_the_native_host_shows_the_spread_of_a_recipe():
    """The same subsets on each would be the same again."""
    built = {"net/static/x86": SimpleNamespace(recalibrated=("a", "b"))}
    native, limited = group_of(INT8), group_of(f"{INT8}/avx2")
    assert evaluate_stage._list_recalibrated([native, limited], built) == [(native, "a"), (native, "b")]


@pytest.mark.parametrize(
    ("error", "host", "told"),
    [
        (CaseError("no layer"), "native", "no layer"),
        (CaseError("no layer"), "avx2", "does not run on avx2: no layer"),
        (CaseSkipped("not limited"), "avx2", "not limited"),
    ],
)
def test_what_fails_on_another_host_says_on_which(error, host, told):
    """It is what shipping the artifact there would give; what is skipped is none of its faults."""
    explained = evaluate_stage._explain_failure(error, host)
    assert (str(explained), type(explained)) == (told, type(error))


class Stage(SimpleNamespace):
    """What evaluating a group is given; notes, warnings and what was asked are kept."""

    def __init__(self, *, kind="python", fleet=None, postprocess=None):
        self.notes, self.warned = [], []
        model = SimpleNamespace(
            postprocess=postprocess, outputs=("a",), reference=SimpleNamespace(kind=kind, output=None)
        )
        data = SimpleNamespace(evaluation_count=40, classes=10, shared_examples=3)
        self.prepared = SimpleNamespace(models={"net": model}, data=data, metric="metric")
        self.place = SimpleNamespace(slots=Slots(4), start_worker="start", repeat=lambda work: work())
        super().__init__(
            cache="cache", limits="limits", fleet=fleet, warn=self.warned.append,
            progress=SimpleNamespace(note=self.notes.append), report_under=lambda name: name,
            occupy_core=contextlib.nullcontext, find_place=lambda host: self.place,
            memory=SimpleNamespace(work=self.work),
        )  # fmt: skip

    def work(self, act, *, shared):
        """Memory runs out the first time."""
        assert shared is True
        act(False)
        return act(True)


def test_the_answers_of_an_emulated_cpu_are_no_score(monkeypatch, tmp_path):
    """They are those to the examples that the native answers choose; without these there is nothing to ask."""
    asked, stage = [], Stage()
    monkeypatch.setattr(evaluate_stage, "is_emulated", lambda case: True)
    monkeypatch.setattr(evaluate_stage, "emulate", lambda *given: asked.append(given))
    group = group_of(f"{INT8}/qemu:Haswell", reference=INT8)
    native = evaluate_stage.EvaluatedCase(predictions=tmp_path / "native.npz", accuracy=None, seconds=0.0)
    given = (stage, stage.prepared, "artifact", tmp_path / "file.npz", group)
    assert evaluate_stage._answer(*given, {INT8: native}) is None
    assert asked == [(*given[:3], group.first, tmp_path / "native.npz", tmp_path / "file.npz", group.name)]
    with pytest.raises(CaseSkipped, match=f"^its baseline {INT8} has no predictions$"):
        evaluate_stage._answer(*given, {})


@pytest.mark.parametrize(
    ("name", "options", "kind", "made_up", "held"),
    [
        (FP32, {}, "python", False, True),
        (INT8, {}, "python", False, False),
        (FP32, {"is_twin": True}, "python", False, False),
        (f"{FP32}/avx2", {}, "python", False, False),
        (FP32, {}, "onnx", False, False),
        (FP32, {}, "python", True, False),
    ],
    ids=["fp32", "int8", "a twin", "another host", "a file", "a made-up runtime"],
)
def test_fp32_of_this_machine_is_held_against_the_network_itself(monkeypatch, name, options, kind, made_up, held):
    """Nothing else has to be the same as that."""
    stage, compared = Stage(kind=kind), SimpleNamespace(differing=0)
    monkeypatch.setattr(evaluate_stage.registry, "load", lambda kind, name: SimpleNamespace(made_up=made_up))
    monkeypatch.setattr(evaluate_stage.as_called, "ask_network", lambda *given, **options: "answers")
    monkeypatch.setattr(evaluate_stage.as_called, "compare_predictions", lambda *given: compared)
    difference = evaluate_stage._hold_against_network(stage, stage.prepared, Path("f"), group_of(name, **options))
    assert difference is (compared if held else None)
    assert stage.warned == []


def test_fp32_that_is_not_the_network_is_warned_of(monkeypatch):
    """With how many examples differ, and by how much."""
    stage, compared = Stage(), SimpleNamespace(differing=1200, compared=5000, worst=0.25)
    monkeypatch.setattr(evaluate_stage.registry, "load", lambda kind, name: SimpleNamespace(made_up=False))
    monkeypatch.setattr(evaluate_stage.as_called, "ask_network", lambda *given, **options: "answers")
    monkeypatch.setattr(evaluate_stage.as_called, "compare_predictions", lambda *given: compared)
    evaluate_stage._hold_against_network(stage, stage.prepared, Path("f"), group_of(FP32))
    (said,) = stage.warned
    assert said.startswith(f"{FP32}: 1,200 of 5,000 evaluation examples differ from what the network itself gives, by")
    assert "up to 25.0 % of its largest output: does it decide on values" in said


@pytest.mark.parametrize("note", [None, "the copy was damaged"])
def test_where_memory_ran_out_one_process_predicts_alone(monkeypatch, note):
    """At first as many as there are places; what is noted of it stands with its name."""
    stage, slots = Stage(fleet=SimpleNamespace(name_processor=lambda host: (host, "cpu"))), []

    def predict(artifact, data, batch_size, file, **options):
        slots.append([options["slots"].take_spare() for _ in range(2)])
        assert (options["cpu"], options["start_worker"], options["host"]) == (("native", "cpu"), "start", "native")
        return predictions.Predicted(cached=False, note=note)

    monkeypatch.setattr(evaluate_stage, "predict_cached", predict)
    case = plan(INT8).case
    evaluate_stage._predict(stage, stage.prepared, "artifact", stage.prepared.data, case, Path("f"), "name")
    assert slots == [[True, True], [True, False]]
    assert stage.notes == ([] if note is None else [f"name: {note}"])


@pytest.mark.parametrize(("output", "all_judged"), [(None, True), ("boxes", False)])
def test_a_score_knows_whether_all_outputs_are_judged(monkeypatch, output, all_judged):
    """And the predictions of its fp32, where it has one; how many examples are shared with training stands with it."""
    stage, asked = Stage(), []
    stage.prepared.models["net"].reference.output = output

    def score(metric, file, base, classes, *, outputs, **options):
        asked.append((metric, file, base, classes, outputs.names, outputs.all_judged))
        return Accuracy(metric="top1", value=0.5, low=None, high=None, n=40)

    monkeypatch.setattr(evaluate_stage, "score", score)
    fp32 = evaluate_stage.EvaluatedCase(predictions=Path("fp32.npz"), accuracy=None, seconds=0.0)
    for group, base in ((group_of(INT8, reference=FP32), Path("fp32.npz")), (group_of(FP32), None)):
        accuracy = evaluate_stage._score(stage, stage.prepared, Path("f"), group, {FP32: fp32}, "name")
        assert asked.pop() == ("metric", Path("f"), base, 10, ("a",), all_judged)
        assert accuracy.shared_examples == 3
