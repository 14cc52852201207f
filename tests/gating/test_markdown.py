"""Rules of qbench/gating/markdown.py: one sentence, the changed rows, the rest folded; nothing in it breaks out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from made_records import info, same_as_golden
from made_verdicts import GATES, HOSTILE, IDENTICAL, SAME, SIZE, SLOW, SLOWER_WITHIN, hostile, make_gated

from qbench.foreign_text import CONTROL
from qbench.gating import markdown
from qbench.gating.verdict import Verdict
from qbench.record.commit import Commit
from qbench.record.stored_run import RunInfo


@pytest.mark.parametrize("name", GATES)
def test_every_outcome_has_its_comment(name: str) -> None:
    """The golden file of each: the marker, one sentence, what changed, and the rest folded."""
    comment = markdown.markdown(make_gated(GATES[name][1]))
    assert comment.startswith("<!-- qbench-gate: demo -->\n**qbench gate: ")
    assert same_as_golden(f"gate_markdown_{name}.md", comment)


def described(commit: Commit | None, **environment: object) -> RunInfo:
    """A run of that commit on CPU A with two cores, or on what is given."""
    return info(commit=commit, environment={"cpu": "CPU A", "cores_allowed": 2, **environment})


HEAD, BASE = Commit(sha="1a2b3c4d5e6f" * 3, changed=True), Commit(sha="9" * 40)


@pytest.mark.parametrize(
    ("run", "held", "text"),
    [
        (
            described(HEAD),
            described(BASE),
            "Run: commit `1a2b3c4d5` with changes, on CPU A (2 cores). Baseline: commit `999999999`, on the same kind "
            "of machine.",
        ),
        (
            described(None),
            described(BASE, cpu="CPU B", cores_allowed=1),
            "Run: of no known commit, on CPU A (2 cores). Baseline: commit `999999999`, on CPU B (1 core).",
        ),
        (
            described(BASE),
            described(BASE, isa=["avx2"]),
            "Run: commit `999999999`, on CPU A (2 cores). Baseline: commit `999999999`, on CPU A (2 cores) with other "
            "isa.",
        ),
        (info(commit=BASE, environment={}), None, "Run: commit `999999999`, on a CPU that is not named."),
    ],
)
def test_commit_and_machine_of_both_sides_are_named(run: RunInfo, held: RunInfo | None, text: str) -> None:
    """A reader of a pull request sees what was held against what, and whether that was on one kind of machine."""
    assert text in markdown.markdown(replace(make_gated([SIZE]), run=run, held=held)).split("\n")


def test_only_what_changed_is_open() -> None:
    """A slowdown within the tolerance is seen at once; identical artifacts and equal sizes are folded."""
    comment = markdown.markdown(make_gated([IDENTICAL, SIZE, SLOWER_WITHIN]))
    unfolded, _, folded = comment.partition("<details>")
    assert unfolded.count("| **PASS** |") == 1
    assert "+2.0 %" in unfolded
    assert folded.count("| **PASS** |") == 2
    assert "1 of them on artifacts identical to the baseline's" in folded


@pytest.mark.parametrize("outcome", ["FAIL", "PASS"])
def test_a_comment_always_fits(outcome: str) -> None:
    """Thousands of long rows: GitHub's limit holds, and the rows left out are counted, open ones and folded ones."""
    many = [replace(SLOW, outcome=outcome, low=1.0, case=f"{number}/{'x' * 2000}") for number in range(3000)]
    comment = markdown.markdown(make_gated([*many, *([SIZE] * 3000)]))
    assert len(comment) < markdown.MOST_CHARACTERS
    shown = comment.count("| **")
    left = sum(map(int, re.findall(r"and (\d+) more rows", comment)))
    assert shown + left == 6000
    assert comment.endswith("</details>\n")


REGRESSION, GROWTH = replace(SIZE, rule="top1 regression"), replace(SIZE, rule="size growth")


@pytest.mark.parametrize(
    ("verdict", "shown"),
    [
        (replace(SAME, low=1.0, high=1.02), False),
        (replace(SAME, low=1.0001, high=1.02), True),
        (replace(SAME, low=0.98, high=1.0), False),
        (replace(SAME, low=0.98, high=0.9999), True),
        (replace(SAME, low=None, high=None), False),
        (replace(SAME, low=1.1, high=1.2, identical=True), False),
        (replace(GROWTH, value=1.0), False),
        (replace(GROWTH, value=1.001), True),
        (replace(GROWTH, value=None), False),
        (replace(REGRESSION, value=0.0), False),
        (replace(REGRESSION, value=-0.001), True),
        (replace(REGRESSION, value=1.0), True),
        (replace(REGRESSION, value=None), False),
        (replace(SIZE, value=0.5), False),
        (replace(SLOW, settled="note", outcome="INCONCLUSIVE"), False),
        (replace(SLOW, settled="skip", outcome="MISSING"), True),
        (replace(SLOW, settled="note", outcome="IMPROVED"), True),
        (SLOW, True),
    ],
)
def test_a_row_is_open_where_it_weighs_or_shows_a_change(verdict: Verdict, shown: bool) -> None:
    """Of a PASS: limits of a time that leave out 1, another size, another score; on the very artifact none."""
    assert markdown.is_open(verdict) is shown


def test_a_table_has_the_rows_that_fit() -> None:
    """To the character; the others are counted."""
    rows = [SLOW, SAME, SIZE]
    whole = markdown._draw_table(rows, 10_000)
    assert markdown._draw_table(rows, len(whole)) == whole
    assert markdown._draw_table(rows, len(whole) - 1).endswith("\n… and 1 more rows, which the gate's own output has")
    assert markdown._draw_table(rows, len(whole) - 1).startswith(whole.rpartition("\n")[0])


def test_the_rows_that_are_open_take_their_share_of_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """42,000 of 60,000 characters; those that are folded take what is left but a thousand for what frames them."""
    asked: list[int] = []

    def draw(verdicts: Sequence[Verdict], characters: int) -> str:
        asked.append(characters)
        return "rows"

    monkeypatch.setattr(markdown, "_draw_table", draw)
    comment = markdown.markdown(make_gated([SLOW, SAME]))
    head, rows, folded = comment.rstrip("\n").split("\n\n", 2)
    assert rows == "rows"
    assert folded.startswith("<details>")
    assert asked == [42_000, 60_000 - len(head) - len(rows) - 1000]


@pytest.mark.parametrize(("length", "cut"), [(600, False), (601, True)])
def test_a_cell_is_cut_where_it_is_too_long(length: int, cut: bool) -> None:
    """To 600 characters, with a mark."""
    text = markdown._cut("x" * length)
    assert (len(text), text.endswith("…")) == (600, cut)


def test_a_baseline_that_is_a_commit_is_named_whole() -> None:
    """A file by its name, a commit by what it was called and its sha."""
    file, commit = make_gated([SIZE]), replace(make_gated([SIZE]), baseline=Path("feature/x@1a2b"), ref="feature/x")
    assert "held against `demo.jsonl`." in markdown.markdown(file)
    assert "held against `feature/x@1a2b`." in markdown.markdown(commit)


def test_hostile_words_stay_words() -> None:
    """No raw HTML, new cell, link, mention, reference, formula, comment or control character comes of a name."""
    comment = markdown.markdown(hostile())
    assert not CONTROL.search(comment)
    assert comment.count("<!--") == comment.count("-->") == 1
    assert "-->" not in markdown.marker("--> <b>")[5:-3]
    plain = re.sub(r"(?<!\\)`[^`]*`", "", comment)
    for broken in (r"\$", "@", r"(?<!&)#", "://", r"<(?!/?(details|summary|span)>|!--)"):
        assert not re.search(broken, plain), broken
    for row in (line for line in comment.splitlines() if line.startswith("| **")):
        assert row.replace("\\|", "").count("|") == 7
    assert HOSTILE not in comment
