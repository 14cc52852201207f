"""What a run builds and evaluates beside the cases: the same variants with other calibration subsets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qbench import evaluate, run, run_build, run_evaluate, suite
from qbench.build import Artifact
from qbench.errors import BuildError, EvaluateError
from qbench.live import Silent
from qbench.quant.recipe import Recipe
from qbench.record import Accuracy, CalibrationLuck

NETWORKS = Path(__file__).parent / "networks.py"
TEXT = f"""
suite: small
models: [{{name: mine, source: {{python: "{NETWORKS}:perceptron"}}}}]
data: {{dataset: {{npz: data.npz}}, calibrate: {{samples: 32, seed: 4, seeds: 3}}}}
matrix: {{modes: [fp32, dynamic, static], backends: [fake]}}
"""
STATIC = "mine/static/fake"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A suite whose runs end before anything is timed: ``folder.states`` has what they knew then."""
    rng = np.random.default_rng(0)
    arrays = {"train_inputs": rng.random((64, 1, 8, 8), dtype=np.float32), "train_labels": np.arange(64) % 10}
    arrays |= {"test_inputs": rng.random((40, 1, 8, 8), dtype=np.float32), "test_labels": np.arange(40) % 10}
    np.savez(tmp_path / "data.npz", **arrays)
    (tmp_path / "s.yaml").write_text(TEXT)
    return tmp_path


@pytest.fixture
def go(folder, monkeypatch):
    """Runs the suite with overrides up to the measuring; what is known then."""
    states = []
    monkeypatch.setattr(run, "_measure", states.append)

    def go(*overrides):
        read = suite.read(folder / "s.yaml", list(overrides))
        run.run(read, out=folder / "reports", only=None, resume=None, jobs=1, progress=Noted())
        return states[-1]

    return go


class Noted(Silent):
    """A progress that keeps its notes."""

    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


class Stage:
    """Stands for building, evaluating and scoring; keeps what it was asked for and fails where it is told to."""

    def __init__(self, monkeypatch, *, no_build=(), no_prediction=()):
        self.built, self.no_build, self.no_prediction = [], no_build, no_prediction
        monkeypatch.setattr(run_build, "build", self.build)
        monkeypatch.setattr(run_evaluate, "predicted", self.predict)
        monkeypatch.setattr(run_evaluate, "score", self.score)

    def build(self, variant, *, data, **others):
        self.built.append((variant.mode, data.calibration_seed))
        if self.built[-1] in self.no_build:
            raise BuildError("no int8 today")
        return Artifact(
            mode=variant.mode, backend="fake", file=Path("x"), format="fake", key=data.calibration_digest, sha256="s",
            size_bytes=1, layers=(), recipe=Recipe(), fixed_batch=None, expected="e", fresh=True,
        )  # fmt: skip

    def predict(self, artifact, data, batch_size, file, **others):
        assert artifact.key == data.calibration_digest
        if (artifact.mode, data.calibration_seed) in self.no_prediction:
            raise EvaluateError("gave NaN")
        np.savez(file, seed=data.calibration_seed)
        return evaluate.Predicted(cached=False)

    def score(self, metric, file, base, classes, **others):
        with np.load(file) as stored:
            return Accuracy(metric=metric, value=stored["seed"] / 10, low=None, high=None, n=40)


def test_a_static_variant_is_scored_with_each_calibration_subset(go, monkeypatch):
    """Three seeds: three builds and scores of static, the first one shipped; fp32 and dynamic know no calibration."""
    stage = Stage(monkeypatch)
    state = go()
    assert stage.built == [("fp32", 4), ("dynamic", 4), ("static", 4), ("static", 5), ("static", 6)]
    found = state.accuracy[f"{STATIC}/t1/b1"]
    assert (found.value, found.shared_examples) == (0.4, 0)
    assert found.calibration == CalibrationLuck(
        seeds=(4, 5, 6),
        values=(0.4, 0.5, 0.6),
        predictions=tuple(f"predictions/mine__static__fake{seed}.npz" for seed in ("", "__seed5", "__seed6")),
        reasons=(None, None, None),
    )
    for file, seed in zip(found.calibration.predictions, found.calibration.seeds, strict=True):
        assert np.load(state.folder.path / file)["seed"] == seed
    assert state.ledger.artifacts[STATIC].key == state.examples.calibration_digest
    assert [state.accuracy[f"mine/{mode}/fake/t1/b1"].calibration for mode in ("fp32", "dynamic")] == [None, None]
    assert "calibrations" in state.elapsed_of(state.plan.cases[-1].case)


@pytest.mark.parametrize(
    ("faults", "words"),
    [({"no_build": [("static", 5)]}, "no int8 today"), ({"no_prediction": [("static", 5)]}, "gave NaN")],
)
def test_a_subset_that_fails_breaks_no_case(go, monkeypatch, faults, words):
    """Its value is null with the reason, which is told; the case and the other seeds have theirs."""
    Stage(monkeypatch, **faults)
    state = go()
    luck = state.accuracy[f"{STATIC}/t1/b1"].calibration
    assert luck.values == (0.4, None, 0.6)
    assert luck.reasons == (None, words, None)
    assert luck.predictions[1] is None
    assert [words in note and "calibration seed 5" in note for note in state.progress.notes] == [True]
    assert len(state.ledger.open_cases()) == 3


def test_an_interrupt_says_nothing_of_what_it_ended(go, monkeypatch):
    """Once the user interrupts, children that end have not failed; before, what is lacking is told."""
    Stage(monkeypatch)
    state = go("data.calibrate.seeds=1")
    state.lacks("mine (calibration seed 5)", "not built: ended")
    state.ledger.stopping = True
    state.lacks("mine (calibration seed 6)", "not built: ended")
    assert state.progress.notes == ["mine (calibration seed 5): not built: ended"]


def test_a_variant_that_fails_has_no_luck(go, monkeypatch):
    """What is not built with its own subset is not built with others either."""
    stage = Stage(monkeypatch, no_build=[("static", 4)])
    state = go()
    assert ("static", 5) not in stage.built
    assert f"{STATIC}/t1/b1" not in state.accuracy
    assert {one.case.mode: one.status for one in state.folder.records()} == {"static": "failed"}


def test_one_seed_is_no_luck(go, monkeypatch):
    """Without `calibrate.seeds` nothing is built twice, and the record says null."""
    stage = Stage(monkeypatch)
    state = go("data.calibrate.seeds=1")
    assert len(stage.built) == 3
    assert state.accuracy[f"{STATIC}/t1/b1"].calibration is None


def test_a_warm_cache_evaluates_nothing_again(go, monkeypatch):
    """The second run of a suite has the same predictions and evaluates none; other examples are evaluated."""
    real, evaluated = evaluate.predict, []

    def counted(artifact, *rest, **options):
        evaluated.append(artifact.mode)
        real(artifact, *rest, **options)

    monkeypatch.setattr(evaluate, "predict", counted)
    first, again = go(), go()
    assert sorted(evaluated) == ["dynamic", "fp32", "static", "static", "static"]
    assert again.accuracy == first.accuracy
    names = [state.accuracy[f"{STATIC}/t1/b1"].calibration.predictions for state in (first, again)]
    for one, other in zip(*names, strict=True):
        assert (first.folder.path / one).read_bytes() == (again.folder.path / other).read_bytes()
    go("data.evaluate.samples=30")
    assert len(evaluated) == 10
