"""Rules of qbench/report/timing_warnings.py: which times are told of before any figure, and in which words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_records import fp32, int8, latency, speedup

from qbench.record.schema import Interference, Record, Roofline
from qbench.report.timing_warnings import warn_of_impossible, warn_of_sharing

SPEEDUPS = "speed-ups compare blocks of the same round, undisturbed ones where there are enough"
PATIENT = "p90 and p99 are longer than on a machine of your own"


def shared(share: float | None, *, of: str | None = None, off_core: float | None = None, case: int = 1) -> Record:
    """An int8 case whose core the host shared for so long."""
    watched = Interference(blocks=10, involuntary_switches=0, page_faults=0, shared=share, off_core=off_core)
    timed = replace(latency(0.001), p50_from=of)
    return int8(f"net/static/onednn/t{case}/b1", interference=watched, latency=timed)


def test_a_shared_host_is_told_with_how_long_and_what_it_means() -> None:
    """From a quarter of the time on; of the cases that were watched at all; a p50 of all blocks by its case."""
    plain = replace(shared(0.24), interference=None)
    assert list(warn_of_sharing([shared(0.24), shared(None), plain])) == []
    assert list(warn_of_sharing([shared(0.25, of="undisturbed"), shared(0.1), shared(None)])) == [
        f"the host shared the core 25 % of the time while 1 of 2 cases was measured: p50 is that of the undisturbed "
        f"blocks, {PATIENT}; {SPEEDUPS}"
    ]
    some = [shared(0.3, of="all"), shared(0.6, of="undisturbed", case=2)]
    assert list(warn_of_sharing(iter(some))) == [
        f"the host shared the core 30 % to 60 % of the time while 2 of 2 cases were measured: p50 is that of the "
        f"undisturbed blocks, {PATIENT}; {SPEEDUPS}",
        "too few undisturbed blocks of net/static/onednn/t1/b1: p50 there is longer than on a core of its own",
    ]


@pytest.mark.parametrize(
    ("count", "named"),
    [(1, "net/static/onednn/t1/b1"), (3, ", ".join(f"net/static/onednn/t{n}/b1" for n in (1, 2, 3))), (4, "4 cases")],
)
def test_cases_whose_blocks_were_all_disturbed_are_named(count: int, named: str) -> None:
    """Three of them; of more, their number. Where that are all, no p50 is of undisturbed blocks."""
    told, few = warn_of_sharing([shared(0.5, of="all", case=number + 1) for number in range(count)])
    assert few == f"too few undisturbed blocks of {named}: p50 there is longer than on a core of its own"
    assert f"measured: {PATIENT}" in told
    calm = list(warn_of_sharing([shared(0.2, of="all")]))
    assert calm == [], "its host was calm enough"
    assert len(list(warn_of_sharing([replace(shared(0.5), latency=None)]))) == 1


def test_one_case_after_the_other_is_disturbed_apart() -> None:
    """Then speed-ups may be off."""
    sequential = replace(shared(0.5), speedup=replace(speedup(2.0), protocol="sequential"))
    (told,) = warn_of_sharing([sequential, shared(0.1)])
    assert told.endswith("speed-ups may be off, since protocol sequential measures one case after the other")


def test_other_processes_are_told_of_by_their_share() -> None:
    """From a twentieth of the time on, of the cases of which it is known."""
    assert list(warn_of_sharing([shared(None, off_core=0.049)])) == []
    (told,) = warn_of_sharing([shared(None, off_core=0.05), shared(None, off_core=0.01), shared(None)])
    assert told.startswith(
        "other processes of this machine had the core 5 % of the time while 1 of 2 cases was measured: calls that they"
    )


def test_what_is_faster_than_possible_is_no_winner() -> None:
    """Of int8 cases; a peak that was measured on a shared core proves nothing, which is told once."""
    fast = int8(roofline=Roofline(macs=10**6, peak_fraction=1.5))
    (told,) = warn_of_impossible([fast, int8(), int8(roofline=Roofline(macs=10**6, peak_fraction=None))])
    assert told == (
        f"{fast.case.id} reads 150 % of the int8 peak of this core: faster than possible, so it is no winner; its "
        "artifact skips work, or its multiply-accumulates are miscounted"
    )
    on_shared = replace(fast, roofline=Roofline(macs=10**6, peak_fraction=1.5, peak_shared=True))
    (doubt,) = warn_of_impossible(iter([on_shared, on_shared]))
    assert doubt.startswith("the peak of this core was measured while the host shared it, so it is too low")
    assert list(warn_of_impossible([replace(fp32(), roofline=fast.roofline)])) == []
