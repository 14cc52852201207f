"""What the host did while a case was measured, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_records import int8, latency, speedup

from qbench.compare import host_share
from qbench.record.schema import Interference, Record
from qbench.report import timing_warnings


def watched(
    shared: float | None, p50_from: str | None = "undisturbed", case: str = "net/static/onednn/t1/b1"
) -> Record:
    """A case that was measured with the canary, p50 137 us."""
    known = replace(latency(137e-6), p50_from=p50_from, p50_all_seconds=180e-6)
    host = Interference(blocks=100, involuntary_switches=0, page_faults=0, shared=shared, undisturbed_blocks=40)
    return int8(case, latency=known, interference=host)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (watched(0.6), "137 us undisturbed; the host shared the core 60 % of the time"),
        (watched(0.0), "137 us undisturbed; the host shared the core 0 % of the time"),
        (
            watched(0.97, "all"),
            "137 us over all blocks, too few are undisturbed; the host shared the core 97 % of the time",
        ),
        (watched(0.6, None), "the host shared the core 60 % of the time"),
        (watched(None, None), None),
        (watched(None), None),
        (replace(watched(0.6), latency=None), None),
        (int8(), None),
    ],
)
def test_p50_says_what_the_host_did(record: Record, words: str | None) -> None:
    """How p50 was built and how much of the time the core was shared; nothing where it was not watched."""
    assert (host_share.describe(record) or "").replace("µ", "u") == (words or "")


def test_a_high_share_is_warned_of_once() -> None:
    """One sentence for a whole run, with the range of the shares; a second one where p50 is of all blocks."""
    records = [watched(0.02), watched(0.4), watched(0.9, "all"), int8()]
    first, second = timing_warnings.warn_of_sharing(records)
    assert first.startswith("the host shared the core 40 % to 90 % of the time while 2 of 3 cases were measured")
    assert "p50 is that of the undisturbed blocks" in first
    assert second.startswith("too few undisturbed blocks of net/static/onednn/t1/b1")


def test_one_case_was_measured_and_several_were() -> None:
    """Number agrees, of what the host did and of what other processes did."""
    host = Interference(blocks=9, involuntary_switches=0, page_faults=0, off_core=0.5)
    busy = int8(interference=host)
    (shared,) = timing_warnings.warn_of_sharing([watched(0.4), watched(0.02)])
    (processes,) = timing_warnings.warn_of_sharing([busy, int8(interference=replace(host, off_core=0.0))])
    assert "while 1 of 2 cases was measured:" in shared
    assert "while 1 of 2 cases was measured:" in processes


def test_many_cases_are_counted_instead_of_named() -> None:
    """A warning fits a terminal."""
    first, second = timing_warnings.warn_of_sharing(
        [watched(0.9, "all", f"net{i}/static/onednn/t1/b1") for i in range(5)]
    )
    assert "p50 is" not in first
    assert second.startswith("too few undisturbed blocks of 5 cases")


@pytest.mark.parametrize(("count", "named"), [(1, True), (3, True), (4, False)])
def test_three_cases_are_named_and_four_counted(count: int, named: bool) -> None:
    """So many names are read."""
    cases = [f"net{i}/static/onednn/t1/b1" for i in range(count)]
    _, second = timing_warnings.warn_of_sharing([watched(0.9, "all", case) for case in cases])
    assert f"blocks of {', '.join(cases) if named else f'{count} cases'}: p50" in second


def test_a_low_share_is_no_warning() -> None:
    """A tenth of the time leaves p50 as it is."""
    assert list(timing_warnings.warn_of_sharing([watched(0.1), watched(0.0), int8()])) == []


def test_other_processes_on_the_core_are_warned_of() -> None:
    """The canary is shorter than their turns, so that the host may seem to have left the core alone."""

    def crowded(off_core: float | None) -> Record:
        record = watched(0.0)
        assert record.interference is not None
        return replace(record, interference=replace(record.interference, off_core=off_core))

    (said,) = timing_warnings.warn_of_sharing([crowded(0.8), crowded(0.4), crowded(0.01), crowded(None), int8()])
    assert said.startswith("other processes of this machine had the core 40 % to 80 % of the time while 2 of 3 cases")
    assert said.endswith("stop what else runs, and limits are narrower")
    assert list(timing_warnings.warn_of_sharing([crowded(0.04), crowded(None)])) == []


def test_of_protocol_sequential_no_blocks_are_compared() -> None:
    """What disturbs the core while one case is measured does not disturb the other."""
    sequential = speedup(low=None, high=None, protocol="sequential", control=None)
    (said, _) = timing_warnings.warn_of_sharing([replace(watched(0.9, "all"), speedup=sequential)])
    assert said.endswith("speed-ups may be off, since protocol sequential measures one case after the other")
    (paired, _) = timing_warnings.warn_of_sharing([watched(0.9, "all")])
    assert paired.endswith("undisturbed ones where there are enough")
