"""Standard streams that are closed, full or unread, and odd names: one message, and a true exit code."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import onnx_networks
import pytest

from qbench.cli import main, streams
from qbench.errors import UsageError

QBENCH = [sys.executable, "-m", "qbench"]
ROOT = Path(__file__).parents[2]


def run_in_shell(redirection: str, *words: str, folder: Path = ROOT) -> tuple[int, str]:
    """The exit code and standard error of a command, as a shell starts it with a redirection."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    script = f'"$0" -m qbench "$@" {redirection}'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable, *words], cwd=folder, env=environment, stderr=subprocess.PIPE, check=False
    )
    return done.returncode, done.stderr.decode()


def test_a_closed_output_is_nowhere() -> None:
    """``>&-`` ends as ``>/dev/null`` does."""
    assert run_in_shell(">&-", "list") == (0, "")


def test_a_full_output_is_one_message() -> None:
    """A result that is lost is no success; Python says nothing of its own when it ends."""
    code, said = run_in_shell(">/dev/full", "schema")
    assert (code, said) == (1, "error: standard output cannot be written: No space left on device\n")


def test_an_output_that_nobody_reads_any_more_is_no_error() -> None:
    """As of ``qbench … | head -1``: the command goes on to its end, and its exit code is its own."""
    reading, writing = os.pipe()
    os.close(reading)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*QBENCH, "schema"], stdout=writing, stderr=subprocess.PIPE, env=environment, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_folder_that_is_gone_is_one_message(tmp_path: Path) -> None:
    """Relative names mean nothing there."""
    (tmp_path / "gone").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    script = 'cd gone && rmdir ../gone && exec "$0" -m qbench plan x.yaml'
    done = subprocess.run(["sh", "-c", script, sys.executable], cwd=tmp_path, env=environment, capture_output=True)
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: the folder that this runs in cannot be used (No such file or directory)")


@pytest.mark.parametrize("command", ["plan", "report", "compare", "export"])
def test_a_name_that_is_no_text_is_one_message(command: str) -> None:
    """Records and reports are UTF-8, which cannot hold it."""
    name = os.fsdecode(b"\xff.yaml")
    code, said = run_in_shell("", command, name)
    assert (code, said) == (
        2,
        "error: an argument, b'\\xff.yaml', is not UTF-8; give the file or the folder another name\n",
    )


@pytest.mark.parametrize(
    "words", [["report", "a\nPASS"], ["gate", "a", "--junit=b\nPASS"], ["plan", "a", "--filter", "b\nPASS"]]
)
def test_a_name_of_two_lines_is_one_message(words: list[str], tmp_path: Path) -> None:
    """Whoever gives a folder its name writes no line of a log; a value for a suite may have lines, as YAML has."""
    code, said = run_in_shell("", *words, folder=tmp_path)
    name = words[-1].encode("unicode_escape").decode()
    assert (code, said) == (
        2,
        f"error: an argument, '{name}', has a line break; give the file or the folder another name\n",
    )
    code, said = run_in_shell("", "plan", "no.yaml", "--set", "a=\n1", "--set=a=\n1", folder=tmp_path)
    assert (code, "no.yaml: cannot read the suite" in said) == (2, True)


@pytest.mark.parametrize("link", ["latest", "run"])
def test_a_run_whose_name_has_two_lines_is_one_message(link: str, tmp_path: Path) -> None:
    """A link, as somebody's folder may hold one, leads to any name; in a folder of runs no such name counts."""
    run = tmp_path / "reports" / "mine" / "20260101T000000Z-a\nPASS"
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    (run.parent / link).symlink_to(run.name)
    code, said = run_in_shell("", "report", "mine" if link == "latest" else "reports/mine/run", folder=tmp_path)
    assert (code, said.count("\n"), "\nPASS" in said) == (2, 1, False)
    assert "the path of this run has a line break" in said
    (run.parent / link).unlink()
    code, said = run_in_shell("", "report", "mine", folder=tmp_path)
    assert (code, said.startswith("error: mine: no run is there"), said.count("\n")) == (2, True, 1)


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["portability", "", "--here", "-q"], "behind portability"),
        (["report", "demo", "--compare", ""], "behind --compare"),
        (["run", "x.yaml", "--out="], "of --out"),
        (["export", "", "--format", "csv"], "behind export"),
        (["onnx", "config", "model.onnx", "-o", ""], "behind -o"),
        ([""], "behind qbench"),
    ],
)
def test_an_empty_argument_is_one_message(words: list[str], where: str, tmp_path: Path) -> None:
    """It is a shell's variable that is not set, and as a path it would be the working folder."""
    code, said = run_in_shell("", *words, folder=tmp_path)
    assert (code, said) == (
        2,
        f"error: the argument {where} is empty, as of a variable of the shell that is not set; leave it out, or name "
        "what is meant\n",
    )


@pytest.mark.parametrize("name", ["n" * 300, "loop"])
@pytest.mark.parametrize("command", ["plan", "report", "gate", "portability", "onnx config"])
def test_a_name_that_no_file_can_have_is_one_message(command: str, name: str, tmp_path: Path) -> None:
    """Too long, or a link to itself: the system's word is the message, whatever the command asks it."""
    (tmp_path / "loop").symlink_to("loop")
    code, said = run_in_shell("", *command.split(), name, folder=tmp_path)
    assert code == 2
    assert said.startswith("error: ")
    assert said.count("\n") == 1


def test_an_output_that_is_a_pipe_is_one_message(tmp_path: Path) -> None:
    """It is not replaced by a file, and not waited for."""
    onnx_networks.save(onnx_networks.mlp(), tmp_path)
    os.mkfifo(tmp_path / "pipe")
    code, said = run_in_shell("", "onnx", "config", "model.onnx", "-o", "pipe", folder=tmp_path)
    assert (code, said) == (2, "error: pipe: a named pipe, and a regular file is wanted\n")


def test_a_long_message_keeps_its_beginning_and_its_end() -> None:
    """What is wrong stands first, what to do last; between them is how much was left out."""
    text = streams.cut("a" * 20_000 + "z" * 5_000, 16_000)
    assert text == "a" * 12_000 + "\n… 9,000 letters left out …\n" + "z" * 4_000
    assert streams.cut("a" * 16_000) == "a" * 16_000
    assert "… 1 letters left out …" in streams.cut("a" * 16_001)


@pytest.mark.parametrize(("most", "shown"), [(None, 20_000), (16_000, 16_028)])
def test_only_messages_are_cut(most: int | None, shown: int) -> None:
    """A result goes out whole; who writes is told the length of what it gave."""
    written = io.StringIO()
    guarded = streams.GuardedStream(written, 2, most=most)
    assert guarded.write("a" * 20_000) == 20_000
    assert len(written.getvalue()) == shown


def test_a_message_that_is_long_is_cut_on_its_way_and_the_streams_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are guarded inside alone."""
    before = io.StringIO(), io.StringIO()
    for name, stream in zip(("stdout", "stderr"), before, strict=True):
        monkeypatch.setattr(sys, name, stream)
    with streams.guarded_streams():
        for stream in (sys.stdout, sys.stderr):
            print("a" * 20_000, end="", file=stream)
    assert (sys.stdout, sys.stderr) == before
    assert [len(stream.getvalue()) for stream in before] == [20_000, 16_028]


def test_messages_that_cannot_be_written_change_nothing() -> None:
    """There is nobody to tell: the exit code is the command's own."""
    assert run_in_shell("2>/dev/full", "plan", "none.yaml") == (2, "")


CLOSED = """
import os, sys
from qbench.cli.streams import open_closed_streams
open_closed_streams()
said = [stream.readable() for stream in (sys.stdin, sys.stdout, sys.stderr)]
number = sys.stdin.fileno()
text = sys.stdin.read()
for stream in (sys.stdin, sys.stdout):
    stream.close()
os.fstat(0), os.fstat(1)
os.write(int(os.environ["SAYS"]), repr((said, number, text)).encode())
"""


def test_what_was_closed_is_open_to_nowhere() -> None:
    """Under its own number, which stays taken; what is read of it is empty."""
    reading, writing = os.pipe()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SAYS": str(writing)}
    script = '"$0" -c "$1" <&- >&-'
    subprocess.run(["sh", "-c", script, sys.executable, CLOSED], env=environment, check=True, pass_fds=(writing,))
    os.close(writing)
    with os.fdopen(reading) as said:
        assert said.read() == "([True, False, False], 0, '')"


def test_a_terminal_that_lacks_a_letter_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows another in its place."""
    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding="ascii") for name in ("stdout", "stderr")}
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    monkeypatch.setattr(sys, "argv", ["qbench", "plan", "größe.yaml"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    streams["stderr"].flush()
    assert ended.value.code == 2
    assert b"gr??e.yaml" in streams["stderr"].buffer.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (["run", "s.yaml", "--set", "a=1\nb=2"], False),
        (["run", "s.yaml", "--set=a=1\nb=2"], False),
        (["run", "s.yaml", "--out", "a\nb"], True),
        (["run", "s.yaml", "--set", "a=1", "b\nc"], True),
        (["run", "--out="], True),
        (["run", "--set=a="], False),
        (["run", ""], True),
        (["run", "-o="], False),
        (["run", "a="], False),
        (["run", "größe.yaml"], False),
        (["run", os.fsdecode(b"a\x80")], True),
        (["run", os.fsdecode(b"a\xff")], True),
    ],
)
def test_which_arguments_are_no_names(words: list[str], refused: bool) -> None:
    """Empty ones, and those of several lines that are no text for a suite."""
    if refused:
        with pytest.raises(UsageError):
            main._require_names(words)
    else:
        main._require_names(words)
