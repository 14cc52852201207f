"""Rules of qbench/bisect/journal.py: a search goes on from its file, and from no other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from made_bisections import make_question

from qbench.bisect.journal import FILE, open_journal, read_journal
from qbench.bisect.question import Observation, Stopped
from qbench.errors import UsageError
from qbench.gating.sequential_test import ProcessPair

PAIR = ProcessPair(ratio=0.05, control=-0.01, drift=0.001, start=0.2, seconds=(0.001, 0.00105))
LOOKS = [
    Observation(candidate=0, runs=True, digest="a", seconds=1.5),
    Observation(candidate=8, pair=PAIR, digest="b"),
    Observation(candidate=4, stopped=Stopped(kind="fails", reason="it cannot load opset 21")),
    Observation(candidate=3, same=0),
    Observation(candidate=5, answers="answers-5.npz"),
]


def write(folder: Path) -> Path:
    """A journal with every kind of look."""
    journal = open_journal(folder, make_question())
    for look in LOOKS:
        journal.add(look)
    return journal.file


def test_what_was_kept_is_read_again(tmp_path: Path) -> None:
    """Number by number."""
    write(tmp_path / "new" / "folder")
    journal = open_journal(tmp_path / "new" / "folder", make_question())
    assert journal.observations == LOOKS


def test_a_line_that_a_kill_cut_is_left_out(tmp_path: Path) -> None:
    """And the file is whole again, so that the next line stands on its own."""
    file = write(tmp_path)
    file.write_text(file.read_text()[:-10])
    journal = open_journal(tmp_path, make_question())
    assert journal.observations == LOOKS[:-1]
    journal.add(LOOKS[-1])
    assert read_journal(file)[1:] == (LOOKS, True)


def test_a_first_line_without_its_end_is_made_whole(tmp_path: Path) -> None:
    """Else the first look would stand on it."""
    file = open_journal(tmp_path, make_question()).file
    head = file.read_text()
    file.write_text(head.rstrip("\n"))
    open_journal(tmp_path, make_question()).add(LOOKS[0])
    assert read_journal(file) == (make_question(), LOOKS[:1], True)
    assert file.read_text().startswith(head)


def test_a_whole_journal_is_left_as_it_lies(tmp_path: Path) -> None:
    """It is not written again, so that a kill can lose nothing of it."""
    file = write(tmp_path)
    before = file.stat().st_ino, file.read_bytes()
    open_journal(tmp_path, make_question())
    assert (file.stat().st_ino, file.read_bytes()) == before


def test_a_look_is_on_the_disk_when_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as the system tells: its line is there when that is asked to write it down."""
    journal, synced = open_journal(tmp_path, make_question()), []
    monkeypatch.setattr("os.fsync", lambda number: synced.append(journal.file.read_text().splitlines()))
    journal.add(LOOKS[0])
    ((_, line),) = synced
    assert json.loads(line) == {"candidate": 0, "runs": True, "digest": "a", "seconds": 1.5}


def test_a_journal_of_an_earlier_qbench_is_read(tmp_path: Path) -> None:
    """Its names and its schema, 1, are a contract."""
    asked = {"suite": "demo", "case": "net/static/onnxruntime/t1/b1", "on": "bits", "way": "layers", "of": "layers"}
    head = {
        "schema": 1,
        "question": {**asked, "candidates": ["all in float", "a", "b"], "mended": False, "digest": "d"},
    }
    looks = [{"candidate": 0, "answers": "answers-0-1.npz", "seconds": 1.5}, {"candidate": 2, "same": 0}]
    (tmp_path / FILE).write_text("".join(f"{json.dumps(line)}\n" for line in (head, *looks)))
    question, observations, whole = read_journal(tmp_path / FILE)
    assert (question.last, question.name(1), whole) == (2, "a in int8", True)
    assert observations == [
        Observation(candidate=0, answers="answers-0-1.npz", seconds=1.5), Observation(candidate=2, same=0),
    ]  # fmt: skip
    assert (observations[1].seconds, observations[1].runs) == (0, False)


def test_a_figure_that_is_none_is_not_written(tmp_path: Path) -> None:
    """A journal with it could not be read again."""
    journal = open_journal(tmp_path, make_question())
    with pytest.raises(ValueError, match="JSON"):
        journal.add(Observation(candidate=8, pair=replace(PAIR, ratio=float("nan"))))
    assert read_journal(journal.file)[1:] == ([], True)


@pytest.mark.parametrize(
    ("change", "named"),
    [({"on": "bits"}, "--on"), ({"digest": "1" * 64}, "what artifacts and examples are made from")],
)
def test_looks_of_another_question_are_refused(change: dict[str, str], named: str, tmp_path: Path) -> None:
    """With what differs, and what to do."""
    write(tmp_path)
    with pytest.raises(UsageError, match=rf"of another search \({named} differ\).*--out"):
        open_journal(tmp_path, replace(make_question(), **change))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json\n",
        "[]\n",
        '{"schema": 1}\n',
        '{"schema": 2, "question": {}}\n',
        '{"schema": 1, "question": {"suite": "demo"}}\n',
    ],
)
def test_what_is_no_journal_is_refused(text: str, tmp_path: Path) -> None:
    """Nothing of it is taken for a look."""
    (tmp_path / FILE).write_text(text)
    with pytest.raises(UsageError, match=FILE):
        open_journal(tmp_path, make_question())


@pytest.mark.parametrize(
    "line",
    [
        {"candidate": 99},
        {"candidate": 9},
        {"candidate": -1},
        {"candidate": 1, "pair": {"ratio": "x"}},
        {"candidate": 1, "answers": "../../secret.npz"},
    ],
)
def test_a_look_that_cannot_be_is_refused(line: dict[str, object], tmp_path: Path) -> None:
    """A candidate that there is none of, a pair without numbers, answers that lie elsewhere."""
    file = write(tmp_path)
    with file.open("a") as stream:
        stream.write(json.dumps(line) + "\n")
    with pytest.raises(UsageError, match=FILE):
        open_journal(tmp_path, make_question())
