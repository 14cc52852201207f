"""Finding and fetching the files of named data sets: against a local server that also serves what it should not."""

from __future__ import annotations

import hashlib
import io
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from qbench.cache import store
from qbench.datasets import fetch
from qbench.datasets.fetch import Remote
from qbench.errors import DataError

CONTENT = bytes(range(256)) * 5000


class Answer(io.BytesIO):
    """What a server says, without one."""

    status = headers = None


class Server(ThreadingHTTPServer):
    """Serves ``content`` under any name; ``cut`` breaks off after so many bytes, ``ranges`` honours Range."""

    content = CONTENT
    cut = None
    ranges = True
    status = 200

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/file"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        match = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        server.asked.append(int(match[1]) if match else 0)
        start = int(match[1]) if match and server.ranges else 0
        self.send_response(server.status if server.status != 200 else 206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(server.content) - 1}/{len(server.content)}")
        body = server.content[start : server.cut]
        self.send_header("Content-Length", str(len(server.content) - start))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def root(tmp_path):
    return store.open_cache(tmp_path / "cache")


def remote(server, **changes):
    facts = {
        "name": "file.gz",
        "url": server.url,
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
        "size_bytes": len(CONTENT),
    }
    return Remote(**{**facts, **changes})


def fetched(server, root, **changes):
    return fetch.fetch_file("toys", remote(server, **changes), advice="set QBENCH_DATA", root=root)


def test_a_file_is_downloaded_once_and_kept(server, root):
    """The second call asks nobody."""
    assert fetched(server, root).read_bytes() == CONTENT
    assert fetched(server, root).read_bytes() == CONTENT
    assert server.asked == [0]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_download_that_broke_off_goes_on_where_it_stopped(server, root, ranges):
    """What is there is not asked for again, except of a server that cannot serve a part."""
    server.cut, server.ranges = 700_000, ranges
    with pytest.raises(DataError, match=r"broke off after 700,000 of 1,280,000 bytes; run again"):
        fetched(server, root)
    server.cut = None
    assert fetched(server, root).read_bytes() == CONTENT
    assert server.asked == [0, 700_000]


@pytest.mark.parametrize(
    ("there", "asked"),
    [(CONTENT, []), (CONTENT + b"x", [0]), (CONTENT[:-1], [len(CONTENT) - 1]), (b"", [0])],
)
def test_what_an_earlier_download_left_is_gone_on_from(server, root, there, asked):
    """Nothing is asked for where all is there; what is longer than the file is none of it."""
    part = root / "downloads" / "toys" / "file.gz.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(there)
    assert fetched(server, root).read_bytes() == CONTENT
    assert server.asked == asked


def test_a_server_that_sends_without_end_is_left(server, tmp_path, monkeypatch):
    """As soon as more came than the file has."""
    monkeypatch.setattr(fetch, "CHUNK", 1000)
    fetch._download(remote(server, size_bytes=2500), tmp_path / "part")
    assert (tmp_path / "part").stat().st_size == 3000


@pytest.mark.parametrize(
    ("served", "words"),
    [(CONTENT[::-1], "its sha256 is"), (CONTENT + b"more", "more than 1,280,000 bytes")],
)
def test_another_file_is_thrown_away(server, root, served, words):
    """A file that is not the published one is never used, nor gone on from."""
    server.content = served
    with pytest.raises(DataError, match=rf"is not the file that was published: {words}.*set QBENCH_DATA"):
        fetched(server, root)
    assert not [path for path in (root / "downloads").rglob("*") if path.is_file()]
    server.content = CONTENT
    assert fetched(server, root).read_bytes() == CONTENT


def test_no_network_says_where_to_put_the_file(server, root):
    """An address that does not answer is one message with the way out."""
    server.status = 404
    with pytest.raises(DataError, match=r"toys: file.gz is in none of the known folders .* \(HTTP 404 .*\); set QB"):
        fetched(server, root)
    with pytest.raises(DataError, match=r"cannot be downloaded from http://127.0.0.1:1/x .*refused.*; set QBENCH_DATA"):
        fetched(server, root, url="http://127.0.0.1:1/x")


def test_own_copies_come_before_those_of_the_system(tmp_path, monkeypatch):
    """QBENCH_DATA is asked first, by the data set's name and then itself; folders that are not there are left out."""
    (tmp_path / "mine" / "toys").mkdir(parents=True)
    (tmp_path / "system").mkdir()
    system = (str(tmp_path / "system"), str(tmp_path / "absent"))
    monkeypatch.delenv("QBENCH_DATA", raising=False)
    assert fetch.search_folders("toys", system) == [tmp_path / "system"]
    monkeypatch.setenv("QBENCH_DATA", "~nobody-of-that-name/x")
    assert fetch.search_folders("toys", system) == [tmp_path / "system"]
    monkeypatch.setenv("QBENCH_DATA", str(tmp_path / "mine"))
    assert fetch.search_folders("toys", system) == [tmp_path / "mine" / "toys", tmp_path / "mine", tmp_path / "system"]


def test_a_server_has_thirty_seconds_for_each_piece(server, root, monkeypatch):
    """A piece is a megabyte: memory holds no more of a file."""
    asked = []
    urlopen = fetch.urllib.request.urlopen

    def note(request, timeout):
        answer = urlopen(request, timeout=timeout)
        read = answer.read
        answer.read = lambda size: asked.append((timeout, size)) or read(size)
        return answer

    monkeypatch.setattr(fetch.urllib.request, "urlopen", note)
    assert fetched(server, root).read_bytes() == CONTENT
    assert asked == [(30.0, 1_048_576)] * 3


@pytest.mark.parametrize(
    ("status", "headers", "is_part"),
    [
        (206, {"Content-Range": "bytes 5-9/10"}, True),
        (206, {"Content-Range": "bytes 0-9/10"}, False),
        (206, {"Content-Range": "bytes 55-9/10"}, False),
        (206, {}, False),
        (200, {"Content-Range": "bytes 5-9/10"}, False),
    ],
)
def test_only_the_part_that_was_asked_for_goes_behind_what_is_there(
    tmp_path, monkeypatch, server, status, headers, is_part
):
    """Anything else stands in its place."""
    asked = []

    def answer(request, timeout):
        asked.append(request.get_header("Range"))
        stream = Answer(b"56789")
        stream.status, stream.headers = status, headers
        return stream

    monkeypatch.setattr(fetch.urllib.request, "urlopen", answer)
    (tmp_path / "part").write_bytes(b"01234")
    fetch._download(remote(server, size_bytes=10), tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == (b"0123456789" if is_part else b"56789")
    assert asked == ["bytes=5-"]
