"""What the verdicts of a gate come to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.gating.exit_codes import EXIT_CODES, OUTCOMES, find_exit_code, find_outcome, rank


@pytest.mark.parametrize(
    ("effects", "code"),
    [
        (["pass", "note", "skip"], 0),
        (["pass", "hold"], 4),
        (["hold", "invalid"], 3),
        (["invalid", "fail", "pass"], 1),
        ([], 3),
    ],
)
def test_the_worst_effect_is_the_exit_code(effects: Any, code: int) -> None:
    """A failure is certain, an invalid verdict says that nothing is known; nothing judged is nothing known."""
    assert find_exit_code(effects) == code


@pytest.mark.parametrize(
    ("settled", "outcome"),
    [
        ([], "MISSING"),
        ([("pass", "PASS"), ("pass", "IMPROVED")], "IMPROVED"),
        ([("pass", "PASS")], "PASS"),
        ([("note", "INCONCLUSIVE"), ("skip", "MISSING"), ("pass", "PASS")], "PASS"),
        ([("note", "INCONCLUSIVE"), ("pass", "IMPROVED")], "IMPROVED"),
        ([("hold", "INCONCLUSIVE"), ("pass", "IMPROVED")], "INCONCLUSIVE"),
        ([("hold", "MISSING"), ("pass", "PASS")], "INCONCLUSIVE"),
        ([("invalid", "MISSING"), ("hold", "INCONCLUSIVE")], "MISSING"),
        ([("invalid", "MISSING"), ("invalid", "INVALID")], "INVALID"),
        ([("invalid", "INVALID"), ("fail", "FAIL")], "FAIL"),
        ([("fail", "MISSING"), ("pass", "PASS")], "FAIL"),
    ],
)
def test_a_gate_comes_to_what_decides_its_exit_code(settled: Any, outcome: str) -> None:
    """What the suite lets pass is no reason to hold; a MISSING that it fails is a failure."""
    assert find_outcome(settled) == outcome


EFFECTS = st.sampled_from([(effect, outcome) for outcome, (effect, _) in OUTCOMES.items()])


@given(st.lists(EFFECTS, min_size=1))
def test_the_words_and_the_exit_code_never_contradict_each_other(settled: Any) -> None:
    """As each outcome does where the suite says nothing else."""
    outcome = find_outcome(settled)
    assert EXIT_CODES[OUTCOMES[outcome][0]] == find_exit_code([effect for effect, _ in settled])


def test_the_worst_comes_first() -> None:
    """By what weighs on the exit code, then by the outcome."""
    settled: Any = [
        ("pass", "PASS"),
        ("hold", "INCONCLUSIVE"),
        ("invalid", "MISSING"),
        ("invalid", "INVALID"),
        ("fail", "FAIL"),
    ]
    assert sorted(settled, key=lambda pair: rank(*pair)) == list(reversed(settled))
