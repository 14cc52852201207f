"""Rules of qbench/running/runtimes_stage.py: which cases are held against each other, and what is written down."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qbench.errors import WorkerError
from qbench.evaluate.runtime_difference import Difference
from qbench.record.schema import Accuracy, OtherRuntime
from qbench.running import runtimes_stage
from qbench.running.evaluate_stage import EvaluatedCase
from qbench.running.runtimes_stage import compare_runtimes

BETWEEN = Difference(between_db=20.0, better_db=30.0, layer="conv")
SCORE = Accuracy(metric="top1", value=0.9, low=0.8, high=0.95, n=100)


def plan(case: str, *, host: str = "native", reference: str | None = None) -> Any:
    """A case of the backend that its name says."""
    variant = SimpleNamespace(id=f"variant of {case}", backend=case.partition("/")[0])
    held = None if reference is None else SimpleNamespace(id=reference)
    return SimpleNamespace(case=SimpleNamespace(id=case, variant=variant, host=host), reference=held)


def evaluated(file: str, accuracy: Accuracy | None = SCORE) -> EvaluatedCase:
    """A case with such predictions."""
    return EvaluatedCase(predictions=Path("run") / file, accuracy=accuracy, seconds=1.0)


@dataclass
class Stage:
    """A run of some cases, of which those of equal number behind the stroke are one network."""

    cases: dict[str, Any]
    known: dict[str, EvaluatedCase]
    asked: list[Any] = field(default_factory=list)
    told: list[Any] = field(default_factory=list)
    differing: Any = None
    between: Any = BETWEEN

    def run(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, EvaluatedCase]:
        def find_pairs(artifacts: Any) -> list[tuple[str, str]]:
            names = [name for name, _ in artifacts]
            return [(a, b) for n, a in enumerate(names) for b in names[n + 1 :] if a[-1] == b[-1]]

        def list_differing(variants: Any, **_: Any) -> Any:
            self.asked.append([(a.backend, b.backend) for a, b in variants])
            if isinstance(self.differing, Exception):
                raise self.differing
            return range(len(variants)) if self.differing is None else self.differing

        def difference(ours: Any, theirs: Any, data: Any, **_: Any) -> Any:
            assert data == "data"
            self.asked.append((ours, theirs))
            if isinstance(self.between, Exception):
                raise self.between
            return self.between

        for name, function in {
            "group_by_setting": lambda cases: {"all": cases},
            "pairs": find_pairs,
            "list_differing": list_differing,
            "difference": difference,
        }.items():
            monkeypatch.setattr(runtimes_stage, name, function)
        built = {
            planned.case.variant.id: SimpleNamespace(
                artifact=SimpleNamespace(
                    backend=planned.case.variant.backend, file=case, built=SimpleNamespace(format="f")
                )
            )
            for case, planned in self.cases.items()
        }
        context: Any = SimpleNamespace(
            tracker=SimpleNamespace(open_cases=lambda: list(self.cases.values())),
            progress=SimpleNamespace(
                stage=lambda *said: self.told.append(said), advance=lambda said: self.told.append(said)
            ),
            note_missing=lambda *said: self.told.append(said),
            report_under=lambda name: None,
            limits=None,
        )
        prepared: Any = SimpleNamespace(data="data")
        return compare_runtimes(context, prepared, built, self.known)  # type: ignore[arg-type]


def make(**known: EvaluatedCase) -> Stage:
    """A stage of cases by their names, of which each ``a`` or ``b`` is a runtime."""
    names = {name.replace("_", "/"): case for name, case in known.items()}
    return Stage(cases={name: plan(name) for name in names}, known=names)


def other(case: str) -> OtherRuntime:
    return OtherRuntime(case=case, between_db=20.0, better_db=30.0, layer="conv")


def test_two_that_differ_name_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """One without a score is named and names nobody; a third network is none of theirs."""
    stage = make(a_1=evaluated("a"), b_1=evaluated("b", None), a_2=evaluated("c"))
    result = stage.run(monkeypatch)
    assert result["a/1"].accuracy is not None
    assert result["a/1"].accuracy.other_runtime == other("b/1")
    assert (result["b/1"], result["a/2"]) == (stage.known["b/1"], stage.known["a/2"])
    assert stage.known["a/1"].accuracy == SCORE, "what was given stays as it was"
    assert stage.told == [("runtimes", 1), "a/1 and b"]


@pytest.mark.parametrize("between", [None, WorkerError("no memory")])
def test_what_rounding_explains_or_nobody_knows_is_not_named(monkeypatch: pytest.MonkeyPatch, between: Any) -> None:
    """Where it could not be looked at that is noted."""
    stage = make(a_1=evaluated("a"), b_1=evaluated("b"))
    stage.between = between
    assert stage.run(monkeypatch) == stage.known
    noted = [] if between is None else [("a/1", "not compared with b: no memory")]
    assert stage.told == [("runtimes", 1), *noted, "a/1 and b"]


def test_cases_that_share_predictions_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And all name what they differ from."""
    stage = make(a_t1_1=evaluated("a"), b_t1_1=evaluated("b"))
    stage.cases |= {"a/t2/2": plan("a/t2/2"), "b/t2/2": plan("b/t2/2")}
    stage.known |= {"a/t2/2": evaluated("a"), "b/t2/2": evaluated("b")}
    result = stage.run(monkeypatch)
    assert stage.asked[0] == [("a", "b")]
    assert len(stage.asked) == 2
    assert {name: case.accuracy.other_runtime for name, case in result.items() if case.accuracy} == {
        "a/t1/1": other("b/t1/1"), "b/t1/1": other("a/t1/1"), "a/t2/2": other("b/t2/2"), "b/t2/2": other("a/t2/2"),
    }  # fmt: skip


@pytest.mark.parametrize(("differing", "looked"), [([], 0), ([1], 1), (WorkerError("lost"), 2)])
def test_only_those_that_differ_at_a_first_look_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, differing: Any, looked: int
) -> None:
    """All of them where the process that looks is lost."""
    stage = make(a_1=evaluated("a"), b_1=evaluated("b"), a_2=evaluated("c"), b_2=evaluated("d"))
    stage.differing = differing
    result = stage.run(monkeypatch)
    assert len(stage.asked) == 1 + looked
    assert sum(case.accuracy.other_runtime is not None for case in result.values() if case.accuracy) == 2 * looked
    if looked == 1:
        ours, theirs = stage.asked[1]
        assert (ours.file, theirs.file, ours.format) == ("a/2", "b/2", "f")
        assert (ours.predictions, ours.fp32) == (Path("run/c"), None)


def test_only_cases_of_this_machine_that_were_evaluated_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two without a score now nothing would be written down; the reference's predictions are handed on."""
    stage = make(a_1=evaluated("a"), b_1=evaluated("b"), fp32_9=evaluated("f"))
    stage.cases |= {"c/1": plan("c/1"), "d/1": plan("d/1", host="avx2")}
    stage.known["d/1"] = evaluated("d")
    stage.cases["a/1"] = plan("a/1", reference="fp32/9")
    stage.cases["b/1"] = plan("b/1", reference="lost/9")
    stage.run(monkeypatch)
    assert stage.asked[0] == [("a", "b")]
    assert [each.fp32 for each in stage.asked[1]] == [Path("run/f"), None]
    unscored = make(a_1=evaluated("a", None), b_1=evaluated("b", None))
    assert unscored.run(monkeypatch) == unscored.known
    assert (unscored.told, unscored.asked) == ([], [])
