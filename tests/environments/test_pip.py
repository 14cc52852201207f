"""Rules of qbench/environments/pip.py: what would be installed, its wheels, and pip's last words."""

from __future__ import annotations

import contextlib
import functools
import io
import re
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from made_wheels import make_wheel, use_index

from qbench.environments import pip
from qbench.environments.pins import Pin
from qbench.environments.pip import Resolved, Uninstallable, Unreachable

ALPHA, BETA = Pin(name="qbt-alpha", version="1.0"), Pin(name="qbt-beta", version="2.0")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two distributions, of which one needs the other and numpy, which is here."""
    make_wheel(tmp_path / "index", "qbt-alpha", "1.0", requires=["qbt-beta>=2", "numpy"])
    make_wheel(tmp_path / "index", "qbt-beta", "2.0")
    use_index(tmp_path / "index", monkeypatch)
    return tmp_path / "index"


def test_only_what_the_present_lacks_is_resolved(index: Path) -> None:
    """What is needed and here stays; each has the hash of its file."""
    resolved = pip.resolve(["qbt-alpha==1.0"])
    assert [each.pin for each in resolved] == [ALPHA, BETA]
    assert all(each.line == f"{each.pin} --hash=sha256:{each.sha256}" for each in resolved)
    assert pip.resolve(["numpy"]) == []


def test_qbench_itself_is_never_replaced(index: Path) -> None:
    """What judges is the qbench that runs, whatever a commit requires."""
    make_wheel(index, "qbench-int8", "0.0.1", {})
    assert pip.resolve(["qbench-int8==0.0.1"]) == []


def test_a_wheel_with_another_hash_is_refused(index: Path, tmp_path: Path) -> None:
    """A lock's hash is held against what is fetched; one without a hash is fetched as it is."""
    with pytest.raises(Uninstallable, match="(?i)hash"):
        pip.fetch_wheels([Resolved(pin=BETA, sha256="0" * 64)], tmp_path)
    assert [wheel.name for wheel in pip.fetch_wheels([Resolved(pin=BETA)], tmp_path)] == [
        "qbt_beta-2.0-py3-none-any.whl"
    ]


def test_the_size_of_a_download_is_told_as_it_begins(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pip's words, of what comes from a server; a file that lies here is not downloaded."""
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(index))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            monkeypatch.setenv("PIP_FIND_LINKS", f"http://127.0.0.1:{server.server_port}/")
            monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
            told: list[str] = []
            pip.fetch_wheels([Resolved(pin=BETA)], tmp_path, told.append)
        finally:
            server.shutdown()
            thread.join()
    assert len(told) == 1
    assert re.fullmatch(r"downloading qbt_beta-2\.0-py3-none-any\.whl: \d+ (bytes|B)", told[0])
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    pip.fetch_wheels([Resolved(pin=ALPHA)], tmp_path, told.append)
    assert len(told) == 1


def test_a_folder_of_source_is_locked_as_such() -> None:
    """By its address; one from a repository with its commit."""
    item = {"metadata": {"name": "A_b", "version": "1"}, "is_direct": True}
    local = pip._read_item(item | {"download_info": {"url": "file:///x", "dir_info": {}}})
    assert local.line == "a-b @ file:///x"
    vcs = {"url": "https://h/r", "vcs_info": {"vcs": "git", "commit_id": "abc"}, "subdirectory": "s"}
    assert pip._read_item(item | {"download_info": vcs}).line == "a-b @ git+https://h/r@abc#subdirectory=s"


def test_what_cannot_be_installed_is_told_in_pips_words(index: Path) -> None:
    """Its last three lines, without its warnings."""
    with pytest.raises(Uninstallable, match=r"No matching distribution found for qbt-alpha==9"):
        pip.resolve(["qbt-alpha==9"])


def test_an_index_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Is another error than a version that does not exist, and says why, also where no retry is asked for."""
    use_index(tmp_path, monkeypatch)
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(Unreachable, match="does not answer .*(refused|establish)"):
        pip.resolve(["qbt-alpha==1.0"])


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("/x/python: No module named pip", "has no pip; install it: .* -m ensurepip"),
        ("", "exit code 7"),
        ("WARNING: x\none\n\ntwo\nthree\nERROR: four", "^two three ERROR: four$"),
    ],
)
def test_what_pip_says_last_is_told(said: str, told: str) -> None:
    """Warnings and empty lines are left out; where it says nothing, its exit code is told."""
    with pytest.raises(Uninstallable, match=told):
        raise pip._explain(said, 7)


def test_an_index_that_is_silent_is_told_from_where_pip_says_so() -> None:
    """The rest of that line, up to two hundred letters of it."""
    error = pip._explain(f"Looking in links\nERROR: ReadTimeout{'x' * 300}\nNo matching distribution", 1)
    assert isinstance(error, Unreachable)
    assert str(error) == f"the package index does not answer (ReadTimeout{'x' * 189})"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("Downloading https://h/a-1.whl (17.4 MB)", ["downloading a-1.whl: 17.4 MB"]),
        ("Downloading a-1.whl.metadata (2.1 kB)", []),
        ("Collecting a", []),
    ],
)
def test_what_pip_reads_of_a_file_beforehand_is_no_download(line: str, told: list[str]) -> None:
    """Of a wheel its metadata alone."""
    heard: list[str] = []
    pip._tell_download(line, heard.append)
    assert heard == told


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What pip is asked, with its variables; it answers nothing, with exit code 0."""
    return answer(monkeypatch)


def answer(
    monkeypatch: pytest.MonkeyPatch, said: bytes = b'{"install": []}', complaint: bytes = b"", code: int = 0
) -> list[Any]:
    """What pip is asked from now on; it answers this, and what became of its process stands there, too."""
    calls: list[Any] = []

    def start(command: list[str], **options: Any) -> Any:
        calls.append((command, options))
        options["stderr"].write(complaint)
        process = SimpleNamespace(stdout=io.BytesIO(said), returncode=code, kill=lambda: calls.append("killed"))
        return contextlib.nullcontext(process)

    monkeypatch.setattr(pip.subprocess, "Popen", start)
    return calls


def test_what_pip_complains_of_is_read_from_its_first_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it fails; a complaint of one that does not fail is none."""
    answer(monkeypatch, complaint=b"ERROR: no wheel", code=1)
    with pytest.raises(Uninstallable, match="^ERROR: no wheel$"):
        pip.run_pip(["list"])
    answer(monkeypatch, said=b"all", complaint=b"ERROR: but it went on")
    assert pip.run_pip(["list"]) == "all"


def test_pip_is_ended_where_nobody_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by Ctrl-C; one that has ended is left alone."""

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    calls = answer(monkeypatch, said=b"one line\n")
    with pytest.raises(KeyboardInterrupt):
        pip.run_pip(["list"], hear=interrupt)
    assert calls[1:] == ["killed"]
    heard: list[str] = []
    assert pip.run_pip(["list"], hear=heard.append) == "one line\n"
    assert heard == ["one line"]
    assert calls.count("killed") == 1


@pytest.mark.parametrize(("set_", "given"), [(None, "2"), ("0", "1"), ("00", "1"), ("", "1"), ("5", "5"), ("10", "10")])
def test_pip_tries_once_more_at_least(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch, set_: str | None, given: str
) -> None:
    """Without a retry it says that there are no versions, not that nobody answered; its other settings are those that
    its answers need, whatever the user's are."""
    monkeypatch.delenv("PIP_RETRIES", raising=False)
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PIP_QUIET", "3")
    if set_ is not None:
        monkeypatch.setenv("PIP_RETRIES", set_)
    pip.run_pip(["list"])
    ((command, options),) = asked
    assert command[1:4] == ["-P", "-m", "pip"]
    assert command[-1] == "list"
    variables = options["env"]
    assert [variables[f"PIP_{name}"] for name in ("RETRIES", "USER", "QUIET", "VERBOSE")] == [given, "0", "0", "0"]


def test_nothing_is_built_unless_that_is_asked_for(asked: list[Any], tmp_path: Path) -> None:
    """Building runs code of whoever wrote the package."""
    pip.resolve(["a==1"])
    pip.resolve(["a==1"], tmp_path, wheels_only=False)
    assert [command[-3:-1] == ["--only-binary", ":all:"] for command, _ in asked] == [True, False]
    assert [options["cwd"] for _, options in asked] == [None, tmp_path]


def test_what_an_index_tells_of_a_wheel_is_its_hash() -> None:
    """Where it tells one; a folder of source has none, and an address that is named is where it is fetched from."""
    item = {"metadata": {"name": "A_b", "version": "1"}}
    info = {"url": "https://h/a.whl", "archive_info": {"hashes": {"sha256": "c" * 64}}}
    indexed = pip._read_item(item | {"download_info": info})
    assert indexed == Resolved(pin=Pin(name="a-b", version="1"), sha256="c" * 64)
    assert pip._read_item(item | {"download_info": {"url": "u", "archive_info": {}}}).line == "a-b==1"
    direct = pip._read_item(item | {"is_direct": True, "download_info": info})
    assert (direct.sha256, direct.line) == (None, "a-b @ https://h/a.whl")


def test_what_has_a_hash_is_fetched_by_it(asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apart from what has none: pip asks for all hashes or for none. The lists of both are gone afterwards."""
    locks: list[str] = []
    monkeypatch.setattr(pip, "run_pip", lambda words, hear: locks.append(Path(words[-1]).read_text()))
    pip.fetch_wheels([Resolved(pin=ALPHA, sha256="d" * 64), Resolved(pin=BETA)], tmp_path)
    pip.fetch_wheels([Resolved(pin=BETA)], tmp_path)
    assert locks == [f"{ALPHA} --hash=sha256:{'d' * 64}\n", f"{BETA}\n", f"{BETA}\n"]
    assert list(tmp_path.iterdir()) == []
