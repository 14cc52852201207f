"""By what a suite decides: what is minimized, tied and preferred, and every limit, those of ``gate`` included. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from qbench import formatting
from qbench.suite import Suite
from qbench.suite.accuracy import DEFAULTS, AccuracyGate
from qbench.suite.gate import GateOverride

_SMALLEST = {
    "latency": "the shortest latency",
    "size": "the smallest size",
    "cold_start": "the shortest cold start",
    "memory": "the least memory",
}
_PREFERENCES = {
    "accuracy": "accuracy",
    "no_training": "no training",
    "no_calibration": "no calibration",
    "size": "size",
    "cold_start": "cold start",
}
_DECIDING = ("accuracy.margin", "size.max_ratio", "latency.min_speedup")  # rules of the gate that decide, too
# Eight bits in place of 32: whatever the network, its int8 weights alone take this share of fp32's.
_LEAST_SIZE_RATIO = 0.25
# The resident set of Python with numpy alone, before a runtime and a network are loaded.
_LEAST_MEMORY = 30_000_000


@dataclass(frozen=True, kw_only=True)
class DecisionRule:
    """What is made small, what counts as tied, what decides among the tied; ``limits`` by the suite's key, and in
    ``limit_texts`` as a reader sees them. A limit that the suite does not set is null."""

    minimize: str
    tie: float
    prefer: tuple[str, ...]
    limits: Mapping[str, float | None]
    metric: str
    limit_texts: tuple[str, ...]


def make_decision_rule(suite: Suite) -> DecisionRule:
    """The rule by which a suite decides."""
    decide, gate, accuracy = suite.decide, suite.gate, suite.gate.accuracy
    metric = str(accuracy.metric) if suite.labelled or accuracy.is_named else DEFAULTS[1]
    return DecisionRule(
        minimize=decide.minimize,
        tie=decide.tie,
        prefer=decide.prefer,
        limits={
            **_name_accuracy(accuracy),
            "gate.size.max_ratio": gate.size.max_ratio,
            "gate.latency.min_speedup": gate.latency.min_speedup,
            "decide.max_latency": decide.max_latency,
            "decide.max_memory": decide.max_memory,
        },
        metric=metric,
        limit_texts=tuple(_describe_limits(suite, metric)),
    )


def _name_accuracy(accuracy: AccuracyGate) -> dict[str, float | None]:
    """A least score is no margin."""
    if accuracy.at_least is None:
        return {"gate.accuracy.margin": accuracy.margin}
    return {"gate.accuracy.margin": None, "gate.accuracy.at_least": accuracy.at_least}


def _describe_limits(suite: Suite, metric: str) -> Iterator[str]:
    """Each limit that the suite sets, in words."""
    decide, accuracy = suite.decide, suite.gate.accuracy
    if accuracy.at_least is not None:
        yield f"{metric} at least {accuracy.at_least:g}"
    else:
        points = f" {'point' if accuracy.margin == 1 else 'points'}" if accuracy.in_percent else ""
        yield f"{metric} at most {accuracy.margin:g}{points} worse than fp32"
    if (ratio := suite.gate.size.max_ratio) is not None:
        yield f"size at most {ratio * 100:g} % of fp32's"
    if (speedup := suite.gate.latency.min_speedup) is not None:
        yield f"at least {speedup:g} times as fast as fp32"
    if decide.max_latency is not None:
        yield f"latency at most {formatting.duration(decide.max_latency)}"
    if decide.max_memory is not None:
        yield f"memory at most {formatting.size(decide.max_memory)}"
    own = sum(any(key in _DECIDING for key in _list_keys(override)) for override in suite.gate.overrides)
    if own:
        yield f"{own} of gate.overrides {'gives' if own == 1 else 'give'} some cases other limits"


def _list_keys(override: GateOverride) -> Iterator[str]:
    return (f"{section}.{key}" for section, key, _ in override.given())


def describe(rule: DecisionRule) -> list[str]:
    """Two lines: what is shipped, and what holds for it."""
    if rule.tie == 0:
        ties = "nothing counts as tied"
    elif not rule.prefer:
        ties = f"what is within {rule.tie * 100:g} % of it stays tied"
    else:
        preferred = ", ".join(_PREFERENCES[name] for name in rule.prefer)
        ties = f"within {rule.tie * 100:g} % of it by {preferred}"
    return [f"decide: {_SMALLEST[rule.minimize]}; {ties}", f"limits: {'; '.join(rule.limit_texts)}"]


def note_idle_keys(suite: Suite, *, memory_bytes: int | None) -> list[str]:
    """What the suite sets for its decision without effect, or beyond reach, each with its place. ``memory_bytes``: of
    this machine."""
    idle = (*_find_idle_keys(suite), *_find_idle_limits(suite, memory_bytes), *_find_impossible_limits(suite))
    return [f"{suite.place(key)}: {key} {what}" for key, what in idle]


def _find_idle_keys(suite: Suite) -> Iterator[tuple[str, str]]:
    decide, measure = suite.decide, suite.measure
    if "prefer" in decide.model_fields_set and decide.minimize in decide.prefer:
        yield "decide.prefer", f"names {decide.minimize}, which is minimized already"
    if decide.prefer and decide.tie == 0 and "prefer" in decide.model_fields_set:
        yield "decide.prefer", "has no effect: with decide.tie 0 nothing is tied"
    if "tie" in decide.model_fields_set and 0 < decide.tie < measure.precision and decide.minimize == "latency":
        yield (
            "decide.tie",
            f"is finer than measure.precision ({measure.precision * 100:g} %): what differs by so little stays open",
        )
    if "spend" in measure.model_fields_set and measure.protocol == "sequential":
        yield "measure.spend", "has no effect: protocol sequential measures every case alike"


def _find_idle_limits(suite: Suite, memory_bytes: int | None) -> Iterator[tuple[str, str]]:
    """Limits that rule next to nothing out."""
    decide, gate, limits = suite.decide, suite.gate, suite.limits
    if gate.latency.min_speedup is not None and gate.latency.min_speedup <= 1:
        yield (
            "gate.latency.min_speedup",
            "promises no gain: at 1 or less a variant may be as slow as its fp32",
        )
    if gate.size.max_ratio is not None and gate.size.max_ratio >= 1:
        yield "gate.size.max_ratio", "allows int8 to be as large as fp32: it rules next to nothing out"
    if gate.accuracy.at_least is None and gate.accuracy.in_percent and gate.accuracy.margin >= 100:
        yield "gate.accuracy.margin", "is 100 points or more: no variant can lose so much"
    if decide.max_latency is not None and decide.max_latency >= limits.stage_seconds:
        yield "decide.max_latency", "has no effect: limits.stage_seconds stops a case before that"
    if decide.max_memory is None:
        return
    if limits.memory_bytes is not None and decide.max_memory >= limits.memory_bytes:
        yield "decide.max_memory", "has no effect: limits.memory_bytes stops a case before that"
    elif memory_bytes is not None and decide.max_memory >= memory_bytes:
        yield "decide.max_memory", f"has no effect: this machine has {formatting.size(memory_bytes)}"


def _find_impossible_limits(suite: Suite) -> Iterator[tuple[str, str]]:
    """Limits that hardly any variant holds, or that none can be shown to hold."""
    decide, gate = suite.decide, suite.gate
    if gate.latency.min_speedup is not None and suite.measure.protocol == "sequential":
        yield "gate.latency.min_speedup", "cannot be shown to hold: protocol sequential gives no interval"
    if gate.size.max_ratio is not None and gate.size.max_ratio < _LEAST_SIZE_RATIO:
        yield "gate.size.max_ratio", "is below 25 %, which int8 weights alone take of fp32's bytes: hardly any will do"
    if gate.accuracy.at_least is None and gate.accuracy.margin == 0:
        yield "gate.accuracy.margin", "is 0: only a variant that is shown to be more accurate than fp32 holds it"
    if decide.max_memory is not None and decide.max_memory < _LEAST_MEMORY:
        yield (
            "decide.max_memory",
            f"is below {formatting.size(_LEAST_MEMORY)}, which a process with any runtime takes: none will do",
        )
