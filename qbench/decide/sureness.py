"""How often the answer would be chosen again, were all of it repeated with other processes and other examples; pure.

The draws (``probability``) know the limits of each figure. They do not know what the noise check and the processes of
what is chosen say of the whole measurement, so these bound it: noise is held against the room that the choice has
(``room``: half the distance to fp32, or to the next rival; half the tie at least).

    noise over half the room, or over 5 %      at most 9 times in 10
    over the room: the gate's own doubt        3 times in 4
    over twice the room                        2 times in 3

Where only some of a network's outputs were judged, it is at most their share: of the others nothing is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from qbench import formatting
from qbench.compare.speedup_doubt import ENOUGH, UNSTEADY, find_unsteadiness
from qbench.decide import cases
from qbench.decide.choose import Choice
from qbench.decide.paired_times import P50_SPREAD
from qbench.decide.tie import Contest
from qbench.record.schema import Record

CHANCES = (
    (0.925, "about 19 times in 20"),
    (0.85, "about 9 times in 10"),
    (0.775, "about 4 times in 5"),
    (0.7, "about 3 times in 4"),
    (0.58, "about 2 times in 3"),
    (0.42, "about every other time"),
    (0.0, "less than every other time"),
)
SURE, UNSURE, DOUBTED, OPEN = 0.95, 0.9, 0.75, 0.66
NOISE_CAPS = ((2.0, OPEN), (1.0, DOUBTED), (0.5, UNSURE))  # of the room, and what is left then
LOUD = 0.05  # ln of a ratio: noise that nobody is sure beside, whatever the room


@dataclass(frozen=True, kw_only=True)
class Sureness:
    """How often the answer would be chosen again (a share), and what keeps it from being surer: a half sentence."""

    probability: float
    because: str | None = None


def say_chance(probability: float) -> str:
    """``about 9 times in 10``: no finer than what a few generations of processes can tell."""
    return next(words for least, words in CHANCES if probability >= least)


def limit_sureness(probability: float, pick: Record, room: float | None, contest: Contest) -> Sureness:
    """The probability, no higher than what was not judged and the noise allow; ``room`` None: no time was compared."""
    sureness = Sureness(probability=probability)
    for cap in (*_list_output_caps(pick), *(() if room is None else _list_noise_caps(pick, room, contest))):
        if cap.probability < sureness.probability:
            sureness = cap
    return sureness


def estimate_keep(choice: Choice, contest: Contest) -> float:
    """How often fp32 would stay again: that no int8 variant that may be shipped is shown to be better by another
    measurement like this one."""
    assert choice.fp32 is not None
    stays = 1.0
    for record in (*choice.good, *choice.open_):
        # Another measurement has an error of its own, so that both errors lie between them.
        difference = contest.objective.compare(record, choice.fp32).difference
        needed = difference.value - difference.limits()[0]
        again = replace(
            difference,
            value=difference.value + needed,
            error=math.sqrt(2) * difference.error,
            unseen=math.sqrt(2) * difference.unseen,
        )
        stays *= again.p_not_below(0.0)
    return stays


def _list_output_caps(pick: Record) -> Iterator[Sureness]:
    if unjudged := cases.list_unjudged(pick):
        outputs = len(pick.accuracy.outputs or ()) if pick.accuracy else 0
        yield Sureness(
            probability=1 / outputs, because=f"{outputs - len(unjudged)} of its {outputs} outputs was judged"
        )


def _list_noise_caps(pick: Record, room: float, contest: Contest) -> Iterator[Sureness]:
    speedup = pick.speedup
    if speedup is None:
        return
    if speedup.protocol == "sequential":
        yield Sureness(probability=DOUBTED, because="protocol sequential has no control to tell noise from change")
        return
    control = speedup.control
    if control is not None and control.low is not None and control.high is not None:
        noise = max(abs(math.log(control.low)), abs(math.log(control.high)))
        yield _cap_noise(noise, room, f"the control (A/A), whose true value is 1, is {formatting.with_limits(control)}")
    elif speedup.processes >= ENOUGH:
        yield Sureness(probability=DOUBTED, because="the control (A/A) was not measured")
    if find_unsteadiness(speedup) == UNSTEADY:
        yield Sureness(probability=UNSURE, because=UNSTEADY)
    if (spread := contest.objective.times.spread_over_processes(pick.case.id)) is not None and spread > P50_SPREAD:
        yield _cap_noise(spread / 2, room, f"its processes differ by {formatting.share(math.expm1(spread), 0)}")


def _cap_noise(noise: float, room: float, because: str) -> Sureness:
    caps = [probability for share, probability in NOISE_CAPS if noise > share * room]
    cap = min(caps, default=UNSURE if noise > LOUD else 1.0)
    return Sureness(probability=cap, because=because)
