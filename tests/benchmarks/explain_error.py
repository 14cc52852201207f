"""How often ``qbench explain`` names the cause that was planted first, and how often one that is not there.

    python tests/benchmarks/explain_error.py FOLDER [--only GLOB,GLOB] [--seconds 2]

Each network of ``planted_networks.py`` is built and measured by ``qbench run`` in FOLDER, its case then explained, in
a process that has its variables. Then the case, the same without each planted cause, and with each change that was
confirmed, are measured again (``explain_truth.py``). Networks that are done are read from FOLDER. A network is `ok`
where the planted cause that costs most by that second measurement is named first. Causes without effect (``NULLS``)
are tried beside the others each time: how often one is confirmed is how often a cause is that is not there; so is any
other cause, not planted, whose effect the second measurement does not show.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from explain_truth import CHANGES, TRUTH, keep_changes, measure_truth
from planted_networks import PLANTED, Planted
from scipy.stats import beta

from qbench import registry
from qbench.explain import json_text, story
from qbench.explain.causes.base import Cause, Concern, Counterfactual, Situation
from qbench.explain.change import Change
from qbench.files.atomic import write_text
from qbench.progress.live import Silent
from qbench.record.locate import find_run
from qbench.record.stored_run import read_run

ADDED = 0.1  # how far the shares may be from the whole gap


@dataclass(frozen=True, kw_only=True)
class Variable(Cause):
    """A variable that changes nothing."""

    name: str  # type: ignore[misc]  # of an instance here
    variable: str
    value: str
    title = "a variable that changes nothing"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """Always."""
        return (self.counterfactual(f"with {self.variable} set", Change(environment={self.variable: self.value})),)


class OtherRanges(Cause):
    """Another calibrator: other scales, the same operations."""

    name = "null-ranges"
    title = "the ranges are those of this calibrator"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """Of a static case."""
        if situation.case.variant.mode != "static":
            return ()
        name = "mse" if situation.case.variant.recipe.calibrator == "minmax" else "minmax"
        return (self.counterfactual(f"calibrated by {name}", Change(recipe={"calibrator": name})),)


NULL_SHORT = Variable(name="null-short", variable="QBENCH_READ_BY_NOBODY", value="1")
NULL_LONG = Variable(name="null-long", variable="QBENCH_READ_BY_NOBODY_TOO", value="x" * 200)
NULL_ZONE = Variable(name="null-zone", variable="TZ", value="UTC")
NULL_RANGES = OtherRanges()
NULLS = {each.name: f"explain_error:{place}" for place, each in (
    ("NULL_SHORT", NULL_SHORT), ("NULL_LONG", NULL_LONG), ("NULL_ZONE", NULL_ZONE), ("NULL_RANGES", NULL_RANGES)
)}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Score:
    """What one network gives. ``first``: a planted cause is named first, ``largest``: the one that costs most;
    ``missed``: planted ones with an effect that are not named; ``hidden``: those that a larger one hides. ``tries``
    and ``hits`` of causes without effect; ``others``: confirmed and not planted, ``idle``: of these those without an
    effect. ``total``: the shares with what is left, measured again (1: the gap). ``inside``: second gains within the
    limits of the first, ``overlap``: whose limits overlap with those, of ``gains``."""

    first: bool
    largest: bool
    missed: tuple[str, ...]
    hidden: tuple[str, ...]
    tries: int
    hits: tuple[str, ...]
    others: tuple[str, ...]
    idle: tuple[str, ...]
    total: float | None
    gains: int
    inside: int
    overlap: int


def explain_planted(planted: Planted, folder: Path, seconds: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """The explanation of a planted network as JSON, and what its causes cost; each made in a process of its own, the
    first with its variables."""
    here = folder / planted.name
    variables: dict[str, dict[str, str]] = {"--one": planted.environment, "--truth": {}}
    for step, file in (("--one", "explained.json"), ("--truth", TRUTH)):
        if not (here / file).is_file():
            planted.write(here)
            command = [sys.executable, __file__, str(folder), step, planted.name, "--seconds", str(seconds)]
            subprocess.run(command, check=True, env={**os.environ, **variables[step]}, stdout=subprocess.DEVNULL)
    explained, truth = (json.loads((here / file).read_text(encoding="utf-8")) for file in ("explained.json", TRUTH))
    return explained["time"], truth


def explain_here(planted: Planted, folder: Path, seconds: float) -> None:
    """Runs a planted network's suite and writes its explanation."""
    os.chdir(folder / planted.name)
    subprocess.run([sys.executable, "-m", "qbench", "run", "planted.yaml", "--quiet"], check=True)
    registry.BUILT_IN["cause"].update(NULLS)
    run = read_run(find_run("planted"))
    (case,) = [record.case.id for record in run.records if record.case.mode == planted.mode]
    concerns: tuple[Concern, ...] = ("time",)
    explained = story.explain_case(
        run, case, concerns=concerns, suite_file=None, progress=Silent(), max_seconds=seconds
    )
    assert explained.time is not None
    keep_changes(explained.time.explanation, Path(CHANGES))
    write_text(Path("explained.json"), json_text.as_json(explained))


def score(planted: Planted, explained: dict[str, Any], truth: dict[str, Any]) -> Score:
    """What an explanation is worth."""
    causes, alone = explained["causes"], explained["hidden"]
    names = [cause["cause"] for cause in causes]
    shown = {*names, *(cause["cause"] for cause in alone)}
    tried = {cause["cause"] for cause in (*causes, *alone, *explained["unconfirmed"])}
    again = [*zip(causes, truth["steps"], strict=True), *zip(alone, truth["hidden"], strict=True)]
    others = [(cause, gain) for cause, gain in again if cause["cause"] not in planted.causes]
    return Score(
        first=bool(names) and names[0] in planted.causes,
        largest=bool(names) and names[0] in find_largest(truth["alone"]),
        missed=tuple(cause for cause in planted.causes if cause not in shown and has_effect(cause, truth)),
        hidden=tuple(cause for cause in planted.causes if is_hidden(cause, truth)),
        tries=len(tried & set(NULLS)),
        hits=tuple(sorted(shown & set(NULLS))),
        others=tuple(cause["cause"] for cause, _ in others),
        idle=tuple(cause["cause"] for cause, gain in others if gain is not None and gain[1] <= 1.0),
        total=add_shares(explained, truth),
        gains=len(again),
        inside=sum(
            gain is not None and cause["gain"]["low"] <= gain[0] <= cause["gain"]["high"] for cause, gain in again
        ),
        overlap=sum(
            gain is not None and cause["gain"]["low"] <= gain[2] and gain[1] <= cause["gain"]["high"]
            for cause, gain in again
        ),
    )


def find_largest(gains: dict[str, list[float] | None]) -> set[str]:
    """The planted causes that cost most when taken away alone: several where their limits overlap."""
    known = {cause: gain for cause, gain in gains.items() if gain is not None}
    least = max(known.values(), key=lambda gain: gain[0])[1]
    return {cause for cause, gain in known.items() if gain[2] >= least}


def has_effect(cause: str, truth: dict[str, Any]) -> bool:
    """Whether taking a planted cause away is shown to gain, alone or beyond the others."""
    return any(gain is not None and gain[1] > 1.0 for gain in (truth["alone"][cause], truth["beyond"][cause]))


def is_hidden(cause: str, truth: dict[str, Any]) -> bool:
    """Whether others hide a planted cause: taken away alone it saves less than half the share of the time that it saves
    when they are gone."""
    alone, beyond = truth["alone"][cause], truth["beyond"][cause]
    return alone is not None and beyond is not None and beyond[1] > 1 and 1 - 1 / alone[0] < (1 - 1 / beyond[0]) / 2


def add_shares(explained: dict[str, Any], truth: dict[str, Any]) -> float | None:
    """The shares of the confirmed causes, and what of the gap is left when all of them are gone, by the second
    measurement: 1 where the shares are what they are said to be; None where there is no gap or nothing is confirmed."""
    gap, together = explained["case_seconds"] - explained["best_seconds"], truth["together"]
    if gap <= 0 or not explained["causes"] or together is None:
        return None
    left = (explained["case_seconds"] / together[0] - explained["best_seconds"]) / gap
    return float(sum(cause["share"] for cause in explained["causes"]) + left)


def report(planted: Planted, explained: dict[str, Any], truth: dict[str, Any], known: Score) -> None:
    """Prints what is known of a network."""
    mark = "ok " if known.largest else "NO "
    print(f"{mark} {planted.name:16} planted {', '.join(effect(cause, truth) for cause in planted.causes)}")
    shown = [
        f"{cause['cause']} {gain_text(cause)} {100 * (cause['share'] or 0):.0f} %, again {ratio_text(gain)}"
        for cause, gain in zip(explained["causes"], truth["steps"], strict=True)
    ]
    alone = [
        f"{cause['cause']} {gain_text(cause)} {100 * (cause['share_alone'] or 0):.0f} % alone"
        for cause in explained["hidden"]
    ]
    total = "-" if known.total is None else f"{100 * known.total:.1f} %"
    print(f"      named {', '.join(shown) or 'none'}; {', '.join(alone) or 'none'} overlaps; all shares {total}")
    for text, names in (("hidden by others", known.hidden), ("missed", known.missed), ("WITHOUT EFFECT", known.idle)):
        if names:
            print(f"      {text}: {', '.join(names)}")
    sys.stdout.flush()


def gain_text(cause: dict[str, Any]) -> str:
    """A gain with its limits."""
    gain = cause["gain"]
    return f"{gain['value']:.2f}x [{gain['low']:.2f}, {gain['high']:.2f}]"


def effect(cause: str, truth: dict[str, Any]) -> str:
    """A planted cause with what it costs, alone and beyond the others."""
    alone, beyond = (ratio_text(truth[kind][cause]) for kind in ("alone", "beyond"))
    return f"{cause} ({alone}, beyond the others {beyond})"


def ratio_text(gain: list[float] | None) -> str:
    """How many times as fast."""
    return "-" if gain is None else f"{gain[0]:.2f}x"


def summarize(scores: list[Score]) -> None:
    """Prints the counts, and what they show with 95 % on one side."""
    tries, hits = sum(each.tries for each in scores), sum(len(each.hits) for each in scores)
    totals = [each.total for each in scores if each.total is not None]
    added = sum(abs(total - 1) <= ADDED for total in totals)
    others, idle = sum(len(each.others) for each in scores), sum(len(each.idle) for each in scores)
    missed, hidden = sum(len(each.missed) for each in scores), sum(len(each.hidden) for each in scores)
    false = sum(bool(each.hits or each.idle) for each in scores)
    gains = sum(each.gains for each in scores)
    most = float(beta.ppf(0.95, hits + 1, max(1, tries - hits)))
    largest, first = sum(each.largest for each in scores), sum(each.first for each in scores)
    print(
        f"of {len(scores)} networks: the planted cause that costs most is first in {largest}, a planted one in {first}"
    )
    print(f"planted causes with an effect that are not named: {missed}; hidden by others: {hidden}")
    print(f"causes without effect: {hits} of {tries} confirmed (at most {100 * most:.1f} %)")
    print(f"confirmed, not planted: {others}, of these without an effect when measured again: {idle}")
    print(f"networks with a cause that is not there: {false}")
    print(f"shares add up to 100 +- 10 % in {added} of {len(totals)}")
    inside, overlap = sum(each.inside for each in scores), sum(each.overlap for each in scores)
    print(
        f"of {gains} gains the second is within the limits of the first in {inside}, their limits overlap in {overlap}"
    )


def main() -> None:
    """Explains every planted network and counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="*")
    parser.add_argument("--one")
    parser.add_argument("--truth")
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    by_name = {planted.name: planted for planted in PLANTED}
    if arguments.one:
        explain_here(by_name[arguments.one], folder, arguments.seconds)
        return
    if arguments.truth:
        os.chdir(folder / arguments.truth)
        truth = measure_truth(by_name[arguments.truth], folder / arguments.truth, arguments.seconds)
        write_text(Path(TRUTH), json.dumps(truth, indent=1))
        return
    globs = arguments.only.split(",")
    chosen = [planted for planted in PLANTED if any(fnmatch.fnmatch(planted.name, glob) for glob in globs)]
    scores = []
    for planted in chosen:
        explained, truth = explain_planted(planted, folder, arguments.seconds)
        scores.append(score(planted, explained, truth))
        report(planted, explained, truth, scores[-1])
    summarize(scores)


if __name__ == "__main__":
    main()
