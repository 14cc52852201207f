"""How a file does beside its fp32: a race, answers on examples, and the layer that begins a difference."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from qbench.backends.base import Inputs
from qbench.check import data_change, float_form, race, runtimes, tried_causes
from qbench.check.budget import Budget
from qbench.check.data_change import DataChange, LayerLoss
from qbench.check.examples import Examples
from qbench.check.finding import CauseTrial, Finding, Race, RuntimeCheck
from qbench.check.race import Arm, Lap
from qbench.check.tried_causes import Candidate, Subject
from qbench.errors import BuildError, CaseError, QbenchError
from qbench.process.child_process import call
from qbench.quant.artifacts.onnx_file import DeclaredInput
from qbench.stats import intervals

GOOD_DB = 10.0  # below, the float form and the file are not the same network
_FEW_FLIPS = 0.01  # of the examples: up to so many may get another class


@dataclass(frozen=True, kw_only=True)
class Contest:
    """What of a check does not change: the file, its fp32 where one is named, ``threads``, ``seconds`` of a lap, and
    the time that all of it has."""

    file: Path
    against: Path | None
    threads: int
    seconds: float
    budget: Budget


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What a file is beside its fp32; ``no_race``: why it was not compared."""

    race: Race | None = None
    no_race: str | None = None
    change: DataChange | None = None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Opponent:
    """The fp32 that a file is held against, ``name`` for a person; ``own``: made from the file itself, so that tensors
    are called alike."""

    file: Path
    name: str
    own: bool = False


@contextlib.contextmanager
def open_opponent(contest: Contest, model: Any) -> Iterator[Opponent | str]:
    """The fp32 that is named, or that is made of a ``ModelProto`` and lives as long as this; a text says why there is
    none."""
    if contest.against is not None:
        yield Opponent(file=contest.against, name=str(contest.against))
        return
    with TemporaryDirectory(prefix="qbench-check-") as folder:
        file = Path(folder) / "float.onnx"
        try:
            float_form.write_float(model, file)
        except (BuildError, ValueError, KeyError, IndexError) as error:
            yield f"no fp32 could be made from it ({error}): name one with --against"
        else:
            yield Opponent(file=file, name="its own fp32", own=True)


def race_onnx(
    contest: Contest,
    opponent: Opponent,
    model: Any,
    declared: Sequence[DeclaredInput],
    check: RuntimeCheck,
    inputs: Inputs,
    examples: Examples | None,
) -> Beside:
    """The race with an fp32, in which causes are tried as well; ``check``: what the runtime made of the file."""
    with TemporaryDirectory(prefix="qbench-check-") as folder:
        subject = Subject(
            file=contest.file,
            model=model,
            declared=declared,
            inputs=inputs,
            threads=contest.threads,
            check=check,
            fp32=opponent.file,
        )
        candidates = tried_causes.find_candidates(subject, Path(folder), contest.budget)
        beside = race_files(contest, opponent, check.runtime, inputs, examples, candidates)
    if beside.race is None and opponent.own:
        why = f"the fp32 that was made from it does not run ({beside.no_race}): name one with --against"
        return Beside(no_race=why)
    return beside


def race_files(
    contest: Contest,
    opponent: Opponent,
    backend: str,
    inputs: Inputs,
    examples: Examples | None,
    candidates: Sequence[Candidate] = (),
) -> Beside:
    """The race with an fp32 file, and what both answer on ``examples``."""
    try:
        laps = _run_laps(contest, opponent, backend, inputs, candidates)
    except (CaseError, QbenchError) as error:
        if any(candidate.arm is not None for candidate in candidates):  # one of them may end a process
            failed = [replace(each, arm=None, reason="its process ended early") for each in candidates if each.arm]
            return race_files(contest, opponent, backend, inputs, examples, failed)
        return Beside(no_race=runtimes.explain_refusal(str(error))[0])
    raced = race.combine(laps, backend, opponent.name, _conclude(candidates, laps))
    if examples is None:
        return Beside(race=raced, findings=tuple(_judge_random(laps, opponent.name)))
    try:
        change, findings = _compare_on_data(contest, opponent, backend, inputs, examples)
    except (CaseError, QbenchError) as error:  # the race is known all the same
        text = f"its answers on the data could not be compared: {runtimes.explain_refusal(str(error))[0]}"
        failure = Finding(severity="warning", code="no-answers", text=text, advice="name fewer or smaller examples")
        return Beside(race=raced, findings=(failure,))
    return Beside(race=raced, change=change, findings=tuple(findings))


def _run_laps(
    contest: Contest, opponent: Opponent, backend: str, inputs: Inputs, candidates: Sequence[Candidate]
) -> list[Lap]:
    """What each process saw."""
    files = (contest.file, opponent.file)
    arms = [Arm(file=file, inputs=inputs, threads=contest.threads) for file in files]
    arms += [candidate.arm for candidate in candidates if candidate.arm is not None]
    laps: list[Lap] = []
    begun = time.monotonic()
    while race.goes_on(len(laps), time.monotonic() - begun):
        laps.append(call(race.race_here, backend, arms, contest.seconds, limits=contest.budget.limits))
    return laps


def _conclude(candidates: Sequence[Candidate], laps: Sequence[Lap]) -> list[CauseTrial]:
    """What came of each cause, the one that gains most first, those that were not tried last."""
    tried = [candidate for candidate in candidates if candidate.arm is not None]
    trials = [candidate.conclude(reason=candidate.reason) for candidate in candidates if candidate.arm is None]
    for place, candidate in enumerate(tried):
        gain = race.combine_gains(laps, place, len(tried))
        trials.append(candidate.conclude(**({"reason": gain} if isinstance(gain, str) else {"gain": gain})))
    return sorted(trials, key=lambda trial: math.inf if trial.gain is None else -trial.gain.value)


def _judge_random(laps: Sequence[Lap], name: str) -> Iterator[Finding]:
    """What answers to random inputs say."""
    if any(lap.broken for lap in laps):
        yield Finding(
            severity="fault",
            code="not-finite",
            text=f"on random inputs it gives values that are no finite numbers, and {name} does not",
            advice="look for a scale of 0, and for an attention mask of -inf that was quantized",
        )
    elif (decibels := laps[0].sqnr_db) is not None and decibels < GOOD_DB:
        output = data_change.name_output(laps[0].outputs)
        yield Finding(
            severity="warning",
            code="far-from-fp32",
            text=f"on random inputs {output} is {decibels:.1f} dB from that of {name}",
            advice="random inputs are no data: --data says what it is on yours",
        )


def _compare_on_data(
    contest: Contest, opponent: Opponent, backend: str, inputs: Inputs, examples: Examples
) -> tuple[DataChange, list[Finding]]:
    """What the file answers on examples beside its fp32, and where it is another answer, which layer begins it."""
    batch = len(inputs[0])
    answers = [
        call(data_change.answer_here, backend, path, examples, batch, contest.threads, limits=contest.budget.limits)
        for path in (contest.file, opponent.file)
    ]
    change = data_change.compare_answers(answers[0], answers[1], examples, opponent.name)
    flips = None if change.flips is None else intervals.clopper_pearson(change.flips, change.examples)
    far = change.sqnr_db < GOOD_DB
    if not far and (flips is None or (flips.low or 0.0) <= _FEW_FLIPS):
        return change, []
    begin = _find_begin(contest, opponent.file, examples, batch) if opponent.own else None
    words = "" if begin is None else f"; {_describe_begin(begin)}"
    output = data_change.name_output(change.outputs)
    text = f"on {change.examples} examples {output} is {change.sqnr_db:.1f} dB from that of {opponent.name}"
    if change.flips is not None:
        text += f", and {change.flips} get another class"
    return change, [
        Finding(
            severity="fault" if far else "warning",
            code="far-on-data" if far else "flips-on-data",
            text=text + words,
            advice=_advise(begin),
            layers=() if begin is None else (begin.layer,),
        )
    ]


def _describe_begin(begin: LayerLoss) -> str:
    if begin.operator == data_change.INPUT:
        return f"most of it begins at the input {begin.layer}: in its range of bytes it is {begin.behind_db:.0f} dB"
    where = f"{begin.layer} ({begin.operator})"
    return f"most of it begins at {where}: {begin.before_db:.0f} dB before, {begin.behind_db:.0f} dB behind"


def _advise(begin: LayerLoss | None) -> str:
    if begin is None:
        return "calibrate on examples like these; a suite names the layers that lose most (evaluate: {layers: true})"
    if begin.operator == data_change.INPUT:
        return "calibrate on inputs like these, scaled as these are"
    return "keep that layer in float, or calibrate with other ranges (percentile, mse)"


def _find_begin(contest: Contest, opponent: Path, examples: Examples, batch: int) -> LayerLoss | None:
    try:
        arguments = (contest.file, opponent, examples, batch, contest.threads)
        loss: LayerLoss | None = call(data_change.find_begin_here, *arguments, limits=contest.budget.limits)
    except (CaseError, QbenchError):  # with all of its tensors given out, it may need more than there is
        return None
    return loss
