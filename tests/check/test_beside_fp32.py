"""Rules of qbench/check/beside_fp32.py: what a race and answers say of a file, without a process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from qbench.check import beside_fp32, data_change
from qbench.check.beside_fp32 import Contest, Opponent, race_files, race_onnx
from qbench.check.budget import open_budget
from qbench.check.data_change import INPUT, LayerLoss
from qbench.check.examples import Examples
from qbench.check.race import Arm, Lap
from qbench.check.tried_causes import Candidate
from qbench.errors import BuildError, CaseError, WorkerError
from qbench.explain.causes.base import Counterfactual
from qbench.explain.change import Change
from qbench.stats.interval_type import Interval

BUDGET = open_budget(Path("int8.onnx"), lambda: 0.0)
CONTEST = Contest(file=Path("int8.onnx"), against=None, threads=1, seconds=0.1, budget=BUDGET)
OPPONENT = Opponent(file=Path("fp32.onnx"), name="its own fp32", own=True)
INPUTS = (np.ones((1, 3), np.float32),)
LAP = Lap(ratio=0.5, sqnr_db=30.0, broken=False)


def candidate(cause: str, reason: str | None = None) -> Candidate:
    """A cause to try, or why not."""
    told = Counterfactual(cause=cause, text=cause, change=Change())
    arm = Arm(file=Path(f"{cause}.onnx"), inputs=INPUTS, threads=1) if reason is None else None
    return Candidate(counterfactual=told, title=cause, arm=arm, reason=reason)


@pytest.fixture
def laps(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What each process saw, or raises; the last one again and again."""
    given: list[Any] = []

    def call(function: Any, backend: str, arms: list[Arm], seconds: float, *, limits: Any) -> Lap:
        lap = given.pop(0) if len(given) > 1 else given[0]
        if isinstance(lap, Exception):
            raise lap
        assert [arm.file for arm in arms[:2]] == [CONTEST.file, OPPONENT.file]
        assert all(isinstance(arm, Arm) and arm.threads == CONTEST.threads for arm in arms)
        assert (seconds, limits) == (CONTEST.seconds, CONTEST.budget.limits)
        return replace(lap, gains=lap.gains[: len(arms) - 2])

    monkeypatch.setattr(beside_fp32, "call", call)
    return given


@pytest.mark.parametrize(
    ("lap", "code", "words"),
    [
        (LAP, None, ""),
        (replace(LAP, sqnr_db=10.0), None, ""),
        (replace(LAP, sqnr_db=None), None, ""),
        (replace(LAP, sqnr_db=9.99), "far-from-fp32", "its output is 10.0 dB from that of its own fp32"),
        (replace(LAP, sqnr_db=-3.0, outputs=3), "far-from-fp32", "the worst of its 3 outputs is -3.0 dB"),
        (replace(LAP, sqnr_db=5.0, broken=True), "not-finite", "no finite numbers, and its own fp32 does not"),
    ],
)
def test_answers_to_random_inputs_warn(laps: list[Any], lap: Lap, code: str | None, words: str) -> None:
    """Where they are far from fp32's, and are a fault where they are no numbers."""
    laps += [lap]
    beside = race_files(CONTEST, OPPONENT, "fake", INPUTS, None)
    assert [finding.code for finding in beside.findings] == ([] if code is None else [code])
    assert all(words in finding.text for finding in beside.findings)
    assert [finding.severity for finding in beside.findings] == ["fault" if lap.broken else "warning"] * (
        code is not None
    )
    assert beside.race is not None
    assert (beside.race.ratio, beside.race.processes) == (pytest.approx(0.5), 5)


def test_the_distance_is_that_of_the_first_process(laps: list[Any]) -> None:
    """Each has the same inputs; values that are no numbers count in whichever they are seen."""
    laps += [replace(LAP, sqnr_db=5.0), LAP]
    (far,) = race_files(CONTEST, OPPONENT, "fake", INPUTS, None).findings
    assert "is 5.0 dB from" in far.text
    laps[:] = [LAP, replace(LAP, broken=True)]
    assert [each.code for each in race_files(CONTEST, OPPONENT, "fake", INPUTS, None).findings] == ["not-finite"]


def test_causes_are_told_by_their_gain(laps: list[Any]) -> None:
    """The one that gains most first; those without a gain behind what gains."""
    laps += [replace(LAP, gains=(1.1, 1.3, "no kernel"))]
    tried = [candidate("some"), candidate("untried", "no data"), candidate("most"), candidate("refused")]
    beside = race_files(CONTEST, OPPONENT, "fake", INPUTS, None, tried)
    assert beside.race is not None
    trials = [(trial.cause, trial.reason) for trial in beside.race.trials]
    assert trials == [("most", None), ("some", None), ("untried", "no data"), ("refused", "no kernel")]
    assert [trial.gain and trial.gain.value for trial in beside.race.trials][:2] == [
        pytest.approx(1.3), pytest.approx(1.1),
    ]  # fmt: skip


def test_a_cause_that_ends_the_process_does_not_end_the_race(laps: list[Any]) -> None:
    """It is run again without any, and each says why it was not tried; without one the race has a reason."""
    laps += [WorkerError("the process was ended by SIGSEGV"), LAP]
    beside = race_files(CONTEST, OPPONENT, "fake", INPUTS, None, [candidate("crash"), candidate("untried", "no data")])
    assert beside.race is not None
    assert {trial.cause: trial.reason for trial in beside.race.trials} == {"crash": "its process ended early"}
    laps[:] = [WorkerError("Unsupported model IR version: 99, max supported IR version: 14")]
    beside = race_files(CONTEST, OPPONENT, "fake", INPUTS, None)
    assert (beside.race, beside.no_race) == (None, "the file has IR version 99, and this release reads up to 14")


@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        ("no examples fit", "no examples fit"),
        (
            "Unsupported model IR version: 99, max supported IR version: 14",
            "the file has IR version 99, and this release reads up to 14",
        ),
    ],
)
def test_answers_that_cannot_be_had_are_a_warning_beside_the_race(
    laps: list[Any], monkeypatch: pytest.MonkeyPatch, words: str, meaning: str
) -> None:
    """In words that a person understands, where there are such."""
    laps.append(LAP)
    monkeypatch.setattr(beside_fp32, "_compare_on_data", Mock(side_effect=CaseError(words)))
    examples = Examples(inputs=INPUTS, labels=None)
    beside = race_files(CONTEST, OPPONENT, "fake", INPUTS, examples)
    (finding,) = beside.findings
    assert (beside.race is None, finding.code) == (False, "no-answers")
    assert finding.text == f"its answers on the data could not be compared: {meaning}"


@pytest.mark.parametrize(("own", "is_advised"), [(True, True), (False, False)])
def test_an_fp32_of_its_own_that_does_not_run_asks_for_another(
    laps: list[Any], monkeypatch: pytest.MonkeyPatch, own: bool, is_advised: bool
) -> None:
    """One that was named is told as it is."""
    laps += [CaseError("out of memory")]
    monkeypatch.setattr(beside_fp32.tried_causes, "find_candidates", lambda *_: ())
    check: Any = SimpleNamespace(runtime="fake")
    beside = race_onnx(CONTEST, replace(OPPONENT, own=own), None, (), check, INPUTS, None)
    assert beside.no_race is not None
    assert ("name one with --against" in beside.no_race) == is_advised
    assert "out of memory" in beside.no_race


def test_an_fp32_is_the_one_that_is_named_or_made_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as it is needed; where none can be made, that is said."""
    with beside_fp32.open_opponent(replace(CONTEST, against=Path("named.onnx")), None) as opponent:
        assert opponent == Opponent(file=Path("named.onnx"), name="named.onnx", own=False)
    monkeypatch.setattr(beside_fp32.float_form, "write_float", lambda model, file: file.write_text("made"))
    with beside_fp32.open_opponent(CONTEST, None) as opponent:
        assert isinstance(opponent, Opponent)
        assert (opponent.file.read_text(), opponent.name, opponent.own) == ("made", "its own fp32", True)
    assert not opponent.file.exists()

    def refuse(model: Any, file: Path) -> None:
        raise BuildError("QAttention has no float form here")

    monkeypatch.setattr(beside_fp32.float_form, "write_float", refuse)
    with beside_fp32.open_opponent(CONTEST, None) as opponent:
        assert opponent == (
            "no fp32 could be made from it (QAttention has no float form here): name one with --against"
        )


def answer_otherwise(count: int, *, by: float) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Answers of two classes to 64 examples, of which so many choose the other one."""
    expected = np.tile(np.array([1.0, 1.0 + by], np.float32), (64, 1))
    own = expected.copy()
    own[:count] = own[:count, ::-1]
    return [own], [expected]


@pytest.mark.parametrize(
    ("count", "by", "code"),
    [(3, 1e-3, None), (4, 1e-3, "flips-on-data"), (0, 1e-3, None), (64, 100.0, "far-on-data")],
)
@pytest.mark.parametrize("own", [True, False])
def test_answers_on_data_are_told_where_more_than_a_hundredth_is_shown_to_change(
    laps: list[Any], monkeypatch: pytest.MonkeyPatch, count: int, by: float, code: str | None, own: bool
) -> None:
    """A fault where they are far; the layer that begins it is looked for in the file's own fp32."""
    begun: list[Path] = []
    examples = Examples(inputs=(np.zeros((64, 3), np.float32),), labels=None)
    answers = iter(answer_otherwise(count, by=by))
    monkeypatch.setattr(beside_fp32, "_run_laps", lambda *_: [LAP] * 3)
    monkeypatch.setattr(beside_fp32, "call", lambda function, *_, limits: next(answers))
    monkeypatch.setattr(
        beside_fp32,
        "_find_begin",
        lambda contest, file, *_: (
            begun.append(file) or LayerLoss(layer="conv1", operator="Conv", before_db=40.0, behind_db=12.0)
        ),
    )
    beside = race_files(CONTEST, replace(OPPONENT, own=own), "fake", INPUTS, examples)
    assert beside.change is not None
    assert beside.change.flips == count
    assert [finding.code for finding in beside.findings] == ([] if code is None else [code])
    assert begun == [OPPONENT.file] * (own and code is not None)
    for finding in beside.findings:
        assert finding.severity == ("fault" if code == "far-on-data" else "warning")
        assert finding.text.startswith("on 64 examples its output is ")
        assert f", and {count} get another class" in finding.text
        assert ("begins at conv1 (Conv): 40 dB before, 12 dB behind" in finding.text) == own
        assert finding.layers == (("conv1",) if own else ())


def test_each_beginning_has_its_advice() -> None:
    """Of an input, of a layer, of none that is known."""
    entry = LayerLoss(layer="x", operator=INPUT, before_db=100.0, behind_db=8.0)
    layer = replace(entry, layer="conv1", operator="Conv", before_db=40.0)
    assert beside_fp32._describe_begin(entry).endswith("at the input x: in its range of bytes it is 8 dB")
    advice = [beside_fp32._advise(each) for each in (None, entry, layer)]
    assert [each.split()[0] for each in advice] == ["calibrate", "calibrate", "keep"]
    assert "on inputs like these" in advice[1]
    assert data_change.INPUT == "input"


def test_a_beginning_that_cannot_be_looked_for_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all of its tensors given out a file may need more memory than there is."""

    def fail(*_: Any, **__: Any) -> Any:
        raise CaseError("out of memory")

    monkeypatch.setattr(beside_fp32, "call", fail)
    examples = Examples(inputs=INPUTS, labels=None)
    assert beside_fp32._find_begin(CONTEST, OPPONENT.file, examples, 1) is None


@pytest.mark.parametrize(("low", "codes"), [(0.01, []), (0.0101, ["flips-on-data"]), (None, [])])
def test_a_hundredth_of_the_examples_may_get_another_class(
    monkeypatch: pytest.MonkeyPatch, low: float | None, codes: list[str]
) -> None:
    """By the lower limit of how many that are."""
    examples = Examples(inputs=(np.zeros((64, 3), np.float32),), labels=None)
    answers = iter(answer_otherwise(1, by=1e-3))
    monkeypatch.setattr(beside_fp32, "_run_laps", lambda *_: [LAP] * 3)
    monkeypatch.setattr(beside_fp32, "call", lambda function, *_, limits: next(answers))
    monkeypatch.setattr(beside_fp32.intervals, "clopper_pearson", lambda count, of: Interval(value=0.02, low=low))
    beside = race_files(CONTEST, replace(OPPONENT, own=False), "fake", INPUTS, examples)
    assert [finding.code for finding in beside.findings] == codes


def test_a_beginning_is_looked_for_within_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own, with the files and examples of the contest."""
    loss = LayerLoss(layer="conv1", operator="Conv", before_db=40.0, behind_db=12.0)
    asked: list[Any] = []
    monkeypatch.setattr(beside_fp32, "call", lambda *words, limits: asked.append((words, limits)) or loss)
    examples = Examples(inputs=INPUTS, labels=None)
    assert beside_fp32._find_begin(CONTEST, OPPONENT.file, examples, 4) == loss
    words = (data_change.find_begin_here, CONTEST.file, OPPONENT.file, examples, 4, CONTEST.threads)
    assert asked == [(words, BUDGET.limits)]
