"""The answer while a race goes on: a race of fake workers on a clock of its own, judged by the real rules."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

from made_records import answers, fp32, int8
from timed_machine import Machine

from qbench import suite as suites
from qbench.decide.decision import decide
from qbench.decide.judged import SuiteRules, judge
from qbench.errors import QbenchError
from qbench.measure import estimates
from qbench.measure.race import Race
from qbench.measure.race_rules import Arm, RaceRules
from qbench.record.stored_run import MetricInfo
from qbench.running import so_far
from qbench.running.so_far import SoFar, follow_race

FP32, FAST, NEAR = "net/fp32/torch/t1/b1", "net/static/onednn/t1/b1", "net/static/x86/t1/b1"
METRIC = MetricInfo(name="top1")


def untimed():
    """One fp32 and two int8 cases, built and evaluated."""
    records = (fp32(FP32), int8(FAST), int8(NEAR))
    return [replace(record, latency=None, speedup=None, samples=None) for record in records]


def pairs(record, base):
    return answers(record), answers(base)


def race(hear, seconds, **noise):
    """The samples of a race of these cases, of which ``hear`` hears."""
    machine = Machine(seconds, **noise)
    arms = (Arm(case=FP32, role="fp32"), *(Arm(case=case, role="candidate", baseline=FP32) for case in (FAST, NEAR)))
    paired = Race(arms=arms, rules=RaceRules(), clock=machine.clock, warmup_seconds=0.0)
    return paired.measure(FP32, [FAST, NEAR], machine.open_arm, lambda case: None, keep=hear)


def follow(note, read=pairs):
    return SoFar(described=untimed(), metric=METRIC, rules=SuiteRules(), pairs=read, note=note)


def decide_all(outcome):
    """The decision on all samples of a race."""
    records = [
        replace(
            each,
            latency=estimates.latency(outcome[each.case.id]),
            speedup=None if each.case.id == FP32 else estimates.speedup(outcome[each.case.id], FP32, outcome[FP32]),
            samples="x",
        )
        for each in untimed()
    ]
    (final,) = decide(judge(records, METRIC, SuiteRules(), pairs, samples=lambda record: vars(outcome[record.case.id])))
    return final


def test_the_last_answer_is_the_final_one_as_sure_as_that():
    """What is said after the last generation is the decision's sentence, with the decision's own probability."""
    said = []
    outcome = race(follow(said.append).hear, {FP32: 2e-3, FAST: 1e-3, NEAR: 1.5e-3}, noise=0.01, spread=0.01)
    assert said[-1] == f"so far, net, 1 thread, batch 1: {decide_all(outcome).sentence.removeprefix('net: ')}"


def test_only_another_answer_is_said():
    """The same in the same words is said once, however many generations there are."""
    said = []
    follower = follow(said.append)
    outcome = race(follower.hear, {FP32: 2e-3, FAST: 1e-3, NEAR: 1.5e-3})
    follower.hear(outcome)
    assert said
    assert all(text != before for before, text in itertools.pairwise(said))


def test_answers_of_examples_are_read_once():
    """They do not change between generations, and may be large."""
    read = []

    def count(record, base):
        read.append((record.case.id, base.case.id))
        return pairs(record, base)

    follower, (base, *cases) = follow(lambda text: None, count), untimed()
    for case in (*cases, *cases):
        assert len(follower.pairs(case, base)) == 2
    assert read == [(FAST, FP32), (NEAR, FP32)]


def test_nothing_is_said_before_anything_is_timed():
    """An answer needs times."""
    said = []
    follow(said.append).hear({})
    assert said == []


def test_a_run_that_cannot_be_read_is_measured_all_the_same(tmp_path: Path, monkeypatch):
    """Nobody hears of its race then, nor of answers that cannot be read."""

    def refuse(*_, **options):
        raise QbenchError("damaged")

    said = []
    monkeypatch.setattr(so_far, "judge", refuse)
    race(follow(said.append).hear, {FP32: 2e-3, FAST: 1e-3, NEAR: 1.5e-3})
    monkeypatch.setattr(so_far, "read_run", refuse)
    suite = suites.parse("suite: s\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {modes: [fp32]}\n", file="s")
    follow_race(untimed(), suite, tmp_path, said.append)({})
    assert said == []
