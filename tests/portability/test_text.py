"""Sentences of artifacts on hosts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from qbench.portability.compare_hosts import ArtifactAnswers, HostAnswer, OutputChange
from qbench.portability.text import (
    CUT,
    ONE_HOST,
    as_json,
    describe_artifact,
    explain_nothing,
    is_safe,
    list_other_classes,
    list_sentences,
    list_speed_orders,
    make_table,
)
from qbench.progress.table import align
from qbench.record.schema import EmulatedExamples, HostFacts, SaturatingLayer, TargetFacts
from qbench.record.stored_run import MetricInfo
from qbench.stats import noninferiority

TOP1 = MetricInfo(name="top1")
LIMITED = HostFacts(kind="limited", int8_sums="16 bits")
SAME = OutputChange(n=1000, differing=0, largest=0.0, agreement=1.0)
OTHER = OutputChange(n=1000, differing=900, largest=5.4, agreement=0.85)
EMULATED = HostFacts(
    kind="emulated", int8_sums="16 bits", examples=EmulatedExamples(n=20, of=1000, chosen="nearest to flipping")
)
NATIVE = HostAnswer(case="net/static/onednn/t1/b1", host="native", status="ok", p50_seconds=0.001)


def on_avx2(**changes):
    """The answer on AVX2."""
    plain = HostAnswer(case="net/static/onednn/t1/b1/avx2", host="avx2", status="ok", facts=LIMITED, margin=1.0)
    return replace(plain, **changes)


def artifact(*answers, variant="static · onednn"):
    """An artifact of this machine with its answers elsewhere."""
    hosts = (NATIVE, *answers)
    return ArtifactAnswers(case=NATIVE.case, model="net", variant=variant, sha256="0" * 64, hosts=hosts)


@pytest.mark.parametrize(
    ("answer", "safe", "said"),
    [
        (on_avx2(outputs=SAME), True, "safe everywhere that was tried: the same bits on avx2, 1,000 examples"),
        (
            on_avx2(outputs=OTHER, against_native=noninferiority.assess_counts(2, 2, 1000, 0.01)),
            True,
            "safe everywhere that was tried: within the margin on avx2 (top1 0.0 [",
        ),
        (
            on_avx2(outputs=OTHER, against_native=noninferiority.assess_counts(10, 70, 1000, 0.01)),
            False,
            "loses on avx2 more than the margin of 1 (top1 -6.0 [",
        ),
        (
            on_avx2(outputs=OTHER, against_native=noninferiority.assess_counts(0, 6, 1000, 0.01)),
            False,
            "undecided on avx2 (top1 -0.6 [",
        ),
        (on_avx2(outputs=OTHER), False, "not judged on avx2: no score of each example"),
        (on_avx2(other_file=True), False, "not judged on avx2: another file ran there"),
        (
            on_avx2(status="skipped", reason="not limited: no switch"),
            False,
            "not tried on avx2 (not limited: no switch)",
        ),
        (
            on_avx2(status="failed", reason="does not run on avx2: SIGILL"),
            False,
            "failed on avx2 (does not run on avx2",
        ),
        (on_avx2(outputs=SAME, facts=replace(LIMITED, note="does not load")), False, "examples (does not load)"),
    ],
)
def test_an_artifact_is_safe_only_where_it_was_shown(answer, safe, said):
    """The same bits, or a loss shown to be within the margin; every other outcome says what is known."""
    assert is_safe(answer) == safe
    text = describe_artifact(artifact(answer), TOP1)
    assert said in text
    assert text.startswith("safe") == safe


def test_a_loss_by_sums_in_16_bits_names_the_remedy():
    """Where kernels add otherwise than here, what keeps sums from overflowing is named; elsewhere it would not help."""
    lost = on_avx2(outputs=OTHER, against_native=noninferiority.assess_counts(10, 70, 1000, 0.01), remedy="KEY")
    text = describe_artifact(artifact(lost), TOP1)
    assert text.endswith("its kernels add in 16 bits there: built with KEY no sum can overflow")
    assert "KEY" not in describe_artifact(artifact(replace(lost, facts=None)), TOP1)
    undecided = replace(lost, against_native=noninferiority.assess_counts(0, 6, 1000, 0.01))
    assert "KEY" in describe_artifact(artifact(undecided), TOP1)
    assert describe_artifact(artifact(replace(lost, remedy=None)), TOP1).endswith("add in 16 bits there")


LAYERS = tuple(SaturatingLayer(name=name, sums=1000, saturated=30) for name in ("a", "b", "c", "d"))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"saturating": LAYERS[:1]}, "; sums saturate in 1 layer: a (3.00 % of its sums))"),
        (
            {"saturating": LAYERS[:3], "counted_examples": 1000},
            "; sums saturate in 3 layers: a (3.00 % of its sums), b (3.00 % of its sums), c (3.00 % of its sums), "
            "counted on 1,000 examples)",
        ),
        (
            {"saturating": LAYERS, "counted_examples": 32},
            "; sums saturate in 4 layers: a (3.00 % of its sums), b (3.00 % of its sums), c (3.00 % of its sums) and "
            "1 more, counted on 32 examples)",
        ),
        (
            {"saturating": LAYERS[:1], "uncounted": "e: why"},
            "a (3.00 % of its sums); not every layer was counted (e: why))",
        ),
        ({"saturating": (), "uncounted": "e: why"}, "same class; not every layer was counted (e: why))"),
        ({"uncounted": "no layers"}, "same class; its layers are not named: no layers)"),
        ({}, "same class)"),
    ],
)
def test_the_layers_that_lose_sums_are_named(facts, said):
    """Three layers at most, the share of their sums and over how many examples; what was not counted is said."""
    lost = on_avx2(outputs=OTHER, against_native=noninferiority.assess_counts(10, 70, 1000, 0.01))
    assert said in describe_artifact(artifact(replace(lost, facts=replace(LIMITED, **facts))), TOP1)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"layers": 50, "layers_narrowed": 34}, "built for avx2 and arm (34 of 50 layers narrowed)"),
        (
            {"layers": 5, "compiled_for": "haswell"},
            "built for avx2 and arm (0 of 5 layers narrowed, compiled for haswell)",
        ),
        ({"overflowing": ("a", "b")}, "built for avx2 and arm, though sums of a, b may overflow"),
        ({}, "built for avx2 and arm"),
    ],
)
def test_an_artifact_for_other_cpus_says_so(facts, said):
    """With what was done for them, before what was tried."""
    on_others = replace(artifact(on_avx2(outputs=SAME)), target=TargetFacts(cpus=("avx2", "arm"), **facts))
    expected = f"safe everywhere that was tried, {said}: the same bits on avx2, 1,000 examples"
    assert describe_artifact(on_others, TOP1) == expected
    alone = replace(on_others, hosts=(NATIVE,))
    assert describe_artifact(alone, TOP1) == f"{said}: tried on this machine alone"


def test_a_prediction_says_so():
    """In the sentence and in the table."""
    facts = HostFacts(kind="predicted", int8_sums="16 bits", saturating=LAYERS)
    lost = on_avx2(outputs=OTHER, against_native=noninferiority.assess_counts(10, 70, 1000, 0.01), facts=facts)
    assert "loses on avx2 (predicted) more than the margin" in describe_artifact(artifact(lost), TOP1)
    same = on_avx2(outputs=SAME, facts=replace(facts, saturating=()))
    assert "the same bits on avx2 (predicted)" in describe_artifact(artifact(same), TOP1)
    assert make_table([artifact(same)], TOP1).rows[0][1] == "avx2 (predicted)"


def test_examples_with_another_class_are_named():
    """The first five of each host, and how many more; none where all have the same."""
    ids = tuple(f"photo-{i}" for i in range(7))
    changed = on_avx2(outputs=replace(OTHER, other_class=ids))
    (line,) = list_other_classes([artifact(changed), artifact(on_avx2(outputs=SAME))])
    assert line == (
        "net · static · onednn on avx2: another class for photo-0, photo-1, photo-2, photo-3, photo-4 and 2 more"
    )
    five, six = (on_avx2(outputs=replace(OTHER, other_class=ids[:count])) for count in (5, 6))
    lines = list_other_classes([artifact(five), artifact(six)])
    assert [line.rpartition("photo-4")[2] for line in lines] == ["", " and 1 more"]


def test_the_same_bits_lose_nothing_however_few_examples_there_are():
    """A test of 20 examples is INCONCLUSIVE at this margin; identical answers need none."""
    few = noninferiority.assess_counts(0, 0, 20, 0.01)
    same = on_avx2(outputs=OutputChange(n=20, differing=0, largest=0.0, agreement=1.0), against_native=few)
    other = on_avx2(outputs=OutputChange(n=20, differing=1, largest=0.5, agreement=1.0), against_native=few)
    verdicts = [row[6] for row in make_table([artifact(same), artifact(other)], TOP1).rows]
    assert verdicts == ["PASS", "INCONCLUSIVE"]


def test_rounding_alone_is_no_overflow():
    """Where no counted sum was too large, another recipe would not help, and none is named."""
    facts = replace(LIMITED, saturating=(), counted_examples=32)
    few = noninferiority.assess_counts(0, 6, 1000, 0.01)
    text = describe_artifact(artifact(on_avx2(outputs=OTHER, against_native=few, facts=facts, remedy="KEY")), TOP1)
    assert text.endswith("no sum of those counted leaves 16 bits: its kernels there round otherwise")
    assert "KEY" not in text


def test_a_run_that_was_cut_is_told_from_one_of_one_host():
    """By the cases that it plans: going on helps the one, another suite the other."""
    assert explain_nothing([NATIVE.case, f"{NATIVE.case}/avx2"]) == CUT
    assert explain_nothing([NATIVE.case]) == ONE_HOST


def test_a_host_without_a_case_is_said():
    """An artifact of a run that was cut is not simply tried on this machine alone."""
    assert describe_artifact(replace(artifact(), missing=("avx2",)), TOP1) == "no case of it on avx2"


def test_one_failure_makes_no_artifact_safe():
    """Safe on one of two hosts is not safe everywhere."""
    failed = on_avx2(host="avx512", status="failed", reason="SIGILL")
    assert not describe_artifact(artifact(on_avx2(outputs=SAME), failed), TOP1).startswith("safe")


def test_the_order_of_speed_is_told_for_each_host():
    """One line where hosts agree, one for each where they do not."""
    slow = artifact(on_avx2(p50_seconds=0.004))
    fast = artifact(on_avx2(p50_seconds=0.003), variant="static · fbgemm")
    fast = replace(fast, hosts=(replace(NATIVE, p50_seconds=0.002), fast.hosts[1]))
    assert list_speed_orders([slow, fast]) == (
        "net: order of speed on native: static · onednn < static · fbgemm",
        "net: order of speed on avx2: static · fbgemm < static · onednn",
    )
    assert len(list_speed_orders([slow, slow])) == 1
    assert list_speed_orders([artifact()]) == ()


def test_the_table_and_the_json_hold_every_host():
    """One row for each host beside this machine; the JSON holds this machine's answer, too."""
    answers = (artifact(on_avx2(outputs=SAME), on_avx2(host="avx512", status="skipped", reason="old")),)
    assert [row[1:3] for row in make_table(answers, TOP1).rows] == [("avx2", "same"), ("avx512", "skipped")]
    data = json.loads(as_json("demo", answers, TOP1))
    assert [host["host"] for host in data["artifacts"][0]["hosts"]] == ["native", "avx2", "avx512"]
    assert data["artifacts"][0]["sentence"].startswith("net, static · onednn: safe")


def on_haswell(differing, agreement, **changes):
    """The answer of an emulated CPU for a few examples."""
    outputs = OutputChange(n=20, differing=differing, largest=0.3 if differing else 0.0, agreement=agreement)
    plain = HostAnswer(case="net/static/onednn/t1/b1/qemu:Haswell", host="qemu:Haswell", status="ok", facts=EMULATED)
    return replace(plain, outputs=outputs, **changes)


@pytest.mark.parametrize(
    ("answers", "start", "said"),
    [
        ((on_haswell(0, 1.0),), "the same bits on qemu:Haswell", "the 20 examples of 1,000 that are nearest to"),
        ((on_haswell(3, 1.0, same_as=("avx2",)),), "on qemu:Haswell 3 of the 20", "those of avx2; that is no"),
        ((on_haswell(3, 0.95),), "on qemu:Haswell 3 of the 20", "95.0 % with the same class"),
        ((on_avx2(outputs=SAME), on_haswell(3, 1.0)), "safe everywhere that was tried: ", "3 of the 20"),
        ((on_avx2(outputs=SAME), on_haswell(0, None)), "safe everywhere that was tried: ", "the same bits on qemu"),
        ((on_avx2(outputs=SAME), on_haswell(3, None)), "the same bits on avx2", "by up to 0.3; that is no accuracy"),
        ((on_avx2(outputs=SAME), on_haswell(3, 0.95)), "the same bits on avx2", "95.0 % with the same class"),
    ],
)  # fmt: skip
def test_a_few_emulated_examples_show_no_artifact_safe(answers, start, said):
    """They are told as which they are, without an accuracy or a verdict; a class that turned is no safety elsewhere."""
    sentence = describe_artifact(artifact(*answers), TOP1)
    assert sentence.startswith(start)
    assert said in sentence
    assert "points" not in sentence
    row = make_table((artifact(answers[-1]),), TOP1).rows[0]
    assert row[2] == f"{20 - answers[-1].outputs.differing} of 20 same"
    assert row[6] == ""


TABLE = [
    "artifact               host    bits     largest  same class               top1  vs native  vs fp32",
    "net · static · onednn  avx2    other        5.4      85.0 %  -6.0 [-7.6, -4.6]  FAIL       FAIL",
    "net · static · onednn  avx512  other        5.4                              —",
    "net · static · onednn  vnni    unknown                                       —",
    "net · static · onednn  arm     failed",
]


def test_a_row_tells_bits_sizes_and_both_verdicts():
    """What is not known is left out; a host that did not run has its status alone."""
    test = noninferiority.assess_counts(10, 70, 1000, 0.01)
    answers = (
        on_avx2(outputs=OTHER, against_native=test, against_fp32="FAIL"),
        on_avx2(host="avx512", outputs=replace(OTHER, agreement=None)),
        on_avx2(host="vnni"),
        on_avx2(host="arm", status="failed", reason="SIGILL", outputs=SAME, against_fp32="PASS"),
    )
    assert align(make_table([artifact(*answers)], TOP1)).splitlines() == TABLE
    assert make_table([artifact(*answers)], None).columns[5] == "metric"
    assert list_sentences([artifact(answers[3])], None) == ("net, static · onednn: failed on arm (SIGILL).",)


def test_the_order_of_speed_is_that_of_what_was_timed_everywhere():
    """An artifact that was timed on some hosts alone is left out, and one host, or one artifact, has no order."""
    both = [
        artifact(on_avx2(p50_seconds=seconds), variant=name) for name, seconds in (("slow", 0.004), ("fast", 0.003))
    ]
    both = [
        replace(each, hosts=(replace(NATIVE, p50_seconds=each.hosts[1].p50_seconds), each.hosts[1])) for each in both
    ]
    same = ("net: the order of speed is the same on native and avx2: fast < slow",)
    assert list_speed_orders(both) == same
    assert list_speed_orders([*both, artifact(variant="here alone")]) == same
    assert list_speed_orders([both[0], replace(both[1], model="other")]) == ()
    assert list_speed_orders([replace(each, hosts=each.hosts[:1]) for each in both]) == ()


def test_the_json_has_what_is_known_alone():
    """Without a metric none is named."""
    data = json.loads(as_json("demo", (artifact(on_avx2(outputs=SAME)),), None))
    assert (data["schema"], data["suite"], data["metric"], data["order_of_speed"]) == (1, "demo", None, [])
    assert json.loads(as_json("demo", (), TOP1))["metric"] == "top1"


def test_an_emulated_host_of_which_nothing_is_stored_is_said_to_tell_nothing():
    """Nor is its artifact safe everywhere for it; which examples it answered is known or there is nothing to tell."""
    silent = replace(on_haswell(0, 1.0), outputs=None)
    nothing = "nothing to compare on qemu:Haswell: the outputs of it and of native are not both stored"
    sentence = describe_artifact(artifact(on_avx2(outputs=SAME), silent), TOP1)
    assert sentence == f"the same bits on avx2, 1,000 examples; {nothing}"
    unnamed = on_haswell(0, 1.0, facts=replace(EMULATED, examples=None))
    assert describe_artifact(artifact(unnamed), TOP1) == nothing


def test_an_undecided_loss_says_why_or_that_more_examples_would_tell():
    """And what is not stored of the outputs is not told."""
    few = noninferiority.assess_counts(0, 6, 1000, 0.01)
    plain = on_avx2(against_native=few, facts=None)
    change = TOP1.show_change(few.delta)
    assert describe_artifact(artifact(plain), TOP1) == f"undecided on avx2 (top1 {change}; more examples would tell)"
    told = replace(plain, against_native=replace(few, reason="too few"))
    assert describe_artifact(artifact(told), TOP1) == f"undecided on avx2 (top1 {change}; too few)"


def test_the_json_is_a_key_a_line_with_letters_as_they_are():
    """And ends its last line."""
    text = as_json("d\u00e9mo", (), TOP1)
    assert text.startswith('{\n "schema": 1,\n "suite": "d\u00e9mo",\n')
    assert text.endswith("\n}\n")
