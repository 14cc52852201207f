"""The race as a pure scheduler: a fake machine with its own clock, no time passes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from timed_machine import Machine

from qbench.errors import CaseError
from qbench.measure.paired_difference import compare_times
from qbench.measure.race import Race
from qbench.measure.race_rules import Arm, RaceRules

SPEEDS = {"base": 1e-3, "fast": 4e-4, "near": 4.02e-4, "slow": 8e-4, "wrong": 3e-4}


def enter(*cases: str, wrong: tuple[str, ...] = ()) -> tuple[Arm, ...]:
    """``base`` as fp32, the others as int8 arms of it."""
    others = [Arm(case=case, role="screened_only" if case in wrong else "candidate", baseline="base") for case in cases]
    return (Arm(case="base", role="fp32"), *others)


def make_race(machine: Machine, arms: tuple[Arm, ...], *, heats=None, **rules) -> Race:
    options = {} if heats is None else {"heats": heats}
    return Race(arms=arms, rules=RaceRules(**rules), clock=machine.clock, warmup_seconds=0.0, **options)


def run(machine: Machine, race: Race, **options):
    cases = [arm.case for arm in race.arms]
    return race.measure(cases[0], cases[1:], machine.open_arm, options.pop("watch", lambda case: None), **options)


def processes(samples) -> list[int]:
    return sorted(set(samples.process.tolist()))


def test_what_is_clearly_slower_leaves_after_the_screening():
    """One process of six rounds for it; the two that are close go on for at least three generations."""
    machine = Machine(SPEEDS, noise=0.01, spread=0.005)
    outcome = run(machine, make_race(machine, enter("fast", "near", "slow")))
    assert (outcome["slow"].stopped, processes(outcome["slow"])) == ("screened", [0])
    assert outcome["slow"].round.tolist() == [0, 1, 2, 3, 4, 5]
    for case in ("fast", "near"):
        assert len(processes(outcome[case])) >= 4
        assert outcome[case].stopped == "tied"


def test_a_race_with_one_left_is_decided_after_the_least_generations():
    """The only candidate needs no more than the generations that its own speed-up takes."""
    machine = Machine(SPEEDS, noise=0.01)
    outcome = run(machine, make_race(machine, enter("fast", "slow")))
    assert (outcome["fast"].stopped, processes(outcome["fast"])) == ("decided", [0, 1, 2, 3])


def test_who_watches_hears_of_each_generation_and_of_those_to_come(monkeypatch):
    """The screening of all, then those that stay; with everything in, there is no screening."""
    started = []
    keys = ("cases", "rounds", "screening", "later")
    monkeypatch.setattr(
        "qbench.measure.race.Remaining.start", lambda self, **given: started.append([given[key] for key in keys])
    )
    monkeypatch.setattr("qbench.measure.race.Remaining.advance", lambda *_: None)
    machine = Machine(SPEEDS, noise=0.01)
    race = make_race(machine, enter("fast", "slow"))
    run(machine, race)
    rounds = race.rounds
    assert started == [[3, race.screening_rounds, True, 3], *([2, rounds, False, later] for later in (2, 1, 0))]
    started.clear()
    machine = Machine(SPEEDS, noise=0.005)
    run(machine, make_race(machine, enter("fast", "slow"), everything=True))
    assert started == [[3, rounds, False, later] for later in (0, 1, 0)]


def test_what_may_not_be_shipped_is_screened_and_no_more():
    """It stays visible, however fast, and neither leads nor sends anyone away."""
    machine = Machine(SPEEDS, noise=0.01)
    outcome = run(machine, make_race(machine, enter("fast", "wrong", wrong=("wrong",))))
    assert (outcome["wrong"].stopped, processes(outcome["wrong"])) == ("screened", [0])
    assert outcome["fast"].stopped == "decided"


def test_a_slower_fp32_stays_while_an_arm_that_is_compared_with_it_is_in():
    """The like-for-like fp32 of the winner is measured to the end; one that nobody needs leaves."""
    machine = Machine({"a32": 1e-3, "b32": 1.5e-3, "c32": 3e-3, "b8": 4e-4, "c8": 9e-4}, noise=0.01)
    arms = (
        *(Arm(case=case, role="fp32") for case in ("a32", "b32", "c32")),
        *(Arm(case=f"{name}8", role="candidate", baseline=f"{name}32") for name in "bc"),
    )
    outcome = run(machine, make_race(machine, arms))
    assert {case: len(processes(samples)) for case, samples in outcome.items()} == {
        "a32": 4,
        "b32": 4,
        "c32": 1,
        "b8": 4,
        "c8": 1,
    }
    # The control is a copy of the fastest fp32, in every generation but the screening.
    assert machine.opened.count("a32") == 4 + 3
    assert np.unique(outcome["b8"].control_process).tolist() == [1, 2, 3]
    assert len(outcome["c8"].control_log_ratios) == 0


def test_everything_is_measured_to_the_precision_where_a_table_is_wanted():
    """``spend: all``: nobody leaves, and there is a control from the first generation on."""
    machine = Machine(SPEEDS, noise=0.005)
    outcome = run(machine, make_race(machine, enter("fast", "slow", "wrong", wrong=("wrong",)), everything=True))
    assert {case: processes(samples) for case, samples in outcome.items()} == {key: [0, 1, 2] for key in outcome}
    assert {samples.stopped for samples in outcome.values()} == {"precision"}
    assert np.unique(outcome["fast"].control_process).tolist() == [0, 1, 2]


def test_a_first_look_is_the_screening_and_nothing_else():
    """``spend: screening``: one generation of everyone, however close they are."""
    machine = Machine(SPEEDS, noise=0.01)
    outcome = run(machine, make_race(machine, enter("fast", "near", "slow"), least=0, most=0))
    assert {(samples.stopped, *processes(samples)) for samples in outcome.values()} == {("screened", 0)}


def test_a_race_between_equals_ends():
    """Processes that differ by 6 % never show two copies to be within 3 %: nine generations, and it says so."""
    machine = Machine({"base": 1e-3, "a": 5e-4, "b": 5e-4}, noise=0.01, spread=0.06, seed=2)
    outcome = run(machine, make_race(machine, enter("a", "b")))
    assert len(processes(outcome["a"])) == 10
    assert outcome["a"].stopped == "processes"


def test_a_candidate_that_takes_far_longer_than_the_others_is_screened_in_every_second_round():
    """It leaves all the same. The fp32, which speed-ups rest on, is in every round, and so is everyone where all are
    measured."""
    machine = Machine({"base": 0.05, "a": 0.012, "b": 0.0122, "c": 0.09}, noise=0.01)
    outcome = run(machine, make_race(machine, enter("a", "b", "c")))
    assert (outcome["c"].stopped, outcome["c"].round.tolist()) == ("screened", [0, 2, 4])
    for case in ("base", "a", "b"):
        assert outcome[case].round.tolist()[:13] == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 6]
    every = run(machine, make_race(machine, enter("a", "c"), everything=True))
    assert every["c"].round[every["c"].process == 0].tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_long_calls_end_a_generation_early():
    """A network of ten seconds a call is measured for about ``max_seconds``, a round a generation at least."""
    machine = Machine({"base": 20.0, "a": 10.0}, noise=0.01)
    outcome = run(machine, make_race(machine, enter("a"), max_seconds=30.0))
    assert len(processes(outcome["a"])) == 4
    assert len(outcome["a"].round) == 4


def test_paired_differences_are_right_under_drift_and_noise():
    """Arms of one round cancel what the host does: the true ratio is found to 3 %."""
    machine = Machine(SPEEDS, noise=0.02, drift=0.3, spread=0.01)
    outcome = run(machine, make_race(machine, enter("fast", "slow")))
    for case, ratio in (("fast", 0.4), ("slow", 0.8)):
        assert math.exp(compare_times(outcome[case], outcome["base"]).value) == pytest.approx(ratio, rel=0.03)


@pytest.mark.parametrize("after", [0, 1, 4, 9])
def test_an_arm_that_dies_ends_alone(after):
    """When it opens, loads, or in a round: its outcome is its error, the others race on."""
    machine = Machine(SPEEDS, noise=0.01, die={"near": after})
    outcome = run(machine, make_race(machine, enter("fast", "near", "slow")))
    assert isinstance(outcome["near"], CaseError)
    assert outcome["fast"].stopped == "decided"
    assert outcome["slow"].stopped == "screened"
    assert machine.open == set()


def test_a_finalist_that_dies_in_the_final_ends_alone():
    """The other one is still measured to the end."""
    machine = Machine(SPEEDS, noise=0.01, die_in={("near", 2): 5})
    outcome = run(machine, make_race(machine, enter("fast", "near")))
    assert "SIGKILL" in str(outcome["near"])
    assert (outcome["fast"].stopped, processes(outcome["fast"])) == ("decided", [0, 1, 2, 3])


def test_the_last_fp32_that_dies_ends_its_arms_by_name():
    """Without any fp32 there is no speed-up: every case says that it was the baseline."""
    machine = Machine(SPEEDS, die={"base": 0})
    outcome = run(machine, make_race(machine, enter("fast", "slow")))
    assert "the baseline base died: could not be loaded" in str(outcome["fast"])


def test_a_fastest_fp32_that_dies_is_replaced_by_the_next():
    """The control is a copy of what is left; the arms of the other runtime lose nothing."""
    machine = Machine({"a32": 1e-3, "b32": 1.5e-3, "a8": 5e-4, "b8": 4e-4}, noise=0.01, die={"a32": 9})
    arms = (
        *(Arm(case=f"{name}32", role="fp32") for name in "ab"),
        *(Arm(case=f"{name}8", role="candidate", baseline=f"{name}32") for name in "ab"),
    )
    outcome = run(machine, make_race(machine, arms))
    assert outcome["b8"].stopped == "decided"
    assert len(outcome["b8"].control_log_ratios) > 0
    assert machine.opened.count("b32") > 4


def test_an_fp32_that_dies_in_one_generation_is_opened_anew_in_the_next():
    """A single death costs that generation only."""
    machine = Machine(SPEEDS, noise=0.01, die_in={("base", 1): 1})
    outcome = run(machine, make_race(machine, enter("fast")))
    assert processes(outcome["fast"]) == [0, 1, 2, 3]
    assert processes(outcome["base"]) == [0, 2, 3]


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_a_killed_race_goes_on_where_it_was_kept(cut):
    """After the screening and inside the final: nothing is measured twice, who left stays out, and the outcome has as
    many processes as without a kill."""
    kept = []
    whole = Machine(SPEEDS, noise=0.01)
    arms = enter("fast", "slow", "near")
    expected = run(whole, make_race(whole, arms), keep=lambda known: kept.append(dict(known)))
    again = Machine(SPEEDS, noise=0.01, seed=1)
    outcome = run(again, make_race(again, arms), earlier=kept[cut])
    assert outcome["slow"].stopped == "screened"
    assert again.opened.count("slow") == 0
    assert outcome["slow"].calls_ns.tolist() == expected["slow"].calls_ns.tolist()
    assert processes(outcome["fast"])[: cut + 1] == list(range(cut + 1))
    assert again.opened.count("fast") == len(processes(outcome["fast"])) - cut - 1
    before = kept[cut]["fast"].calls_ns
    assert outcome["fast"].calls_ns[: len(before)].tolist() == before.tolist()


def test_who_died_before_a_kill_stays_dead():
    """Its error is kept with what is known; its process is not started again."""
    kept = []
    machine = Machine(SPEEDS, noise=0.01, die={"near": 8})
    arms = enter("fast", "near")
    run(machine, make_race(machine, arms), keep=lambda known: kept.append(dict(known)))
    again = Machine(SPEEDS, noise=0.01)
    outcome = run(again, make_race(again, arms), earlier=kept[0])
    assert "SIGKILL" in str(outcome["near"])
    assert "near" not in again.opened


def test_heats_meet_in_the_final():
    """Arms that do not fit into memory at once are screened apart; the best of each meet."""

    def two_at_a_time(arms, fastest, blocks):
        int8 = [arm for arm in arms if arm.role != "fp32"]
        fp32 = [arm for arm in arms if arm.role == "fp32"]
        return [[*fp32, *int8[at : at + 2]] for at in range(0, len(int8), 2)]

    machine = Machine({**SPEEDS, "slower": 9e-4}, noise=0.01)
    arms = enter("slow", "fast", "near", "slower")
    outcome = run(machine, make_race(machine, arms, heats=two_at_a_time))
    assert processes(outcome["slow"]) == [0]
    assert processes(outcome["slower"]) == [1]
    assert outcome["fast"].stopped == "tied"
    assert compare_times(outcome["fast"], outcome["near"]).generations >= 3


def test_a_machine_that_always_sleeps_ends():
    """No block can be kept: every case says so."""
    machine = Machine(SPEEDS, sleeps=1.0)
    outcome = run(machine, make_race(machine, enter("fast")))
    assert "suspended" in str(outcome["fast"])


def test_without_int8_the_fp32_race():
    """A suite of fp32 alone still gets figures over several processes."""
    machine = Machine({"a": 1e-3, "b": 2e-3}, noise=0.01)
    outcome = run(machine, make_race(machine, (Arm(case="a", role="fp32"), Arm(case="b", role="fp32"))))
    assert len(processes(outcome["a"])) == 4
    assert outcome["b"].stopped == "screened"


def test_every_case_is_heard_of_once():
    """Whoever watches counts the cases that are done."""
    heard = []
    machine = Machine(SPEEDS, noise=0.01, die={"near": 8})
    run(machine, make_race(machine, enter("fast", "near", "slow")), watch=heard.append)
    assert sorted(heard) == ["base", "fast", "near", "slow"]


def test_the_same_seed_gives_the_same_order():
    """The schedule depends on its seed and on what was measured."""
    logs = []
    for _ in range(2):
        machine = Machine(SPEEDS, noise=0.01)
        run(machine, make_race(machine, enter("fast", "slow", "near")))
        logs.append(machine.log)
    assert logs[0] == logs[1]


def test_what_is_left_is_told():
    """How many cases are in and about how many seconds are left; the share never goes back."""
    told = []
    machine = Machine({case: 100 * seconds for case, seconds in SPEEDS.items()}, noise=0.01)
    run(
        machine,
        make_race(machine, enter("fast", "slow", "near")),
        tell=lambda text, share: told.append((text, share)),
    )
    assert told[0] == ("screening 4 cases: 4 processes start", 0.0)
    assert any("screening 4 cases, round" in text and "s left" in text for text, _ in told)
    assert any(text.startswith("3 cases still in, generation 2") for text, _ in told)
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert all(0 <= share <= 1 for share in shares)


def test_the_cold_first_calls_of_a_block_are_discarded():
    """Calls after a switch (+57, +11, +5, +1 %) do not reach the samples."""
    machine = Machine({"base": 1e-3, "a": 0.7e-3}, cold=(1.57, 1.11, 1.05, 1.01))
    samples = run(machine, make_race(machine, enter("a")))["a"]
    assert samples.calls_ns.max() <= round(0.7e6 * 1.01)
    assert samples.discarded == 3
    assert len(samples.calls_ns) == len(samples.block)


def test_blocks_in_which_the_machine_slept_are_left_out():
    """A suspend inside a block says nothing of the model: it is not kept, measuring goes on."""
    machine = Machine({"base": 1e-3, "a": 0.5e-3}, noise=0.01, sleeps=0.3)
    samples = run(machine, make_race(machine, enter("a")))["a"]
    blocks = len(np.unique(samples.block))
    assert blocks == len(samples.round) == len(samples.involuntary) > 10
    assert blocks < 6 + 7 * (len(processes(samples)) - 1)


def test_what_the_system_and_the_host_did_is_kept_by_block():
    """Context switches, page faults and the canary of every block that was kept, in its order."""
    machine = Machine({"base": 1e-3, "a": 1e-3}, noise=0.01)
    outcome = run(machine, make_race(machine, enter("a")))
    for samples in outcome.values():
        blocks = len(np.unique(samples.block))
        assert samples.involuntary.tolist() == [1] * blocks
        assert samples.faults.tolist() == [2] * blocks
        assert (samples.canary_ns[:, 1] - samples.canary_ns[:, 0]).tolist() == [1] * blocks


@pytest.mark.parametrize("die", [{}, {"a": 3}, {"a": 9}, {"base": 4}, {"base": 30}, {"control": 2}, {"b": 0}])
def test_every_arm_is_closed_however_it_ends(die):
    """No process outlives its race."""
    machine = Machine({"base": 1e-3, "a": 1e-3, "b": 1e-3}, die=die)
    run(machine, make_race(machine, enter("a", "b")))
    assert machine.open == set()
