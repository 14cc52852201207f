"""qbench.report.layers: what runs in int8, why the rest does not, and the layers that are farthest from fp32."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from made_records import CASE, case_key, fp32, info, int8

from qbench.errors import UsageError
from qbench.formatting import DASH
from qbench.record.schema import Coverage
from qbench.record.stored_run import StoredRun
from qbench.report.layers import coverage_text, layers, worst


def with_artifact(**changes):
    record = int8()
    return replace(record, artifact=replace(record.artifact, **changes))


def numbers(count):
    return [{"name": f"conv{i}", "sqnr_db": 30.0 - i, "cosine": 0.99, "n": 1000 + i} for i in range(count)]


def run(tmp_path, *records):
    return StoredRun(folder=tmp_path, info=info(), records=records)


def test_a_float_layer_is_named_with_its_reason_where_one_is_known():
    """Two float layers, one with a reason; int8 layers are counted, fp32 cases have no row."""
    coverage = Coverage(
        macs_int8=0.9, layers_int8=3, layers_total=5, float_layers=("lstm", "fc"), float_reasons={"lstm": "no kernel"}
    )
    table = layers([fp32(), with_artifact(coverage=coverage)])
    assert [row[0] for row in table.rows] == ["static · onednn"]
    assert table.rows[0][2] == "3 of 5"
    assert table.rows[0][4] == "lstm (no kernel), fc"


def test_rewrites_stand_beside_the_note():
    """What the network was rewritten into before it was quantized is told with what else a reader must know."""
    table = layers([with_artifact(note="slow here", rewrites=("bn1 folded into conv1", "pad folded into conv2"))])
    assert table.rows[0][6] == "slow here; rewritten: bn1 folded into conv1, pad folded into conv2"


def test_the_worst_layers_come_first_and_no_more_than_a_few(tmp_path):
    """Sorted by SQNR from the lowest, without those that could not be compared; cases of one variant share the rows."""
    (tmp_path / "layers").mkdir()
    apart = {"name": "lstm", "sqnr_db": None, "cosine": None, "n": 0, "reason": "not compared"}
    (tmp_path / "layers/a.json").write_text(json.dumps([apart, *numbers(8)]))
    case = replace(int8(), layers="layers/a.json")
    rows = worst(run(tmp_path, fp32(), case, case)).rows
    assert [row[1] for row in rows] == [f"conv{i}" for i in reversed(range(3, 8))]
    assert rows[0] == (CASE, "conv7", "23.0", "0.9900", "1,007", DASH)


def test_layers_that_clip_evaluation_data_are_shown_whatever_their_sqnr(tmp_path):
    """From one value in a thousand on, the most first; a layer of a runtime without SQNR has a dash there."""
    near = {"name": "near", "sqnr_db": 60.0, "cosine": 1.0, "n": 9, "clipped": 0.002}
    blind = {"name": "blind", "sqnr_db": None, "cosine": None, "n": 0, "reason": "not compared", "clipped": 0.25}
    fine = {**blind, "name": "fine", "clipped": 0.0009}
    (tmp_path / "layers.json").write_text(json.dumps([fine, near, blind, *numbers(5)]))
    rows = worst(run(tmp_path, replace(int8(), layers="layers.json"))).rows
    assert [(row[1], row[2], row[5]) for row in rows[5:]] == [("blind", DASH, "25.0 %"), ("near", "60.0", "0.2 %")]


def test_without_kept_numbers_there_are_no_rows(tmp_path):
    """A run that did not ask for them, or whose file was pruned, shows nothing."""
    assert worst(run(tmp_path, int8(), replace(int8(), layers="layers/gone.json"))).rows == ()


def test_a_damaged_file_is_named(tmp_path):
    """What is no list of layers is an error with the file and the way out."""
    (tmp_path / "layers.json").write_text("{}")
    with pytest.raises(UsageError, match=r"layers\.json: cannot be read as numbers of layers; delete it"):
        worst(run(tmp_path, replace(int8(), layers="layers.json")))


def test_variants_of_which_the_same_is_said_share_a_row():
    """Also those of several threads; another model has a row of its own."""
    cases = ("net/static/x86/t1/b1", "net/static/x86/t2/b1", "other/static/x86/t1/b1")
    table = layers([with_artifact(), *(replace(with_artifact(), case=case_key(case)) for case in cases)])
    assert [row[:2] for row in table.rows] == [("static · onednn, static · x86", "net"), ("static · x86", "other")]


def test_coverage_that_is_not_known_says_why() -> None:
    """No share, no dash: the reason."""
    reason = "how much b (MoE) multiplies cannot be counted"
    coverage = Coverage(macs_int8=None, layers_int8=1, layers_total=2, unknown=reason)
    assert coverage_text(coverage, "static") == "not known: how much b (MoE) multiplies cannot be counted"
    assert coverage_text(replace(coverage, macs_int8=0.5), "static") == "50.0 %"
    assert coverage_text(replace(coverage, unknown=None), "static") == DASH


@pytest.mark.parametrize(
    ("mode", "counted", "share"),
    [
        ("static", "12 of 13", "98.0 %"),
        ("bf16", "12 of 13 in bf16", "98.0 % in bf16"),
        ("weight_only", "12 of 13 with weights of few bits", "98.0 % with weights of few bits"),
    ],
)
def test_what_is_not_int8_is_said_beside_the_number(mode: str, counted: str, share: str) -> None:
    """The column's title names int8 alone; a layer without a reason is named, none at all is said."""
    (row,) = layers([int8(f"net/{mode}/openvino/t1/b1"), replace(int8("net/static/x86/t1/b1"), status="failed")]).rows
    assert (row[2], row[3], row[4], row[6]) == (counted, share, "fc", "")
    bare = with_artifact(coverage=Coverage(macs_int8=1.0, layers_int8=1, layers_total=1))
    assert layers([bare]).rows[0][4] == "none"


def test_what_was_not_rewritten_has_its_note_alone():
    """And nothing where nobody noted anything, or the runtime does not tell what it clips."""
    assert layers([with_artifact(note="slow here")]).rows[0][6] == "slow here"
    assert layers([with_artifact()]).rows[0][6] == ""


def test_a_layer_that_is_far_and_clips_stands_once(tmp_path):
    """Among the farthest; of those that clip alone as many follow."""
    far = [{**each, "clipped": 0.1} for each in numbers(5)]
    blind = [
        {"name": f"blind{i}", "sqnr_db": None, "cosine": None, "n": 0, "reason": "none", "clipped": 0.2 - 0.01 * i}
        for i in range(6)
    ]
    quiet = {"name": "quiet", "sqnr_db": None, "cosine": None, "n": 0, "reason": "none", "clipped": None}
    (tmp_path / "layers.json").write_text(json.dumps([*far, *blind, quiet]))
    names = [row[1] for row in worst(run(tmp_path, replace(int8(), layers="layers.json"))).rows]
    assert names == [*(f"conv{i}" for i in reversed(range(5))), *(f"blind{i}" for i in range(5))]
