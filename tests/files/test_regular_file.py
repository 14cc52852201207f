"""Files that somebody named: what is no regular file is refused at once, and what the caller handed on is read."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from qbench.files import atomic, regular_file


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_folder(path: Path) -> None:
    path.mkdir()


def make_loop(path: Path) -> None:
    path.symlink_to(path)


def make_link_to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket has at most 108 bytes
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(path.name)
    os.chdir(here)


def make_huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(regular_file.MOST_BYTES + 1)  # takes no room on the disk


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (make_pipe, "a named pipe, and a regular file is wanted"),
        (make_link_to_device, "a device, and a regular file is wanted"),
        (make_folder, "Is a directory"),
        (make_loop, "Too many levels of symbolic links"),
        (make_socket, "No such device or address"),
        (make_huge, "larger than the 1,073,741,824 bytes that are read"),
        (lambda path: None, "No such file or directory"),
    ],
)
def test_what_is_no_regular_file_is_an_error_at_once(make: Callable[[Path], None], why: str, tmp_path: Path) -> None:
    """Nothing is waited for, nothing is read without end, and the error says what lies there."""
    make(tmp_path / "file")
    for read in (regular_file.read_bytes, regular_file.read_text):
        with pytest.raises(OSError, match=why) as raised:
            read(tmp_path / "file")
        assert raised.value.filename == str(tmp_path / "file")


@pytest.mark.parametrize(("name", "why"), [("a" * 300, "File name too long"), ("a\0b", "no name of a file")])
def test_a_name_that_no_file_can_have_is_an_error_of_the_system(name: str, why: str, tmp_path: Path) -> None:
    """So that whoever names the file in a message does it in one place."""
    with pytest.raises(OSError, match=why):
        regular_file.read_bytes(tmp_path / name)


def test_a_link_to_a_regular_file_is_read(tmp_path: Path) -> None:
    """Data sets and runs are often linked; line ends become line feeds as in any text."""
    (tmp_path / "file").write_bytes("é\r\nx\n".encode())
    (tmp_path / "link").symlink_to("file")
    assert regular_file.read_text(tmp_path / "link") == "é\nx\n"


def test_what_grows_beyond_its_limit_while_it_is_read_is_refused(tmp_path: Path) -> None:
    """What comes is counted, not only what the status says: files of /proc say 0."""
    with pytest.raises(OSError, match="larger than the 10 bytes"):
        regular_file.read_bytes(Path("/proc/self/status"), 10)
    whole = regular_file.read_bytes(Path("/proc/version"))
    assert regular_file.read_bytes(Path("/proc/version"), len(whole)) == whole
    with pytest.raises(OSError, match="larger than"):
        regular_file.read_bytes(Path("/proc/version"), len(whole) - 1)


def test_a_text_is_written_over_or_behind_what_is_there(tmp_path: Path) -> None:
    """As UTF-8 with line feeds; nobody but the umask decides who may read it."""
    file = tmp_path / "a.txt"
    for append, content in ((False, "a long text\n"), (False, "\u00e9\n"), (True, "more\n")):
        with regular_file.open_to_write(file, append=append) as stream:
            stream.write(content)
    assert file.read_bytes() == "\u00e9\nmore\n".encode()
    umask = os.umask(0o022)
    os.umask(umask)
    assert file.stat().st_mode & 0o777 == 0o666 & ~umask
    assert not file.stat().st_mode & 0o111


def test_what_the_caller_handed_on_is_read_to_its_end() -> None:
    """``cat suite.yaml | qbench plan /dev/stdin`` and ``<(…)`` go on working, though both are pipes."""
    program = "from pathlib import Path\nfrom qbench.files import regular_file\n"
    program += "print(regular_file.read_text(Path('/dev/stdin')), end='')"
    done = subprocess.run([sys.executable, "-c", program], input="a\n" * 9000, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("a\n" * 9000, "")


def test_a_pipe_that_nobody_reads_is_not_waited_for(tmp_path: Path) -> None:
    """A gate would hang after all was measured."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="a pipe that nobody reads"):
        regular_file.open_to_write(tmp_path / "pipe")


def test_a_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    """Neither is a device: for root ``-o /dev/null`` would break the machine."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="a named pipe"), atomic.replace_file(tmp_path / "pipe"):
        raise AssertionError
    with pytest.raises(OSError, match="a named pipe"), atomic.make_workplace(tmp_path / "pipe"):
        raise AssertionError
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("loop", "Too many levels of symbolic links"),
        ("a\0b", "embedded null byte"),
        ("b" * 300, "File name too long"),
        ("~nobody-of-that-name/x", "no such file or folder"),
        ("pipe", "a named pipe, and a regular file is wanted"),
        ("folder", None),
        ("folder/../file", None),
    ],
)
def test_any_text_is_a_path_that_can_be_explained(name: str, why: str | None, tmp_path: Path) -> None:
    """What a suite names is a text of a file: no text raises, and a few words say why it leads nowhere."""
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    assert regular_file.explain_unusable(regular_file.resolve_path(name, tmp_path)) == why


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="descriptors are counted by Linux's /proc")
def test_what_is_refused_is_closed(tmp_path: Path) -> None:
    """A command that looks at many files that are none would have no descriptors left."""
    (tmp_path / "large").write_bytes(bytes(100))
    make_pipe(tmp_path / "pipe")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path, most in ((tmp_path, 10), (tmp_path / "pipe", 10), (tmp_path / "large", 99)):
        for _ in range(5):
            with pytest.raises(OSError, match=str(path)):
                regular_file.open_file(path, most)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    with regular_file.open_file(tmp_path / "large", 100) as stream:
        assert len(stream.read()) == 100


def test_what_is_open_waits_for_its_bytes(tmp_path: Path) -> None:
    """Nobody waited for the other end of a pipe, and reads and writes go on as ever; a folder that is missing is told
    as such."""
    with regular_file.open_to_write(tmp_path / "a.txt") as written:
        assert os.get_blocking(written.fileno())
    with regular_file.open_file(tmp_path / "a.txt") as read:
        assert os.get_blocking(read.fileno())
    with pytest.raises(FileNotFoundError):
        regular_file.open_to_write(tmp_path / "none" / "a.txt")


def test_weights_of_256_gib_are_opened_and_no_more(tmp_path: Path) -> None:
    """More is no network for a CPU."""
    with (tmp_path / "weights").open("wb") as file:
        file.truncate(256 * 2**30)  # takes no room on the disk
    regular_file.open_file(tmp_path / "weights").close()
    with (tmp_path / "weights").open("ab") as file:
        file.truncate(256 * 2**30 + 1)
    with pytest.raises(OSError, match="larger than the 274,877,906,944 bytes that are read"):
        regular_file.open_file(tmp_path / "weights")


def test_a_text_is_written_anew_where_nothing_else_is_asked_for(tmp_path: Path) -> None:
    """A second run leaves nothing of the first."""
    for text in ("a long text", "short"):
        with regular_file.open_to_write(tmp_path / "a.txt") as stream:
            stream.write(text)
    assert (tmp_path / "a.txt").read_text() == "short"
