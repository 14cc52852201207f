"""qbench.plan.decision_rule: by what a suite decides, in two lines, and what of it has no effect."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qbench.plan.decision_rule import describe, make_decision_rule, note_idle_keys
from qbench.plan.planner import make_plan
from qbench.suite import Suite, parse, read

SMALL = "suite: s\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n"


def suite(*lines: str) -> Suite:
    """A suite with some more lines."""
    return parse(SMALL + "\n".join(lines) + "\n", file="s.yaml")


def test_the_defaults_are_shown() -> None:
    """A suite that says nothing is decided by latency, a tie of 3 % and one point of accuracy."""
    assert describe(make_decision_rule(suite())) == [
        "decide: the shortest latency; within 3 % of it by accuracy, no training, no calibration, size, cold start",
        "limits: top1 at most 1 point worse than fp32",
    ]


def test_every_limit_is_shown_those_of_the_gate_included() -> None:
    """The two lines name each limit with its unit."""
    rule = make_decision_rule(
        suite(
            "gate: {latency: {min_speedup: 1.5}, accuracy: {margin: 0.5}, size: {max_ratio: 35%}}",
            "decide: {minimize: memory, tie: 1%, prefer: [no_training], max_latency: 5 ms, max_memory: 200 MB}",
        )
    )
    assert describe(rule) == [
        "decide: the least memory; within 1 % of it by no training",
        "limits: top1 at most 0.5 points worse than fp32; size at most 35 % of fp32's; at least 1.5 times as fast as "
        "fp32; latency at most 5.00 ms; memory at most 200 MB",
    ]
    assert rule.limits == {
        "gate.accuracy.margin": 0.5,
        "gate.size.max_ratio": 0.35,
        "gate.latency.min_speedup": 1.5,
        "decide.max_latency": 0.005,
        "decide.max_memory": 200_000_000,
    }


@pytest.mark.parametrize(
    ("decide", "told"),
    [
        ("{tie: 0}", "decide: the shortest latency; nothing counts as tied"),
        ("{minimize: size, prefer: []}", "decide: the smallest size; what is within 3 % of it stays tied"),
        ("{minimize: cold_start, prefer: [size]}", "decide: the shortest cold start; within 3 % of it by size"),
    ],
)
def test_how_ties_are_broken(decide: str, told: str) -> None:
    """Also where nothing is tied, or nothing breaks a tie."""
    assert describe(make_decision_rule(suite(f"decide: {decide}")))[0] == told


def test_overrides_of_what_decides_are_counted() -> None:
    """A limit for some cases alone holds in the decision, too; a rule against the baseline does not decide."""
    rule = make_decision_rule(
        suite("gate: {overrides: [{mode: static, accuracy: {margin: 2}}, {mode: qat, latency: {max_regression: 10%}}]}")
    )
    assert describe(rule)[1].endswith("; 1 of gate.overrides gives some cases other limits")
    rule = make_decision_rule(
        suite("gate: {overrides: [{mode: static, size: {max_ratio: 30%}}, {mode: qat, latency: {min_speedup: 2}}]}")
    )
    assert describe(rule)[1].endswith("; 2 of gate.overrides give some cases other limits")
    assert "overrides" not in describe(make_decision_rule(suite()))[1]


def test_a_margin_of_what_is_no_share_has_no_points() -> None:
    """It is in the metric's own unit, and a hundred of those may be little."""
    named = suite("gate: {accuracy: {metric: mae, margin: 100}}")
    assert describe(make_decision_rule(named))[1] == "limits: mae at most 100 worse than fp32"
    assert note_idle_keys(named, memory_bytes=None) == []


def test_a_smallest_score_in_place_of_a_margin() -> None:
    """A metric against fp32 is limited as the suite says it."""
    rule = make_decision_rule(suite("gate: {accuracy: {metric: top1_agreement, at_least: 99}}"))
    assert describe(rule)[1] == "limits: top1_agreement at least 99"
    assert (rule.limits["gate.accuracy.at_least"], rule.limits["gate.accuracy.margin"]) == (99, None)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            ["decide: {minimize: size, prefer: [size]}"],
            "s.yaml:5: decide.prefer names size, which is minimized already",
        ),
        (
            ["decide: {tie: 0, prefer: [size]}"],
            "s.yaml:5: decide.prefer has no effect: with decide.tie 0 nothing is tied",
        ),
        (
            ["measure: {precision: 5%}", "decide: {tie: 1%}"],
            "s.yaml:6: decide.tie is finer than measure.precision (5 %): what differs by so little stays open",
        ),
        (
            ["measure: {protocol: sequential, spend: all}"],
            "s.yaml:5: measure.spend has no effect: protocol sequential measures every case alike",
        ),
        (
            ["measure: {protocol: sequential}", "gate: {latency: {min_speedup: 2}}"],
            "s.yaml:6: gate.latency.min_speedup cannot be shown to hold: protocol sequential gives no interval",
        ),
        (
            ["gate: {size: {max_ratio: 20%}}"],
            "s.yaml:5: gate.size.max_ratio is below 25 %, which int8 weights alone take of fp32's bytes: hardly any "
            "will do",
        ),
        (
            ["decide: {max_latency: 20 s}", "limits: {stage_seconds: 10.0}"],
            "s.yaml:5: decide.max_latency has no effect: limits.stage_seconds stops a case before that",
        ),
        (
            ["decide: {max_memory: 2 GB}", "limits: {memory_bytes: 1000000000}"],
            "s.yaml:5: decide.max_memory has no effect: limits.memory_bytes stops a case before that",
        ),
        (
            ["gate: {latency: {min_speedup: 1}}"],
            "s.yaml:5: gate.latency.min_speedup promises no gain: at 1 or less a variant may be as slow as its fp32",
        ),
        (
            ["gate: {size: {max_ratio: 120%}}"],
            "s.yaml:5: gate.size.max_ratio allows int8 to be as large as fp32: it rules next to nothing out",
        ),
        (
            ["gate: {accuracy: {margin: 100}}"],
            "s.yaml:5: gate.accuracy.margin is 100 points or more: no variant can lose so much",
        ),
        (
            ["gate: {accuracy: {margin: 0}}"],
            "s.yaml:5: gate.accuracy.margin is 0: only a variant that is shown to be more accurate than fp32 holds it",
        ),
        (
            ["decide: {max_memory: 16 GB}"],
            "s.yaml:5: decide.max_memory has no effect: this machine has 8.00 GB",
        ),
        (
            ["decide: {max_memory: 1 MB}"],
            "s.yaml:5: decide.max_memory is below 30.0 MB, which a process with any runtime takes: none will do",
        ),
    ],
)
def test_what_has_no_effect_is_a_note_at_its_place(lines: list[str], told: str) -> None:
    """It breaks nothing, but its author meant something by it."""
    assert note_idle_keys(suite(*lines), memory_bytes=8 * 10**9) == [told]


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["decide: {minimize: size}"],
        ["measure: {precision: 5%}"],
        ["measure: {protocol: sequential}"],
        ["decide: {max_latency: 5 ms, max_memory: 1 GB, tie: 2%}", "gate: {size: {max_ratio: 25%}}"],
        ["decide: {max_memory: 30 MB}"],
        ["measure: {precision: 5%}", "decide: {tie: 0}"],
        ["measure: {precision: 5%}", "decide: {minimize: size, tie: 1%}"],
        ["measure: {spend: all}"],
    ],
)
def test_a_sensible_suite_gets_no_note(lines: list[str]) -> None:
    """A default that happens to be idle is nobody's slip."""
    assert note_idle_keys(suite(*lines), memory_bytes=8 * 10**9) == []


@pytest.mark.parametrize(
    ("exactly", "less"),
    [
        (["decide: {max_latency: 10 s}", "limits: {stage_seconds: 10.0}"], ["decide: {max_latency: 9.9 s}"]),
        (["decide: {max_memory: 1 GB}", "limits: {memory_bytes: 1000000000}"], ["decide: {max_memory: 999 MB}"]),
        (["decide: {max_memory: 8 GB}"], ["decide: {max_memory: 7.99 GB}"]),
        (["gate: {size: {max_ratio: 100%}}"], ["gate: {size: {max_ratio: 99%}}"]),
        (["gate: {latency: {min_speedup: 1}}"], ["gate: {latency: {min_speedup: 1.01}}"]),
        (["gate: {accuracy: {margin: 100}}"], ["gate: {accuracy: {margin: 99}}"]),
    ],
)
def test_a_limit_has_no_effect_from_the_value_on_that_holds_anyway(exactly: list[str], less: list[str]) -> None:
    """That value itself rules nothing out; a little less may."""
    assert len(note_idle_keys(suite(*exactly), memory_bytes=8 * 10**9)) == 1
    assert note_idle_keys(suite(*less, *exactly[1:]), memory_bytes=8 * 10**9) == []


@pytest.mark.parametrize(
    ("exactly", "less"),
    [
        ("gate: {size: {max_ratio: 25%}}", "gate: {size: {max_ratio: 24.9%}}"),
        ("decide: {max_memory: 30000000 B}", "decide: {max_memory: 29999999 B}"),
        ("decide: {tie: 2%}", "decide: {tie: 1.9%}"),
    ],
)
def test_a_limit_that_can_just_be_held_gets_no_note(exactly: str, less: str) -> None:
    """The least size and memory that a variant takes, and a tie as fine as latency is measured; a little less is
    noted."""
    exact, finer = (
        note_idle_keys(suite("measure: {precision: 2%}", line), memory_bytes=None) for line in (exactly, less)
    )
    assert (len(exact), len(finer)) == (0, 1)


def test_memory_is_not_held_against_a_machine_that_does_not_tell() -> None:
    """Nor is a limit that the suite sets itself named twice."""
    assert note_idle_keys(suite("decide: {max_memory: 16 GB}"), memory_bytes=None) == []
    both = suite("decide: {max_memory: 16 GB}", "limits: {memory_bytes: 9000000000}")
    assert len(note_idle_keys(both, memory_bytes=8 * 10**9)) == 1


@pytest.mark.parametrize(("labels", "metric"), [("test_labels", "top1"), ("other", "top1_agreement")])
def test_data_that_is_known_to_have_no_labels_is_not_planned_with_a_score_on_them(
    labels: str, metric: str, tmp_path: Path
) -> None:
    """An npz file says before it is read whether the evaluation split has labels; a metric that is named stays."""
    inputs = np.zeros((4, 2), np.float32)
    np.savez(tmp_path / "x.npz", train_inputs=inputs, test_inputs=inputs, **{labels: np.zeros(4, int)})
    (tmp_path / "s.yaml").write_text("suite: s\nmodels: [digits-cnn]\ndata: {dataset: {npz: x.npz}}\nmatrix: {}\n")
    rule = make_plan(read(tmp_path / "s.yaml"), cores=1).decision
    assert rule is not None
    assert (rule.metric, rule.limit_texts[0]) == (metric, f"{metric} at most 1 point worse than fp32")
    named = make_plan(read(tmp_path / "s.yaml", ["gate.accuracy.metric=top5"]), cores=1).decision
    assert named is not None
    assert named.metric == "top5"
