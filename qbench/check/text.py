"""What a check found, for a terminal and for a program."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict

from qbench import formatting
from qbench.check.data_change import DataChange
from qbench.check.finding import CauseTrial, FileCheck, RuntimeCheck
from qbench.decide.names import backend_name
from qbench.foreign_text import CONTROL, join_lines

_UNWATCHED = "its kernels do not show, so what runs in int8 is not known"


def sum_up(check: FileCheck) -> str:
    """``2 faults (ONNX, 55.8 kB)``."""
    faults = sum(finding.severity == "fault" for finding in check.findings)
    first = "sound: no fault was found" if not faults else f"{faults} fault{'s' * (faults > 1)}"
    return f"{first} ({check.format}, {formatting.size(check.bytes)})"


def list_lines(check: FileCheck) -> Iterator[str]:
    """The lines of a terminal, the verdict first."""
    yield _clean(f"{check.file}: {sum_up(check)}")
    for finding in check.findings:
        yield _clean(f"{finding.severity}: {finding.text}")
        if finding.advice:
            yield _clean(f"  {finding.advice}")
    for runtime in check.runtimes:
        yield _clean(describe_runtime(runtime))
    yield from map(_clean, list_comparisons(check))


def list_comparisons(check: FileCheck) -> Iterator[str]:
    """How fast it is and what it answers beside its fp32, and on which inputs."""
    if check.race is not None:
        race = check.race
        random = check.data is None and race.sqnr_db is not None
        sqnr = f", {race.sqnr_db:.0f} dB on random inputs" if random else ""
        yield (
            f"speed: {race.ratio:.2f} [{race.low:.2f}, {race.high:.2f}] times as long as {race.opponent} on "
            f"{backend_name(race.runtime)}, {race.processes} processes{sqnr}"
        )
        yield from map(describe_trial, race.trials)
    if check.change is not None:
        yield _describe_change(check.change)
        yield from (f"assumed: {note}" for note in check.change.notes)
    if check.race is None and check.no_race:
        subject = "speed" if check.data is None else "speed and answers on the data"
        yield f"{subject}: not compared with fp32: {check.no_race}"
    if check.inputs:
        yield f"inputs: {', '.join(check.inputs)}, {'random' if check.data is None else f'of {check.data}'}"


def describe_trial(trial: CauseTrial) -> str:
    """``cause: a call has too little work (little-work): batches of 8, …: 1.31 [1.25, 1.38] times as fast``; what was
    tried without a gain that is shown, and what could not be tried, say so."""
    if trial.gain is None:
        return f"not tried: {trial.text} ({trial.cause}): {trial.reason}"
    gain = f"{formatting.with_limits(trial.gain)} times as fast"
    if trial.confirmed:
        return f"cause: {trial.title} ({trial.cause}). {trial.text[0].upper()}{trial.text[1:]}: {gain}"
    return f"tried, no gain shown: {trial.text} ({trial.cause}): {gain}"


def _describe_change(change: DataChange) -> str:
    """``data: 64 examples: 31 dB from its own fp32, 1 gets another class, 60 right (its own fp32: 61)``."""
    parts = [f"{change.sqnr_db:.0f} dB from {change.opponent}"]
    if change.flips is not None:
        parts.append(f"{change.flips} get{'s' * (change.flips == 1)} another class")
    if change.right is not None:
        own, expected = change.right
        parts.append(f"{own} right ({change.opponent}: {expected})")
    return f"data: {change.examples} examples: {', '.join(parts)}"


def describe_runtime(runtime: RuntimeCheck) -> str:
    """``ONNX Runtime 1.32.0: 7.1 ms a call, 100 % of its multiply-accumulates in int8; of its time …``."""
    name = " ".join(filter(None, (backend_name(runtime.runtime), runtime.version)))
    if runtime.refused is not None:
        return f"{name}: {'is not installed' if runtime.version is None else 'does not run it'}"
    share = runtime.int8_share
    covered = "" if share is None else f", {formatting.share(share, 0)} of its multiply-accumulates in int8"
    if runtime.peak_share is not None:
        covered += f", {formatting.share(runtime.peak_share, 0)} of the core's peak"
    total = sum(runtime.seconds.values())
    parts = [
        f"{kind} {formatting.share(seconds / total, 0)}"
        for kind, seconds in runtime.seconds.items()
        if seconds >= 0.005 * total > 0
    ]
    time = "" if runtime.call_seconds is None else f"{formatting.duration(runtime.call_seconds)} a call"
    work = f"of its time {', '.join(parts)}" if parts else f"{', '.join(runtime.seconds)}, too short to be timed"
    return f"{name}: {time}{covered}; {work if runtime.seconds else _UNWATCHED}"


def _clean(text: str) -> str:
    """One line, whatever names of the file stand in it."""
    return CONTROL.sub("�", join_lines(text))


def as_json(check: FileCheck) -> str:
    """The same for a program; shares and times of each runtime, its layers with their formats."""
    data = asdict(check)
    for facts, runtime in zip(data["runtimes"], check.runtimes, strict=True):
        share = runtime.int8_share
        facts["int8_share"] = None if share is None or math.isnan(share) else share
        facts |= {"seconds": runtime.seconds, "call_seconds": runtime.call_seconds}
        facts["nodes"] = facts.pop("profile")["nodes"] if runtime.profile is not None else facts.pop("profile") or []
    return json.dumps({**data, "sound": check.sound}, indent=2) + "\n"
