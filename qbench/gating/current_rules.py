"""The rules that a run is judged by: those of its suite's file as it stands now, since rules are edited after the run.

Only the rules are taken from there: models, data and the rest are those that the run was made with, and nothing that
the file names is executed. Where it is gone, the rules are those that the run was made with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qbench import consent
from qbench import suite as suites
from qbench.errors import UsageError
from qbench.record.schema import read_case_id
from qbench.record.stored_run import StoredRun
from qbench.suite import GateSpec, Suite
from qbench.suite.accuracy import LEAST_OF_ANY, OF_ANY_OUTPUTS
from qbench.suite.gate import note_idle_overrides as note_idle

# What a run does not depend on.
_JUDGING = ("gate", "decide")
EXAMPLE = """gate:
  latency: {max_regression: 5%}   # against the baseline, both run again
  accuracy: {margin: 1.0}         # percentage points, against fp32 and against the baseline's int8
  size: {max_growth: 1%}"""
_MARGIN = next(line for line in EXAMPLE.splitlines() if "accuracy:" in line)
_LEAST = f"  accuracy: {{metric: {OF_ANY_OUTPUTS}, at_least: {LEAST_OF_ANY:g}}}   # dB, against fp32's outputs"


def read_rules(run: StoredRun, explicit: Path | None = None, *, as_run: bool = False) -> tuple[Suite, tuple[str, ...]]:
    """The suite of a run with the rules to judge it by, and notes on what differs from when the run was made.

    ``explicit``: the file that the user names. ``as_run``: the rules that the run was made with, whatever the file says
    now. Raises ``SuiteError`` where the file is wrong, ``UsageError`` where it is another suite's or has no rule.
    """
    info = run.info.suite
    metric = None if run.info.metric is None else run.info.metric.name
    stored = suites.parse(info.text, file=info.file, overrides=info.overrides, stored=True)
    file = explicit or consent.find_suite(run.folder, info)
    if explicit is None and (as_run or not file.is_file()):
        require_rules(stored.gate, stored.place("gate"), written="gate" in stored.model_fields_set, metric=metric)
        why = f"{file} is not there; --suite FILE takes those of a file"
        silent = as_run or info.file.startswith("<")  # there never was a file
        notes = () if silent else (f"judged by the rules that the run was made with: {why}",)
        return _settle(stored, run), notes
    current = suites.read(file, info.overrides, stored=True)
    if current.suite != stored.suite:
        raise UsageError(f"{current.file}: this is suite '{current.suite}', the run is of '{stored.suite}'")
    require_rules(current.gate, current.place("gate"), written="gate" in current.model_fields_set, metric=metric)
    return _settle(stored.take_rules(current), run), tuple(_describe_changes(stored, current))


def require_rules(gate: GateSpec, place: str, *, written: bool, metric: str | None = None) -> None:
    """Raises ``UsageError`` with what to write where a suite has no gate, or one without a rule; ``metric`` is what
    the run was judged by, None: not known."""
    if not gate.has_rules:
        missing = "the gate has no rule" if written else "the suite has no gate section"
        example = EXAMPLE.replace(_MARGIN, _LEAST) if metric == OF_ANY_OUTPUTS else EXAMPLE
        raise UsageError(f"{place}: {missing}, so there is nothing to judge by; write, for example:\n{example}")


def _settle(suite: Suite, run: StoredRun) -> Suite:
    """The suite with the rules that hold for the metric that the run's data and networks decided on."""
    gate = suite.gate.settle_metric(None if run.info.metric is None else run.info.metric.name)
    return suite if gate is suite.gate else suite.model_copy(update={"gate": gate})


def _describe_changes(stored: Suite, current: Suite) -> list[str]:
    notes = []
    old, new = _list_rules(stored.gate), _list_rules(current.gate)
    changed = [
        f"{key} {_show(old, key)} -> {_show(new, key)}" for key in {**old, **new} if _show(old, key) != _show(new, key)
    ]
    if changed:
        notes.append(f"{current.file}: the rules changed after the run and hold as they are now: {', '.join(changed)}")
    differing = [name for name in stored.list_changes(current) if name not in _JUDGING]
    if differing:
        notes.append(
            f"{current.file}: since the run, {', '.join(differing)} changed; the gate judges what was run: "
            f"`qbench run {current.file}` runs what stands there now"
        )
    return notes


def note_idle_overrides(run: StoredRun, suite: Suite) -> tuple[str, ...]:
    """A note for each override of the rules that hold which is for no case that was planned; none for a run of some
    cases only, which does not tell what the others are."""
    if run.info.filter is not None:
        return ()
    plan = run.info.plan
    ids = {*plan.cases, *(skip.id for skip in plan.skipped), *run.by_id}
    cases = [key for case in sorted(ids) if (key := read_case_id(case)) is not None]
    return tuple(note_idle(suite.gate, cases, suite.place, of="this run"))


def _list_rules(gate: GateSpec) -> dict[str, Any]:
    """Every value that is written, by its key in the suite."""
    rules = {f"gate.{section}.{key}": value for section, key, value in gate.given()}
    rules |= {f"gate.missing.{side}": treatment for side, treatment in gate.missing}
    rules["gate.inconclusive"] = gate.inconclusive
    for number, override in enumerate(gate.overrides):
        rules[f"gate.overrides[{number}]"] = ", ".join(
            [f"{key}={value}" for key, value in override.selects.items()]
            + [f"{section}.{key}={value}" for section, key, value in override.given()]
            + ([f"inconclusive={override.inconclusive}"] if override.inconclusive else [])
        )
    return rules


def _show(rules: dict[str, Any], key: str) -> str:
    return "not written" if key not in rules else "null" if rules[key] is None else str(rules[key])
