"""The gate's rule on other hosts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made_records import CASE, fp32, info, int8

from qbench import suite
from qbench.gating.rules import judge_records
from qbench.portability.compare_hosts import OutputChange
from qbench.record.schema import EmulatedExamples, HostFacts, read_case_id
from qbench.record.stored_run import MetricInfo

HEAD = "suite: demo\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\nhosts: [native, avx2]\n"
RULE = f"{HEAD}gate: {{portability: {{hosts: [avx2], margin: 1.0}}}}\n"
N = 1000


def on_avx2(**changes):
    """The case on AVX2."""
    return replace(int8(), case=read_case_id(f"{CASE}/avx2"), **changes)


def judge(*records, lost=0, rules=RULE, n=N, same_bits=False, **readers):
    """The rule's verdicts on a run in which so many of ``n`` examples are wrong on AVX2 alone."""
    right = np.ones(n)
    there = right.copy()
    there[:lost] = 0
    pairs = lambda new, old: (there if new.case.host == "avx2" else right, right)  # noqa: E731 (the form of compare.Pairs)
    wanted = suite.parse(rules, file="s.yaml")
    compared = OutputChange(n=n, differing=int(not same_bits), largest=0.1, agreement=1.0)
    change = readers.get("change", compared)
    verdicts = judge_records(
        [fp32(), *records], info(), wanted.gate, place=wanted.place, pairs=pairs, change=lambda there, native: change
    )
    return [verdict for verdict in verdicts if verdict.kind == "portability"]


@pytest.mark.parametrize(("lost", "outcome"), [(0, "PASS"), (6, "INCONCLUSIVE"), (60, "FAIL")])
def test_a_loss_on_the_host_is_held_against_the_margin(lost, outcome):
    """By the paired test of the gate; the verdict is of the native case and names the host and the rule's line."""
    (verdict,) = judge(int8(), on_avx2(), lost=lost)
    assert verdict.threshold == pytest.approx(-0.01)
    assert (verdict.outcome, verdict.case, verdict.rule) == (outcome, CASE, "on avx2")
    assert verdict.place.startswith("s.yaml:6")
    assert verdict.value == pytest.approx(-lost / N)


@pytest.mark.parametrize(("same_bits", "outcome"), [(True, "PASS"), (False, "INCONCLUSIVE")])
def test_the_same_bits_pass_however_few_examples_there_are(same_bits, outcome):
    """Twenty examples show no loss of one point to be impossible; identical outputs need no test."""
    (verdict,) = judge(int8(), on_avx2(), n=20, same_bits=same_bits)
    assert (verdict.outcome, verdict.value) == (outcome, 0.0)


@pytest.mark.parametrize(
    ("records", "outcome", "reason"),
    [
        ((), "MISSING", "run the suite with hosts"),
        ((on_avx2(status="skipped", reason="not limited: no switch"),), "MISSING", "not limited"),
        ((on_avx2(status="failed", reason="does not run on avx2: SIGILL"),), "FAIL", "SIGILL"),
    ],
)
def test_what_was_not_tried_does_not_pass(records, outcome, reason):
    """Neither a host that the run has not, nor one where the artifact was skipped or crashed."""
    (verdict,) = judge(int8(), *records)
    assert verdict.outcome == outcome
    assert reason in str(verdict.reason)


@pytest.mark.parametrize(
    ("native", "there", "metric", "stored", "outcome"),
    [
        (int8(), on_avx2(), MetricInfo(name="top1"), True, "PASS"),
        (int8(accuracy=None), on_avx2(), MetricInfo(name="top1"), True, "MISSING"),
        (int8(), on_avx2(accuracy=None), MetricInfo(name="top1"), True, "MISSING"),
        (int8(), on_avx2(), MetricInfo(name="top1"), False, "MISSING"),
        (int8(accuracy=None), on_avx2(accuracy=None), None, True, "MISSING"),
    ],
)
def test_what_has_no_score_on_either_side_has_no_loss(native, there, metric, stored, outcome):
    """Nor where the predictions of both, which would be compared, are not stored; outputs need not be."""
    right = np.ones(N)
    wanted = suite.parse(RULE, file="s.yaml")
    verdicts = judge_records(
        [fp32(), native, there],
        info(metric=metric),
        wanted.gate,
        place=wanted.place,
        pairs=lambda new, old: (right, right) if stored else None,
    )
    assert [verdict.outcome for verdict in verdicts if verdict.kind == "portability"] == [outcome]


def test_another_file_on_the_host_is_not_its_answer():
    """The same bits of other bytes pass nothing."""
    there = on_avx2()
    assert there.artifact is not None
    other = replace(there, artifact=replace(there.artifact, sha256="f" * 64))
    (verdict,) = judge(int8(), other, same_bits=True)
    assert (verdict.outcome, verdict.text) == ("MISSING", "another file ran on avx2")


def test_an_override_takes_a_backend_out():
    """What cannot be limited need not be asked; without the rule no host is."""
    spared = "{hosts: [avx2]}, overrides: [{backend: onednn, portability: {hosts: []}}]"
    assert judge(int8(), rules=f"{HEAD}gate: {{portability: {spared}}}\n") == []
    assert judge(int8(), on_avx2(), lost=500, rules=f"{HEAD}gate: {{accuracy: {{margin: 1.0}}}}\n") == []


def test_a_predicted_case_is_not_asked_for_what_is_measured():
    """Of it accuracy and size are judged; its loss is a loss on the host."""
    there = on_avx2(latency=None, speedup=None, cold_start=None, memory=None, host=HostFacts(kind="predicted"))
    wanted = suite.parse(
        f"{HEAD}gate: {{latency: {{min_speedup: 1.5}}, memory: {{max_bytes: 9 GB}}, size: {{max_ratio: 0.9}}}}\n",
        file="s.yaml",
    )
    verdicts = judge_records([fp32(), int8(), there], info(), wanted.gate, place=wanted.place)
    kinds = {case: {verdict.rule for verdict in verdicts if verdict.case == case} for case in (CASE, there.case.id)}
    assert kinds[CASE] - kinds[there.case.id] == {"speed-up", "memory"}
    assert "size" in kinds[there.case.id]
    assert [verdict.outcome for verdict in judge(int8(), there, lost=60)] == ["FAIL"]


@pytest.mark.parametrize(("differing", "outcome"), [(0, "PASS"), (1, "INCONCLUSIVE")])
def test_an_emulated_host_is_held_to_the_bits_of_what_it_answered(differing, outcome):
    """A few chosen examples are no sample: other bits are no loss that could be told, and of the case itself nothing
    is judged."""
    facts = HostFacts(kind="emulated", examples=EmulatedExamples(n=20, of=N, chosen="nearest to flipping"))
    there = replace(on_avx2(accuracy=None, latency=None, host=facts), case=read_case_id(f"{CASE}/qemu:Haswell"))
    rules = HEAD.replace("avx2", '"qemu:Haswell"') + 'gate: {portability: {hosts: ["qemu:Haswell"]}}\n'
    wanted = suite.parse(rules, file="s.yaml")
    change = OutputChange(n=20, differing=differing, largest=0.1 * differing, agreement=1.0)
    verdicts = judge_records(
        [fp32(), int8(), there], info(), wanted.gate, place=wanted.place, change=lambda record, native: change
    )
    assert {verdict.case for verdict in verdicts} == {CASE}
    (verdict,) = [verdict for verdict in verdicts if verdict.kind == "portability"]
    assert (verdict.outcome, verdict.value) == (outcome, None)
    assert verdict.text.startswith(f"{20 - differing} of 20 examples (nearest to flipping, of 1,000)")


def test_emulated_answers_of_which_something_is_not_stored_are_missing():
    """Be it how they compare, or which examples they are of: either alone decides nothing."""
    emulated = on_avx2(host=HostFacts(kind="emulated", examples=EmulatedExamples(n=8, of=N, chosen="by flips")))
    assert judge(int8(), emulated, n=8, same_bits=True)[0].outcome == "PASS"
    (verdict,) = judge(int8(), replace(emulated, host=HostFacts(kind="emulated")), n=8, same_bits=True)
    assert (verdict.outcome, str(verdict.reason)) == ("MISSING", "the predictions of both hosts are not stored")
    (verdict,) = judge(int8(), emulated, n=8, change=None)
    assert verdict.outcome == "MISSING"
