"""Rules of qbench/report/cards.py: the first screen answers, with figures, how sure, and who is not it."""

from __future__ import annotations

from dataclasses import replace

from made_records import accuracy, failed, fp32, info, int8, latency, list_outputs, speedup

from qbench.decide.decision import decide
from qbench.decide.judged import Judged, SuiteRules, judge
from qbench.record.schema import Fastest, Record
from qbench.record.stored_run import MetricInfo, QuickInfo
from qbench.report.cards import Card, cards
from qbench.report.ruling import rule

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
    assert card.title.startswith("quick look at ")
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
