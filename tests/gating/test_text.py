"""Rules of qbench/gating/text.py: what a terminal shows, and that nothing in it is a command to a CI system."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from made_records import same_as_golden
from made_verdicts import FASTER, GATES, HOSTILE, SIZE, SLOW, UNSURE, hostile, make_gated

from qbench.foreign_text import CONTROL
from qbench.gating import github, junit, markdown, text
from qbench.gating.exit_codes import find_outcome


@pytest.mark.parametrize("name", GATES)
def test_every_outcome_has_its_words(name: str) -> None:
    """The golden file of each, and the outcome of the whole by what weighs on the exit code."""
    outcome, verdicts = GATES[name]
    assert find_outcome((verdict.effect, verdict.outcome) for verdict in verdicts) == outcome
    assert same_as_golden(f"gate_text_{name}.txt", text.text(make_gated(verdicts)) + "\n")


def test_no_line_is_a_command_to_the_runner() -> None:
    """GitHub's runner obeys lines that begin with `::`, blanks aside, and `##[` anywhere; a line break in a name starts
    no line."""
    shown = text.text(hostile())
    assert not re.search(r"^\s*::|##\[", shown, re.MULTILINE)
    assert not CONTROL.search(shown)
    assert len(shown.splitlines()) == 2 * 2 + 2


def test_what_weighs_most_comes_first() -> None:
    """FAIL, then what holds, then IMPROVED and PASS."""
    order = [verdict.outcome for verdict in text.worst_first([SIZE, FASTER, UNSURE, SLOW])]
    assert order == ["FAIL", "INCONCLUSIVE", "IMPROVED", "PASS"]


def test_notes_stand_in_every_output() -> None:
    """What a reader must know beside the verdicts; hostile text breaks out of none."""
    gated = replace(make_gated(GATES["pass"][1]), notes=("the rules changed", HOSTILE))
    assert "\nnote: the rules changed\n" in text.text(gated)
    assert not re.search(r"^\s*::|##\[", text.text(gated), re.MULTILINE)
    assert json.loads(text.as_json(gated))["notes"][0] == "the rules changed"
    assert "\n- the rules changed\n" in markdown.markdown(gated)
    assert len(github.github(gated).splitlines()) == 2
    assert "::notice title=qbench::the rules changed" in github.github(gated)
    suite = ElementTree.fromstring(junit.junit(gated)).find("testsuite")
    assert suite is not None
    assert str(suite.findtext("system-out")).startswith("the rules changed")


def test_json_is_strict_and_keeps_names_readable() -> None:
    """Letters are letters; a number that JSON does not have is an error, not another format."""
    shown = text.as_json(make_gated([replace(SIZE, case="é/x")]))
    assert '"case": "é/x"' in shown
    assert shown.startswith('{\n "schema": 1,\n "suite": "demo",\n')
    with pytest.raises(ValueError, match="not JSON compliant"):
        text.as_json(make_gated([replace(SIZE, value=float("nan"))]))


def test_json_says_what_each_verdict_does() -> None:
    """Raw times, and the effect on the exit code, which the suite may have settled."""
    data = json.loads(text.as_json(make_gated(GATES["pass_noted"][1])))
    assert data["outcome"] == "PASS"
    noted = data["verdicts"][0]
    assert (noted["outcome"], noted["effect"]) == ("INCONCLUSIVE", "note")
    assert noted["times"]["contender"] == 0.000445
