"""Rules of qbench/cli/gate_output.py: files, and what GitHub's runner is told."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_verdicts import SIZE, SLOW, hostile, make_gated

from qbench.cli import gate_output
from qbench.errors import UsageError


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job of GitHub's that works in the folder ``ml`` of its repository; the file of its summary."""
    (tmp_path / "ml").mkdir()
    summary = tmp_path / "summary.md"
    summary.write_text("# from an earlier step\n")
    monkeypatch.chdir(tmp_path / "ml")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    return summary


def test_github_gets_annotations_and_a_summary(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The annotation is on the suite's line, named from the top; the summary grows."""
    gate_output.show(make_gated([SLOW, SIZE]), junit=None, markdown=None, github=True, as_json=False)
    assert "::error file=ml/suites/demo.yaml,line=6," in capsys.readouterr().out
    earlier, _, own = job.read_text().partition("\n")
    assert earlier == "# from an earlier step"
    assert own.startswith("<!-- qbench-gate: demo -->\n**qbench gate: FAIL**")


def test_json_stays_one_object(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What GitHub is told goes to the other stream."""
    with gate_output.without_commands(github=True, as_json=True):
        gate_output.show(make_gated([SLOW]), junit=None, markdown=None, github=True, as_json=True)
    captured = capsys.readouterr()
    assert json.loads(captured.out)["exit_code"] == 1
    assert captured.err.count("\n::error ") == 1


def test_nothing_that_a_suite_prints_is_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    """Between a stop with a word that nobody knows and that word, the runner takes no command; off GitHub there is
    none of this."""
    words = set()
    for _ in range(2):
        with gate_output.without_commands(github=True, as_json=False):
            print("::error::from a model's library")
        first, *_, last = capsys.readouterr().out.splitlines()
        word = re.fullmatch(r"::stop-commands::(\w{32})", first)
        assert word is not None
        assert last == f"::{word[1]}::"
        words.add(word[1])
    assert len(words) == 2
    with gate_output.without_commands(github=False, as_json=False):
        pass
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("as_json", [False, True])
def test_what_the_runner_is_told_is_there_at_once(monkeypatch: pytest.MonkeyPatch, as_json: bool) -> None:
    """Before a library prints past Python's own buffer; past the guard of names, on the stream beside the JSON."""
    told: list[str] = []

    class Stream:
        def write(self, text: str) -> None:
            told.append(text)

        def flush(self) -> None:
            told.append("flushed")

    guarded = SimpleNamespace(stream=Stream())
    monkeypatch.setattr(sys, "stderr" if as_json else "stdout", guarded)
    with gate_output.without_commands(github=True, as_json=as_json):
        before = len(told)
        assert told[-1] == "flushed"
    assert (told[-1], len(told)) == ("flushed", 2 * before)


def test_files_are_tried_before_anything_is_measured(tmp_path: Path) -> None:
    """A folder that is not there is one message at once, and a file of an earlier gate stays until it is replaced."""
    (tmp_path / "g.xml").write_text("earlier")
    gate_output.require_writable(tmp_path / "g.xml", None)
    assert (tmp_path / "g.xml").read_text() == "earlier"
    with pytest.raises(UsageError, match="no/g.md: cannot be written"):
        gate_output.require_writable(tmp_path / "no/g.md")


def test_without_a_job_there_is_no_summary(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """``--github`` at home prints annotations and nothing else; names stay words there, too."""
    for name in ("GITHUB_WORKSPACE", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    gate_output.show(hostile(), junit=None, markdown=None, github=True, as_json=False)
    commands = [line for line in capsys.readouterr().out.splitlines() if re.match(r"\s*::|.*##\[", line)]
    assert len(commands) == 1
    assert commands[0].startswith("::error file=suites/demo.yaml,line=6,")


@pytest.mark.parametrize(
    ("top", "here", "below"),
    [
        (None, "a/b", ""),
        ("", "a/b", ""),
        (".", "a/b", "a/b"),
        ("a", "a/b", "b"),
        ("a/b", "a/b", ""),
        ("a/c", "a/b", ""),
    ],
)
def test_a_file_is_named_from_the_top_of_its_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, top: str | None, here: str, below: str
) -> None:
    """Where GitHub says that it lies there; else by where this process works."""
    for folder in ("a/b", "a/c"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / here)
    environment = {} if top is None else {gate_output.WORKSPACE: str(tmp_path / top) if top else ""}
    assert gate_output._folder_below(environment) == below


def test_a_summary_that_cannot_be_written_is_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The verdict counts, not the page that shows it."""
    gate_output._add_to_summary(str(tmp_path / "gone" / "summary.md"), "text")
    captured = capsys.readouterr()
    assert captured.err.startswith(f"note: GITHUB_STEP_SUMMARY: {tmp_path}/gone/summary.md: cannot be written: ")
    gate_output._add_to_summary(None, "text")
    gate_output._add_to_summary("", "text")
    assert capsys.readouterr().err == ""
