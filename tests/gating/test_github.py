"""Rules of qbench/gating/github.py: one escaped command a line, on the line of the rule."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from made_records import same_as_golden
from made_verdicts import FASTER, GATES, SLOW, hostile, make_gated

from qbench.foreign_text import CONTROL
from qbench.gating.github import MOST, github


@pytest.mark.parametrize("name", GATES)
def test_every_outcome_has_its_annotations(name: str) -> None:
    """The golden file of each: none where all pass, a warning where it holds, a notice for what is noted."""
    assert same_as_golden(f"gate_github_{name}.txt", github(make_gated(GATES[name][1])))


def test_names_cannot_start_a_command() -> None:
    """Line breaks, percent signs, colons and commas of names and reasons are escaped."""
    lines = github(hostile()).splitlines()
    assert len(lines) == 1
    assert re.match(r"::error file=suites/demo\.yaml,line=6,title=qbench FAIL%3A [^:,]*::", lines[0])
    assert "%250A" in lines[0]
    assert not CONTROL.search(lines[0])


def test_the_file_is_named_from_the_top_of_the_repository() -> None:
    """Also where the gate runs in a folder below it."""
    assert "file=ml/suites/demo.yaml,line=6," in github(make_gated([SLOW]), "ml")


def test_what_github_would_not_show_is_counted() -> None:
    """A step shows ten annotations of a kind: the tenth says how many more there are."""
    lines = github(make_gated([SLOW] * 25 + [FASTER] * MOST)).splitlines()
    assert [line.startswith("::error") for line in lines].count(True) == MOST
    assert "and 16 more" in lines[MOST - 1]
    assert [line.startswith("::notice") for line in lines].count(True) == MOST


@pytest.mark.parametrize(
    ("place", "where"),
    [
        ("/abs/demo.yaml:6", "file=/abs/demo.yaml,line=6,"),
        ("demo.yaml:6", "file=ml/demo.yaml,line=6,"),
        ("demo.yaml", ""),
        ("demo.yaml:gate", ""),
        (":6", ""),
        ("", ""),
    ],
)
def test_a_place_is_told_where_it_is_a_file_and_a_line(place: str, where: str) -> None:
    """A whole path is not taken for one below the folder; of what is no such place nothing is told."""
    assert github(make_gated([replace(SLOW, place=place)]), "ml").startswith(f"::error {where}title=qbench FAIL")
