"""Rules of qbench/upgrade/text.py: the sentence first, a row per case and way, and nothing that breaks out."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from made_changes import CHANGE, make_upgraded
from made_runs import HOSTILE
from made_verdicts import SAME, SLOW

from qbench.portability.compare_hosts import OutputChange
from qbench.record.schema import Flips
from qbench.upgrade import text
from qbench.upgrade.sentence import write_sentence
from qbench.upgrade.upgrade import ANEW


def test_the_sentence_stands_first_and_the_outcome_last() -> None:
    """Between them the versions, what came along, the rows, and the verdicts that are no PASS."""
    upgraded = make_upgraded([SLOW], [SLOW], along={"numpy": ("2.4.6", "2.1.3"), "coloredlogs": (None, "15.0.1")})
    lines = text.text(upgraded).splitlines()
    assert lines[0] == write_sentence(upgraded)
    assert (
        lines[1] == "onnxruntime 1.30.0 -> 1.32.0; with it numpy 2.1.3 (was 2.4.6), coloredlogs 15.0.1 (was not there)"
    )
    assert lines[-1].endswith("exit code 1")
    assert [line.split()[0] for line in lines[3:6]] == ["case", CHANGE.case, CHANGE.case]
    assert "1.040 [1.030, 1.050]" in lines[4]
    assert "same bits (450)" in lines[4]
    assert "anew (the same bytes)" not in lines[4]
    assert sum(line.startswith("FAIL ") for line in lines) == 2


def test_a_verdict_that_passes_is_counted_and_not_listed() -> None:
    """Whoever reads the lines looks for what is to be done."""
    lines = text.text(make_upgraded([SAME], [SLOW])).splitlines()
    assert [line.split()[0] for line in lines if line.split()[:1] in (["PASS"], ["FAIL"])] == ["FAIL"]


def test_why_a_case_does_not_run_is_told_once() -> None:
    """Where it is the same of both ways; nothing else is in its row."""
    row = text.list_cells(replace(CHANGE, reason="opset 21"))
    assert (row[:3], set(row[3:]), len(row)) == ((CHANGE.case, "same", "does not run"), {""}, len(text.HEAD))
    gone = [replace(CHANGE, way=way, reason="opset 21") for way in ("kept", ANEW)]
    assert text.list_reasons(gone) == [f"{CHANGE.case} (same, anew) does not run: opset 21"]
    assert "opset 21" in text.text(make_upgraded([SLOW], [SLOW], changes=gone))


def test_layers_and_sizes_that_changed_are_in_the_row() -> None:
    """Those that run in int8 now with a plus; a size that stays is told once."""
    changed = replace(CHANGE, now_float=("layer4.0.conv1",), now_int8=("fc",), bytes_after=2000, first_layer="layer1")
    row = text.text(make_upgraded([SAME], [SAME], changes=[changed])).splitlines()[4]
    assert "layer4.0.conv1, +fc" in row
    assert "1.00 kB -> 2.00 kB" in row


OTHER_BITS = OutputChange(n=1450, differing=9, largest=0.1, agreement=1.0)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"outputs": None}, "—"),
        ({"outputs": replace(OTHER_BITS, differing=0)}, "same bits (1,450)"),
        ({"outputs": OTHER_BITS, "flips": None}, "9 of 1,450 in other bits"),
        (
            {"outputs": OTHER_BITS, "flips": Flips(harmful=3, beneficial=1), "first_layer": "conv1"},
            "9 of 1,450 in other bits, from conv1 on, 3 worse, 1 better",
        ),
    ],
)
def test_answers_are_told_as_far_as_they_are_known(changes: dict[str, Any], told: str) -> None:
    """Bits, from which layer on, and what is right or wrong."""
    assert text.list_cells(replace(CHANGE, **changes))[4] == told


def test_what_was_not_measured_is_a_dash() -> None:
    """Time, start and bytes; a file of the same bytes is told where it was built anew."""
    bare = replace(CHANGE, way=ANEW, time=None, start=None, bytes_after=None, peak_before=5)
    cells = text.list_cells(bare)
    assert cells[1] == "anew (the same bytes)"
    assert [cells[place] for place in (2, 3, 5, 6, 7, 8)] == ["—", "—", "—", "as before", "—", "—"]
    assert text.list_cells(replace(bare, same_file=False))[1] == "anew"
    assert text.list_cells(CHANGE)[1] == "same"
    assert text.list_cells(replace(CHANGE, peak_before=2000, peak_after=2000))[8] == "2.00 kB"


def test_markdown_has_a_mark_of_its_own_and_holds_what_is_hostile() -> None:
    """So that a bot does not write over the gate's comment."""
    hostile = replace(CHANGE, case=HOSTILE, name=HOSTILE, model=HOSTILE, reason=HOSTILE)
    comment = text.markdown(make_upgraded([SAME], [SAME], changes=[hostile]))
    assert comment.startswith("<!-- qbench-upgrade: demo -->\n**Upgrade: ")
    assert "qbench-gate" not in comment
    assert "<script" not in comment


def test_json_holds_everything() -> None:
    """Raw numbers, both gates."""
    written = text.as_json(make_upgraded([SAME], [SLOW]))
    assert written.startswith('{\n "schema": 1,\n "suite": "demo",\n')
    assert "µs" in written
    data = json.loads(written)
    assert data["way"] == "kept"
    assert data["exit_code"] == 0
    assert data["changes"][0]["time"]["value"] == 1.04
    assert {way: gate["exit_code"] for way, gate in data["gates"].items()} == {"kept": 0, "anew": 1}


def test_a_number_that_json_has_not_is_no_json() -> None:
    """Whoever reads it would choke on it."""
    endless = replace(CHANGE, outputs=replace(OTHER_BITS, largest=float("nan")))
    with pytest.raises(ValueError, match="not JSON compliant"):
        text.as_json(make_upgraded([SAME], [SAME], changes=[endless]))


def test_an_upgrade_of_no_case_is_told_without_a_level() -> None:
    """The columns are named all the same."""
    lines = text.text(make_upgraded([SAME], [SAME], changes=[])).splitlines()
    assert any("new over old, with limits ; of it the file" in line for line in lines)
