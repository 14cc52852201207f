"""Rules of qbench/upgrade/sentence.py: what to do, and the one reason, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from made_changes import CHANGE, make_upgraded
from made_verdicts import SAME, SIZE, SLOW, UNSURE

from qbench.portability.compare_hosts import OutputChange
from qbench.record.schema import Flips
from qbench.stats.interval_type import Interval
from qbench.upgrade.case_change import CaseChange
from qbench.upgrade.sentence import say_answers, say_time, write_sentence

ANEW = replace(CHANGE, way="anew")
FASTER = replace(CHANGE, time=Interval(value=1 / 1.04, low=0.95, high=0.97))
NAME = CHANGE.name


def of_case(verdict: object, **changes: object) -> object:
    """The verdict on the case of ``CHANGE``."""
    return replace(verdict, case=CHANGE.case, **changes)  # type: ignore[type-var]


def test_one_case_is_said_by_name() -> None:
    """With its time and its answers."""
    said = write_sentence(make_upgraded([SAME], [SAME], changes=[FASTER, ANEW]))
    assert said == f"Upgrade: {NAME} is 4.0 % faster, answers the same on all 450 examples, bit for bit"


def test_several_are_said_from_the_fastest_to_the_slowest() -> None:
    """With the models of both ends."""
    slow = replace(CHANGE, name="slow", model="m")
    said = write_sentence(make_upgraded([SAME], [SAME], changes=[slow, FASTER]))
    assert said.startswith(f"Upgrade: 2 int8 cases, from 4.0 % faster ({NAME}, digits-cnn) to 4.0 % slower (slow, m); ")
    assert said.endswith("answer the same on all 450 examples, bit for bit")


def test_where_one_way_holds_it_is_named_and_why_not_the_other() -> None:
    """To keep the files, or to build them anew."""
    slow, same = of_case(SLOW), of_case(SAME)
    kept = write_sentence(make_upgraded([same], [slow]))  # type: ignore[list-item]
    assert kept.startswith(f"Upgrade, and keep the files as they are: {NAME} is 4.0 % slower, ")
    assert f"; with files built anew, {NAME} (digits-cnn): 1.040 [1.030, 1.050] times as long" in kept
    anew = write_sentence(make_upgraded([slow], [same]))  # type: ignore[list-item]
    assert anew.startswith("Upgrade, and build the files anew: ")
    assert "; with the files as they are, " in anew


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (CHANGE, f"Do not: {NAME} (digits-cnn): 1.040 [1.030, 1.050] times as long"),
        (
            replace(CHANGE, now_float=("layer4.0.conv1",)),
            f"Do not: layer4.0.conv1 of {NAME} (digits-cnn) now runs in float, 1.040 [1.030, 1.050] times as long",
        ),
        (
            replace(CHANGE, now_float=("a", "b", "c", "d")),
            f"Do not: a, b, c and 1 more layers of {NAME} (digits-cnn) now run in float, 1.040 [1.030, 1.050] times "
            "as long",
        ),
        (
            replace(CHANGE, now_float=("a", "b")),
            f"Do not: a, b of {NAME} (digits-cnn) now run in float, 1.040 [1.030, 1.050] times as long",
        ),
        (
            replace(CHANGE, now_float=("a", "b", "c")),
            f"Do not: a, b, c of {NAME} (digits-cnn) now run in float, 1.040 [1.030, 1.050] times as long",
        ),
        (
            replace(CHANGE, time=None),
            f"Do not: {NAME} (digits-cnn): {SLOW.rule}  {SLOW.text}  {SLOW.reason}",
        ),
        (
            replace(CHANGE, reason="cannot load\nopset 21"),
            f"Do not: {NAME} (digits-cnn) does not run: cannot load opset 21",
        ),
    ],
)
def test_what_stands_in_the_way_is_named(change: CaseChange, said: str) -> None:
    """The layer, where one runs in float; what the runtime says, where it does not load."""
    slow = of_case(SLOW)
    assert write_sentence(make_upgraded([slow], [slow], changes=[change])) == said  # type: ignore[list-item]


def test_a_rule_that_is_not_of_time_is_told_with_its_numbers() -> None:
    """And a case that the old side has not, by its verdict alone."""
    broken = of_case(SIZE, outcome="FAIL", reason="too large")
    said = write_sentence(make_upgraded([broken], [broken], changes=[CHANGE]))  # type: ignore[list-item]
    assert said == f"Do not: {NAME} (digits-cnn): {SIZE.rule}  {SIZE.text}  too large"
    unsure = replace(UNSURE, case="another", reason="why")
    assert write_sentence(make_upgraded([unsure], [unsure])) == "Undecided: another: why"


def test_the_fp32_that_does_not_run_is_named() -> None:
    """Without it no int8 case of the same runtime has anything to be compared with."""
    gone = replace(UNSURE, outcome="FAIL", kind="case", case="net/fp32/onnxruntime/t1/b1", reason="build: opset 21")
    said = write_sentence(make_upgraded([gone], [gone]))
    assert said == "Do not: fp32 on ONNX Runtime (net) does not run: build: opset 21"


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ((0.99, 0.98, 1.01), "as fast as before"),
        ((1.02, None, None), "as fast as before"),
        ((0.97, 0.86, 1.11), "as fast as before within 16 %"),
        ((0.5, 0.4, 0.6), "100 % faster"),
        ((1.05, 1.04, 1.06), "5.0 % slower"),
        ((1.31, 1.2, 1.4), "1.3 times as slow"),
        ((1.2, 1.15, 1.25), "1.2 times as slow"),
        ((1.19, 1.15, 1.25), "19 % slower"),
        ((1.04, 1.0, 1.0499), "as fast as before"),
        ((0.97, 1 / 1.0499, 1.0), "as fast as before"),
        ((0.97, 0.9, 1.0), "as fast as before within 11 %"),
        ((1.03, 1.0, 1.06), "as fast as before within 6.0 %"),
        ((0.999, 0.99, 0.9999), "0.1 % faster"),
        ((1.02, None, 1.03), "as fast as before"),
        ((1.02, 1.01, None), "as fast as before"),
        ((1.096, 1.09, 1.1), "10 % slower"),
        ((1.0949, 1.09, 1.1), "9.5 % slower"),
    ],
)
def test_a_time_in_words(limits: tuple[float, float | None, float | None], said: str) -> None:
    """Within its limits nothing has changed, which wide ones do not say alone; beyond 20 % it is said as a factor."""
    assert say_time(Interval(value=limits[0], low=limits[1], high=limits[2])) == said


OTHER_BITS = OutputChange(n=450, differing=9, largest=0.1, agreement=1.0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([replace(CHANGE, outputs=None)], "answers were not compared"),
        ([CHANGE, CHANGE], "answer the same on all 450 examples, bit for bit"),
        (
            [replace(CHANGE, outputs=OTHER_BITS, first_layer="layer2")],
            "answers the same on all 450 examples (in other bits, from layer2 on)",
        ),
        (
            [replace(CHANGE, outputs=OTHER_BITS, flips=Flips(harmful=3, beneficial=1)), CHANGE],
            "answer otherwise on 4 of 900 (3 worse, 1 better)",
        ),
        ([replace(CHANGE, outputs=OTHER_BITS, flips=None)], "gives other bits"),
        (
            [CHANGE, replace(CHANGE, outputs=OTHER_BITS, flips=None, first_layer="a")],
            "give other bits (in other bits, from a on)",
        ),
        ([replace(CHANGE, outputs=None), replace(CHANGE, outputs=OTHER_BITS)], "answer the same on all 450 examples"),
        (
            [replace(CHANGE, outputs=OTHER_BITS, flips=Flips(harmful=2, beneficial=2))],
            "answers otherwise on 4 of 450 (2 worse, 2 better)",
        ),
        (
            [replace(CHANGE, outputs=replace(OTHER_BITS, n=2000), flips=Flips(harmful=0, beneficial=1200))],
            "answers otherwise on 1,200 of 2,000 (0 worse, 1,200 better)",
        ),
        ([CHANGE, replace(CHANGE, outputs=replace(OTHER_BITS, n=1000))], "answer the same on all 1,000 examples"),
    ],
)
def test_answers_in_words(changes: Sequence[CaseChange], said: str) -> None:
    """Bits, then what is right or wrong, then that nobody can tell."""
    assert say_answers(changes) == said


def test_cases_that_nothing_timed_are_counted() -> None:
    """As where only a tool that builds was named."""
    said = write_sentence(make_upgraded([SAME], [SAME], changes=[replace(CHANGE, time=None)]))
    assert said.startswith("Upgrade: 1 int8 case was not timed again; answers the same")


def test_an_open_time_is_told_with_what_leaves_it_open() -> None:
    """And one of another case than the upgrade's, or of a rule, by its text or its reason."""
    unsure = of_case(UNSURE)
    said = write_sentence(make_upgraded([unsure], [unsure], changes=[CHANGE]))  # type: ignore[list-item]
    assert said == f"Undecided: {NAME} (digits-cnn): 1.040 [1.030, 1.050] times as long, {UNSURE.reason}"
    slow = replace(SLOW, case="net/fp32/onnxruntime/t1/b1", reason=None)
    assert write_sentence(make_upgraded([slow], [slow])) == (
        f"Do not: net/fp32/onnxruntime/t1/b1: {' '.join(SLOW.text.split())}"
    )
    two = [replace(CHANGE, time=None), replace(CHANGE, time=None, case="other")]
    assert write_sentence(make_upgraded([SAME], [SAME], changes=two)).startswith(
        "Upgrade: 2 int8 cases were not timed again; answer the same"
    )


def test_the_change_of_the_way_that_fails_is_told() -> None:
    """Of its own case, whatever else the two ways do to it and to others."""
    other = replace(CHANGE, case="other", name="another", way="anew", now_float=("x",))
    kept, anew = replace(CHANGE, name="as it was", now_float=("y",)), replace(ANEW, name="as it is now")
    slow, same = of_case(SLOW), of_case(SAME)
    said = write_sentence(make_upgraded([same], [slow], changes=[kept, other, anew]))  # type: ignore[list-item]
    assert said.endswith("; with files built anew, as it is now (digits-cnn): 1.040 [1.030, 1.050] times as long")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"outcome": "INCONCLUSIVE", "kind": "case"}, "Undecided: net/fp32/onnxruntime/t1/b1: why"),
        ({"outcome": "FAIL", "kind": "size"}, "Do not: net/fp32/onnxruntime/t1/b1: why"),
        ({"outcome": "INVALID", "kind": "case"}, "Do not: net/fp32/onnxruntime/t1/b1: why"),
    ],
)
def test_what_is_not_known_to_fail_is_not_said_not_to_run(changes: dict[str, str], said: str) -> None:
    """A case outside the upgrade is told by its id and the reason, with what the whole comes to."""
    verdict = replace(UNSURE, case="net/fp32/onnxruntime/t1/b1", reason="why", **changes)  # type: ignore[arg-type]
    assert write_sentence(make_upgraded([verdict], [verdict])) == said
