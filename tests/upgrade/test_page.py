"""Rules of qbench/upgrade/page.py and picture.py: the answer first, every case and verdict, nothing that is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from made_changes import CHANGE, make_upgraded
from made_runs import HOSTILE, Page
from made_verdicts import GONE, SAME, SLOW, UNSURE

from qbench.foreign_text import CONTROL
from qbench.gating.verdict import Verdict
from qbench.upgrade import page, picture
from qbench.upgrade.sentence import write_sentence
from qbench.upgrade.upgrade import ANEW, Upgraded

CHANGES = (replace(CHANGE, now_float=("layer4.0.conv1",)), replace(CHANGE, way=ANEW, same_file=False))


def judge(kept: Sequence[Verdict], anew: Sequence[Verdict], changes: object = CHANGES) -> Upgraded:
    """An upgrade with these verdicts on the case of ``CHANGE``."""
    sides = [[replace(each, case=CHANGE.case) for each in verdicts] for verdicts in (kept, anew)]
    return make_upgraded(*sides, changes=changes, along={"numpy": ("2.4.6", "2.1.3")})  # type: ignore[arg-type]


def test_the_answer_stands_first_then_cases_then_verdicts() -> None:
    """The page says what the terminal says, with the outcome of each way beside its case."""
    upgraded = judge([SLOW], [SAME])
    source = page.render(upgraded)
    texts = (
        *(write_sentence(upgraded), "with it numpy 2.1.3 (was 2.4.6)", "exit code 0", "Time of a call"),
        *("same bits (450)", "What the gate says", "the whole interval is beyond", "Three arms"),
    )
    places = [source.index(text) for text in texts]
    assert places == sorted(places)
    pills = [cell["class"] for cell in Page(source).all("span") if str(cell.get("class")).startswith("pill")]
    assert pills[:2] == ["pill bad", "pill good"]


def test_it_needs_no_script_and_asks_for_nothing() -> None:
    """Its policy allows inline styles alone."""
    parsed = Page(page.render(judge([SLOW], [SAME])))
    assert parsed.all("script") == []
    policies = [meta["content"] for meta in parsed.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policies == [
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    ]


def test_names_are_text() -> None:
    """Markup and control characters of cases, layers and reasons."""
    hostile = replace(CHANGE, case=HOSTILE, name=HOSTILE, model=HOSTILE, now_float=(HOSTILE,), first_layer=HOSTILE)
    gone = replace(hostile, way=ANEW, reason=HOSTILE)
    verdict = replace(SLOW, case=HOSTILE, rule=HOSTILE, text=HOSTILE, reason=HOSTILE)
    source = page.render(replace(make_upgraded([verdict], [verdict], changes=[hostile, gone]), suite=HOSTILE))
    assert Page(source).all("script") == []
    assert HOSTILE not in source
    assert not CONTROL.search(source.replace("\n", ""))


def test_each_case_has_a_row_for_each_way_that_was_timed() -> None:
    """Below its name, with the gate's verdict on that very time; a case that does not run has none."""
    other = replace(CHANGE, case="net/static/onnxruntime/t1/b1", time=None, reason="opset 21")
    rows = picture.list_rows(judge([SLOW, GONE], [UNSURE], (*CHANGES, other)))
    assert [row.label for row in rows] == [CHANGE.case, "same file", "built anew"]
    assert [row.verdict and row.verdict.outcome for row in rows] == [None, "FAIL", "INCONCLUSIVE"]


def test_the_limit_of_the_suite_is_drawn_beside_the_interval() -> None:
    """In per cent, at the row that it holds for."""
    (axes,) = picture.draw(picture.list_rows(judge([SLOW], [SAME], CHANGES[:1]))).axes
    lines = [[round(float(x), 2) for x in line.get_xdata()] for line in axes.lines]
    assert lines == [[0, 0], [5, 5], [3, 5], [4]]


def test_a_page_of_what_was_not_timed_has_no_picture() -> None:
    """Where nothing runs, it says why."""
    gone = [replace(CHANGE, way=way, time=None, reason="opset 21") for way in ("kept", ANEW)]
    source = page.render(judge([GONE], [GONE], gone))
    assert "<svg" not in source
    assert "(same, anew) does not run: opset 21" in source
