"""Rules of qbench/report/cards.py: the first screen answers, with figures, how sure, and who is not it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from made_records import accuracy, failed, fp32, info, int8, latency, list_outputs, speedup

from qbench.decide.decision import decide
from qbench.decide.judged import Judged, SuiteRules, judge
from qbench.record.schema import ColdStart, Fastest, Memory, Record
from qbench.record.stored_run import MetricInfo, QuickInfo
from qbench.report.cards import Card, Tile, _name_fastest, _rows, _size_tile, cards
from qbench.report.ruling import rule
from qbench.suite.settings import DecideSpec

FASTEST = Fastest(baseline="net/fp32/torch/t1/b1", value=2.5, low=2.45, high=2.55)


def drawn(*records: Record, quick: QuickInfo | None = None) -> Card:
    """The one card of records of one setting."""
    judged: Judged = judge(records, MetricInfo(name="top1"), SuiteRules())
    decisions = decide(judged)
    (card,) = cards(decisions, judged, rule(judged, decisions), info(quick=quick))
    return card


def test_what_is_shipped_is_said_in_plain_words_with_four_figures() -> None:
    """Time, times the best fp32, the change of accuracy with its limit, size; each with its limits where it has any."""
    card = drawn(fp32(), int8(speedup_fastest=FASTEST))
    assert card.headline.startswith("net: ship static int8 on oneDNN (PyTorch): 2.5 times as fast")
    (candidate,) = card.candidates
    tiles = {tile.label: tile for tile in candidate.tiles}
    assert list(tiles) == ["time of a call", "times the best fp32", "accuracy change", "size against fp32"]
    assert (tiles["time of a call"].value, tiles["time of a call"].unit) == ("1.00", "ms")
    assert tiles["times the best fp32"].lines == ("best fp32: 2.50 ms", "on PyTorch")
    assert tiles["accuracy change"].lines == ("✓ OK (limit -1.0)", "1 lost, 1 gained in 1,000")
    assert tiles["size against fp32"].value == "26 %"
    assert candidate.work == "98.0 % of its work done in int8"


def test_outputs_that_nobody_judged_are_named_and_make_it_less_sure() -> None:
    """Beside the accuracy, in how sure it is, and as the first thing to know."""
    card = drawn(fp32(), int8(accuracy=replace(accuracy(), outputs=list_outputs("boxes"))))
    (candidate,) = card.candidates
    (tile,) = [tile for tile in candidate.tiles if tile.label == "accuracy change"]
    assert tile.lines[-1] == "of the first of 2 outputs"
    assert dict(card.rows)["How sure"] == (
        "Repeated, this would be chosen about every other time.",
        "No surer, since 1 of its 2 outputs was judged.",
    )
    assert card.warnings[0].startswith(
        "No label judges its output boxes (sqnr 31.2 dB): its accuracy is that of the first,"
    )


def test_who_is_not_it_is_counted_and_listed() -> None:
    """Each reason with its variants and how fast they are; the counts alone are read first."""
    slow = int8("net/dynamic/x86/t1/b1", latency=latency(0.005), speedup=speedup(0.5))
    lossy = int8("net/static/x86/t1/b1", accuracy=accuracy(harmful=60))
    card = drawn(fp32(), int8(), slow, lossy, failed("net/qat/x86/t1/b1"))
    assert {reason.counted for reason in card.reasons} == {
        "1 slower than fp32",
        "1 loses more accuracy than the margin",
        "1 failed",
    }
    variants = [name for reason in card.reasons for name in reason.variants]
    assert "dynamic int8 on x86 (PyTorch) (0.50 × fp32)" in variants  # noqa: RUF001
    assert card.not_it.count("1 ") == 3


def test_where_fp32_stays_the_figures_are_of_the_best_int8() -> None:
    """And that is said above them."""
    card = drawn(fp32(), int8(latency=latency(0.005), speedup=speedup(0.5)))
    assert card.headline.startswith("net: keep fp32 on PyTorch")
    assert card.aside == "The fastest int8 beside it:"
    assert card.sign.word == "keep fp32"


def test_a_first_look_is_a_warning_on_the_card() -> None:
    """Nobody ships by it unawares."""
    card = drawn(fp32(), int8(), quick=QuickInfo(examples=10, of=100))
    assert card.title == f"quick look at {drawn(fp32(), int8()).title}"
    assert "10 of 100 evaluation examples" in card.warnings[0]


def test_a_cut_run_has_an_incomplete_card() -> None:
    """What leads so far is no clear answer: the sign, the headline and the table say so."""
    judged = judge([fp32(), int8()], MetricInfo(name="top1"), SuiteRules(), planned=("net/qat/x86/t1/b1",))
    decisions = decide(judged)
    rulings = rule(judged, decisions)
    (card,) = cards(decisions, judged, rulings, info())
    assert (card.verdict, card.sign.symbol, card.sign.word) == ("incomplete", "?", "incomplete")
    assert card.headline.startswith("net: incomplete: 1 of 3 planned cases is missing")
    assert rulings["net/static/onednn/t1/b1"].word == "best so far"


def test_a_card_names_the_file_of_what_is_shipped_and_the_command_that_writes_it() -> None:
    """A sentence that says "ship" leads to the bytes; a card that ships nothing names none."""
    assert dict(drawn(fp32(), int8()).rows)["Its file"] == (
        "torchscript, 260 kB, sha256 000000000000…: qbench ship demo writes it as a folder to deploy.",
    )
    assert "Its file" not in dict(drawn(fp32()).rows)


def test_either_of_two_has_the_figures_of_both() -> None:
    """Whoever has to choose sees both; where one is shipped it stands alone."""
    second = int8("net/static/x86/t1/b1", accuracy=accuracy(harmful=9, beneficial=2), speedup_fastest=FASTEST)
    both = drawn(fp32(), int8(latency=latency(0.00125), speedup=speedup(2.0)), replace(second, latency=latency(0.0008)))
    assert both.headline.startswith("net: either")
    assert {candidate.name for candidate in both.candidates} == {
        "static int8 on x86 (PyTorch)",
        "static int8 on oneDNN (PyTorch)",
    }
    alone = drawn(fp32(), int8(speedup_fastest=FASTEST))
    assert len(alone.candidates) == 1


@pytest.mark.parametrize(
    ("minimize", "first"), [("memory", "100"), ("cold_start", "20.0"), ("size", None), ("latency", None)]
)
def test_what_is_minimized_beside_the_time_has_its_tile(minimize: str, first: str | None) -> None:
    """Before the others; a size has its own."""

    def cost(times: int) -> dict[str, Any]:
        start = ColdStart(load_seconds=0.01 * times, first_call_seconds=0.01 * times)
        return {"cold_start": start, "memory": Memory(loaded_rss_bytes=times * 10**8, peak_rss_bytes=None)}

    rules = SuiteRules(decide=DecideSpec.model_validate({"minimize": minimize}))
    judged = judge([replace(fp32(), **cost(2)), int8(**cost(1))], MetricInfo(name="top1"), rules)
    decisions = decide(judged)
    (card,) = cards(decisions, judged, rule(judged, decisions), info())
    tiles = card.candidates[0].tiles
    assert len(tiles) == (4 if first is None else 5)
    assert first is None or first in tiles[0].value


def test_a_size_is_told_against_fp32_where_that_is_known() -> None:
    """Alone without one; a dash where there is no file."""
    judged = judge([fp32(), int8()], MetricInfo(name="top1"), SuiteRules())
    assert _size_tile(int8(), judged, "size of both") == Tile(
        label="size of both", value="26 %", lines=("260 kB", "fp32: 1.00 MB")
    )
    alone = judge([int8()], MetricInfo(name="top1"), SuiteRules())
    assert _size_tile(int8(), alone, "size of both") == Tile(label="size", value="260 kB")
    assert _size_tile(replace(int8(), artifact=None), judged, "size") == Tile(label="size", value="—")


def list_rows(**facts: Any) -> dict[str, tuple[str, ...]]:
    """The rows of a card of a decision with these facts."""
    plain = {
        "probability": None, "capped": None, "deciding_step": None, "runner_up": None, "behind": None,
        "verdict": "ship", "tied": (), "tie": None, "would_change": (),
    }  # fmt: skip
    return dict(_rows(cast("Any", SimpleNamespace(**{**plain, **facts}))))


def test_the_next_best_is_named_where_one_is_shipped() -> None:
    """Else what decided stands with the tie; nothing where neither is known."""
    second = {"runner_up": int8(), "behind": "5 % slower", "deciding_step": "the size"}
    assert list_rows() == {}
    assert list_rows(**second) == {
        "Without it": ("static int8 on oneDNN (PyTorch), 5 % slower.", "What decided: the size.")
    }
    tied = list_rows(**second, tied=(int8().case.id,))
    assert tied["Without it"][0] == "static int8 on oneDNN (PyTorch), tied with it, 5 % slower."
    assert list_rows(**second, verdict="either") == {"Tie": ("What decided: the size.",)}
    assert list_rows(tie="of two") == {"Tie": ("of two",)}
    assert list_rows(would_change=("more examples",)) == {"What would change it": ("More examples",)}
    assert _list_fastest(None) == []
    assert _list_fastest(replace(fp32(), latency=None)) == []
    assert _list_fastest(fp32()) == ["best fp32: 2.50 ms", "on PyTorch"]


def _list_fastest(record: Record | None) -> list[str]:
    return list(_name_fastest(cast("Any", SimpleNamespace(fastest=record))))
