"""The protocols as pure schedulers: a fake machine with its own clock, no time passes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timed_machine import Machine

from qbench.errors import CaseError
from qbench.measure import estimates
from qbench.measure.block_size import PILOTS, Block, block_for, cold_calls, pilot_calls
from qbench.measure.paired import Paired
from qbench.measure.protocol import Sequential


def paired(machine, **changes):
    settings_ = {"precision": 0.01, "max_seconds": 5.0, "warmup_seconds": 0.0, **changes}
    return Paired(half_width=estimates.half_width, seconds=machine.clock, **settings_)


def rounds(machine, arms):
    """The order of blocks after each arm's warm-up and the pilots of all but the baseline."""
    return [case for case, _ in machine.log[arms + 2 * PILOTS * (arms - 1) :]]


def measure(machine, protocol, contenders=("a",)):
    return protocol.measure("base", list(contenders), machine.open_arm, lambda case: None)


@given(speed=st.floats(0.2, 5.0), noise=st.floats(0.0, 0.05), drift=st.floats(0.0, 0.3), seed=st.integers(0, 10**6))
@settings(deadline=None, max_examples=30)
def test_paired_finds_the_true_ratio_under_drift_and_noise(speed, noise, drift, seed):
    """With a machine that drifts by up to 30 %, the median of neighbours' log ratios is right to 2 %."""
    machine = Machine({"base": 1e-3, "a": 1e-3 / speed}, noise=noise, drift=drift, seed=seed)
    samples = measure(machine, paired(machine))["a"]
    assert math.exp(float(np.median(samples.log_ratios))) == pytest.approx(1 / speed, rel=0.02)


def test_the_cold_first_calls_of_a_block_are_discarded():
    """Calls after a switch (+57, +11, +5, +1 %) do not reach the samples."""
    machine = Machine({"base": 1e-3, "a": 0.7e-3}, cold=(1.57, 1.11, 1.05, 1.01))
    samples = measure(machine, paired(machine))["a"]
    assert samples.calls_ns.max() <= round(0.7e6 * 1.01)
    assert samples.baseline_ns.max() <= round(1e6 * 1.01)
    assert samples.discarded == 3
    assert len(samples.calls_ns) == len(samples.block)


def test_every_contender_block_has_a_baseline_block_beside_it():
    """After warm-up the log of arms is a sequence of pairs, each with the baseline, in both orders."""
    machine = Machine({"base": 1e-3, "a": 1e-3, "b": 2e-3}, noise=0.01)
    measure(machine, paired(machine), ("a", "b"))
    order = rounds(machine, 4)
    pairs = list(zip(order[::2], order[1::2], strict=True))
    assert all("base" in pair and len(set(pair)) == 2 for pair in pairs)
    assert {pair[0] == "base" for pair in pairs} == {True, False}


def test_rounds_come_in_fresh_random_order():
    """Neither contender is always first in a round."""
    machine = Machine({"base": 1e-3, "a": 1e-3, "b": 1e-3}, noise=0.02)
    measure(machine, paired(machine, precision=1e-9, max_seconds=1.0), ("a", "b"))
    order = [case for case in rounds(machine, 4) if case in "ab"]
    assert {tuple(order[i : i + 2]) for i in range(0, 20, 2)} >= {("a", "b"), ("b", "a")}


def test_it_stops_at_the_precision_and_says_so():
    """A quiet machine is done after the least number of rounds."""
    machine = Machine({"base": 1e-3, "a": 1e-3}, noise=1e-6)
    samples = measure(machine, paired(machine, least_rounds=7))["a"]
    assert (samples.stopped, len(samples.log_ratios)) == ("precision", 7)


def test_it_stops_at_max_seconds_and_says_so():
    """A noisy machine ends at the time limit of its own measuring, not later than one pair."""
    machine = Machine({"base": 1e-3, "a": 1e-3}, noise=0.5)
    samples = measure(machine, paired(machine, precision=1e-9, max_seconds=0.5))["a"]
    assert samples.stopped == "max_seconds"
    spent = (samples.calls_ns.sum() + samples.baseline_ns.sum()) / 1e9
    assert 0.2 < spent < 0.6


def test_the_control_is_a_second_copy_of_the_baseline():
    """An arm named control is opened and its ratios, whose truth is 1, are kept with every contender."""
    machine = Machine({"base": 1e-3, "a": 0.5e-3}, noise=0.01)
    samples = measure(machine, paired(machine))["a"]
    assert math.exp(float(np.median(samples.control_log_ratios))) == pytest.approx(1.0, rel=0.02)


def test_blocks_in_which_the_machine_slept_are_left_out():
    """A suspend inside a block says nothing of the model: the pair is not kept, measuring goes on."""
    machine = Machine({"base": 1e-3, "a": 0.5e-3}, noise=0.01, sleeps=0.3)
    samples = measure(machine, paired(machine))["a"]
    assert len(samples.log_ratios) >= 20
    assert len(samples.log_ratios) == len(np.unique(samples.block)) == len(samples.involuntary)


def test_what_the_system_did_is_counted_by_block():
    """Context switches and page faults of every block that was kept, for contender and baseline."""
    machine = Machine({"base": 1e-3, "a": 1e-3}, noise=0.01)
    outcome = measure(machine, paired(machine))
    blocks = len(np.unique(outcome["a"].block))
    assert outcome["a"].involuntary.tolist() == [1] * blocks
    assert outcome["a"].faults.tolist() == [2] * blocks
    assert len(outcome["base"].involuntary) == len(np.unique(outcome["base"].block))


def test_the_canary_is_kept_with_every_block():
    """One row a block, before and after, in the order of the blocks; a resumed group goes on with the rows kept."""
    machine = Machine({"base": 1e-3, "a": 1e-3}, noise=0.01, sleeps=0.2)
    kept = []
    paired(machine, processes=2).measure(
        "base", ["a"], machine.open_arm, lambda case: None, keep=lambda known: kept.append(dict(known))
    )
    again = Machine({"base": 1e-3, "a": 1e-3}, noise=0.01)
    outcome = paired(again, processes=2).measure("base", ["a"], again.open_arm, lambda case: None, earlier=kept[0])
    for case in ("base", "a"):
        rows, before = outcome[case].canary_ns, kept[0][case].canary_ns
        assert len(rows) == len(np.unique(outcome[case].block)) > len(before) > 0
        assert rows[: len(before)].tolist() == before.tolist()
        assert (rows[:, 1] - rows[:, 0] == 1).all()
        assert (np.diff(rows[: len(before), 0]) > 0).all()


def test_a_baseline_that_dies_in_one_process_costs_that_process_only():
    """What the other processes measured is kept, and the contender says how many there were."""

    class Fragile(Machine):
        def open_arm(self, case):
            opened = super().open_arm(case)
            self.bases = getattr(self, "bases", 0) + (case == "base")
            if case == "base" and self.bases == 2:
                opened.blocks = 10**9  # past its end: it dies at its first block
            return opened

    machine = Fragile({"base": 1e-3, "a": 0.5e-3}, noise=0.01, die={"base": 10**6})
    samples = measure(machine, paired(machine, processes=3))["a"]
    assert sorted(set(samples.process.tolist())) == [0, 2]
    assert math.exp(float(np.median(samples.log_ratios))) == pytest.approx(0.5, rel=0.02)


def test_a_stopped_group_goes_on_where_it_was_kept():
    """Kept after each process but the last; resumed, it measures only the processes that are missing."""
    machine = Machine({"base": 1e-3, "a": 0.5e-3}, noise=0.01)
    kept = []
    whole = paired(machine, processes=3).measure(
        "base", ["a"], machine.open_arm, lambda case: None, keep=lambda known: kept.append(dict(known))
    )
    assert [sorted(set(known["a"].process.tolist())) for known in kept] == [[0], [0, 1]]
    again = Machine({"base": 1e-3, "a": 0.5e-3}, noise=0.01)
    rest = paired(again, processes=3).measure("base", ["a"], again.open_arm, lambda case: None, earlier=kept[1])["a"]
    assert sorted(set(rest.process.tolist())) == [0, 1, 2]
    before = kept[1]["a"]
    assert rest.calls_ns[: len(before.calls_ns)].tolist() == before.calls_ns.tolist()
    assert rest.log_ratios[: len(before.log_ratios)].tolist() == before.log_ratios.tolist()
    assert len(rest.control_log_ratios) > len(before.control_log_ratios)
    assert sum(case == "a" for case, _ in again.log) < sum(case == "a" for case, _ in machine.log) / 2
    assert whole["a"].stopped == rest.stopped == "precision"


def test_a_contender_that_dies_ends_alone():
    """Its outcome is its error; the other contender and the baseline are measured to the end."""
    machine = Machine({"base": 1e-3, "a": 1e-3, "b": 1e-3}, die={"a": 8})
    outcome = measure(machine, paired(machine), ("a", "b"))
    assert isinstance(outcome["a"], CaseError)
    assert "SIGKILL" in str(outcome["a"])
    assert len(outcome["b"].log_ratios) >= 20
    assert len(outcome["base"].calls_ns) > 0


def test_a_contender_that_cannot_be_loaded_ends_alone():
    """A failure to open is that case's error."""
    machine = Machine({"base": 1e-3, "a": 1e-3, "b": 1e-3}, die={"a": 0})
    outcome = measure(machine, paired(machine), ("a", "b"))
    assert "could not be loaded" in str(outcome["a"])
    assert len(outcome["b"].log_ratios) >= 20


@pytest.mark.parametrize("after", [0, 3, 15])
def test_a_baseline_that_dies_ends_its_group_by_name(after):
    """Without a baseline there is no ratio: every contender says that it was the baseline."""
    machine = Machine({"base": 1e-3, "a": 1e-3}, die={"base": after})
    outcome = measure(machine, paired(machine))
    assert "the baseline base died" in str(outcome["a"])


@pytest.mark.parametrize("die", [{}, {"a": 3}, {"a": 9}, {"base": 4}, {"base": 30}, {"control": 2}, {"b": 0}])
def test_every_arm_is_closed_however_it_ends(die):
    """No process outlives its group."""
    machine = Machine({"base": 1e-3, "a": 1e-3, "b": 1e-3}, die=die)
    measure(machine, paired(machine), ("a", "b"))
    assert machine.open == set()


def test_several_processes_are_told_apart():
    """Each generation of processes is numbered in the samples."""
    machine = Machine({"base": 1e-3, "a": 1e-3}, noise=0.01)
    samples = measure(machine, paired(machine, processes=3))["a"]
    assert sorted(set(samples.process.tolist())) == [0, 1, 2]


def test_the_same_seed_gives_the_same_order():
    """The schedule depends on its seed alone."""
    logs = []
    for _ in range(2):
        machine = Machine({"base": 1e-3, "a": 1e-3, "b": 1e-3}, noise=0.01)
        measure(machine, paired(machine, seed=3), ("a", "b"))
        logs.append(machine.log)
    assert logs[0] == logs[1]


def test_sequential_is_the_literatures_protocol():
    """10 calls unseen, 100 timed, one case after the other, each alone."""
    machine = Machine({"base": 1e-3, "a": 0.5e-3})
    outcome = measure(machine, Sequential())
    assert machine.log == [("base", 10), ("base", 100), ("a", 10), ("a", 100)]
    assert outcome["a"].calls_ns.tolist() == [500_000] * 100
    assert (outcome["a"].stopped, len(outcome["a"].log_ratios)) == ("fixed", 0)


def test_sequential_survives_a_case_that_dies():
    """The others are measured."""
    machine = Machine({"base": 1e-3, "a": 1e-3, "b": 1e-3}, die={"a": 1})
    outcome = measure(machine, Sequential(), ("a", "b"))
    assert isinstance(outcome["a"], CaseError)
    assert len(outcome["b"].calls_ns) == 100
    assert machine.open == set()


@pytest.mark.parametrize(
    ("curve", "cold"),
    [
        ((1.57, 1.11, 1.05, 1.01, 1, 1, 1, 1), 3),
        ((1, 1, 1, 1, 1, 1), 1),
        ((1.2, 1.1, 1, 1), 2),
        ((3, 2.5, 2, 1.5, 1.2, 1.1, 1.05, 1), 4),
    ],
)
def test_the_position_curve_tells_how_many_calls_are_cold(curve, cold):
    """The first position within 1 % of the plateau is kept; a block that never gets warm loses its first half."""
    pilots = [np.asarray(curve) * 1e6 * factor for factor in (1.0, 1.001, 0.999)]
    assert cold_calls(pilots) == cold


def test_one_slow_pilot_does_not_decide():
    """The curve is a median over pilots: an interruption in one of five is passed over."""
    pilots = [np.full(8, 1e6) for _ in range(5)]
    pilots[2][0:4] *= 5
    assert cold_calls(pilots) == 1


@given(st.floats(1e-6, 1.0))
def test_pilots_are_short(seconds):
    """4 to 16 calls, about 10 ms."""
    assert 4 <= pilot_calls(seconds) <= 16


@given(st.floats(1e-6, 1.0), st.integers(1, 8))
def test_blocks_are_short_and_never_empty(seconds, cold):
    """A block keeps about 5 to 10 ms of calls, at most 60 and at least 2; above 10 ms it is 1 and 2."""
    block = block_for(seconds, cold)
    assert 2 <= block.keep <= 60
    assert block.discard in (1, cold)
    if seconds > 0.010:
        assert block == Block(discard=1, keep=2)
    elif seconds > 1e-4:
        assert block.keep * seconds <= 0.03


def test_what_is_measured_and_what_is_left_is_told():
    """The bar names the case, the process and how long it may still take; the share never goes back, and it is told
    about once a second, not in every round."""
    told = []
    machine = Machine({"base": 0.002, "a": 0.001, "b": 0.001}, noise=0.3)
    protocol = paired(machine, precision=1e-6, max_seconds=6.0, processes=3)
    protocol.measure(
        "base", ["a", "b"], machine.open_arm, lambda case: None, tell=lambda text, share: told.append((text, share))
    )
    assert told[0] == ("base, process 1 of 3: 4 processes start", 0.0)
    assert told[1] == ("a, process 1 of 3: 2 cases open here, at most 12 s left", 0.0)
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert 0.6 < shares[-1] <= 1.0
    assert any("process 3 of 3" in text for text, _ in told)
    assert 6 <= len(told) <= machine.now + 4


def test_one_after_the_other_says_which_is_alone():
    """The literature's protocol names the case that runs and how many there are."""
    told = []
    machine = Machine({"base": 0.002, "a": 0.001})
    Sequential(calls=10).measure(
        "base", ["a"], machine.open_arm, lambda case: None, tell=lambda text, share: told.append(text)
    )
    assert told == ["base: alone in its process, 1 of 2 here", "a: alone in its process, 2 of 2 here"]
