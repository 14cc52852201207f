"""Values on their way to another machine: paths arrive as what they stand for."""

from __future__ import annotations

import pytest

from qbench.cache import store
from qbench.errors import CaseError
from qbench.fleet import transfer

KEY = "a" * 64


@pytest.fixture
def roots(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "artifacts" / KEY).mkdir(parents=True)
    there.mkdir()
    return here, there


def test_a_path_in_the_cache_is_the_same_place_in_the_other_cache(roots):
    """Its entry is named, so that it can be sent; the root itself, and what a killed build left, are no entries."""
    here, there = roots
    unfinished = here / "unfinished" / KEY
    sent = transfer.pack({"file": here / "artifacts" / KEY / "m.onnx", "root": here, "rest": unfinished}, here)
    assert sent.entries == (f"artifacts/{KEY}",)
    assert transfer.unpack(sent.payload, there, {}) == {
        "file": there / "artifacts" / KEY / "m.onnx",
        "root": there,
        "rest": there / "unfinished" / KEY,
    }
    assert transfer.pack(here / "artifacts" / KEY, here).entries == (f"artifacts/{KEY}",)
    assert transfer.pack(here / "artifacts" / ".0123-x", here).folders == ("artifacts/.0123-x",)
    assert transfer.pack(here / "artifacts" / "short", here).entries == ()


def test_a_folder_that_is_being_made_is_another_one_there(roots, tmp_path):
    """What is written into it there comes back by its name."""
    here, there = roots
    sent = transfer.pack(here / "artifacts" / ".0123-x" / "part", here)
    assert (sent.entries, sent.folders) == ((), ("artifacts/.0123-x",))
    assert transfer.unpack(sent.payload, there, {"artifacts/.0123-x": tmp_path / "new"}) == tmp_path / "new" / "part"


def test_a_file_from_outside_travels_by_its_content(roots, tmp_path):
    """It keeps its name, since formats go by suffixes."""
    here, there = roots
    (tmp_path / "mine.onnx").write_bytes(b"model")
    sent = transfer.pack(tmp_path / "mine.onnx", here)
    digest = store.file_digest(tmp_path / "mine.onnx")
    assert dict(sent.files) == {digest: tmp_path / "mine.onnx"}
    assert transfer.unpack(sent.payload, there, {}) == there / "files" / digest / "mine.onnx"


def test_code_is_not_sent_and_must_be_there_as_it_is_here(roots, tmp_path):
    """A node with another text of the user's code would build another network."""
    here, there = roots
    code = tmp_path / "models.py"
    code.write_text("x = 1\n")
    sent = transfer.pack(code, here)
    assert dict(sent.files) == {}
    assert transfer.unpack(sent.payload, there, {}) == code
    code.write_text("x = 2\n")
    with pytest.raises(CaseError, match=r"another text there.*same path"):
        transfer.unpack(sent.payload, there, {})
    code.unlink()
    with pytest.raises(CaseError, match="is not on this node"):
        transfer.unpack(sent.payload, there, {})


def test_a_folder_arrives_whole_and_nothing_leaves_it(tmp_path):
    """Names that lead elsewhere are refused: they come from another machine."""
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    for name in ("d", "e"):
        (tmp_path / "a" / "b" / "c" / name).write_bytes(name.encode())
    files = transfer.read_folder(tmp_path / "a")
    assert files == {"b/c/d": b"d", "b/c/e": b"e"}
    (tmp_path / "new").mkdir()
    transfer.write_folder(tmp_path / "new", files)
    assert transfer.read_folder(tmp_path / "new") == files
    with pytest.raises(CaseError, match="leads out"):
        transfer.write_folder(tmp_path / "new", {"../x": b""})
    with pytest.raises(CaseError, match=f"^'../{'x' * 77}' leads out"):
        transfer.write_folder(tmp_path / "new", {f"../{'x' * 200}": b""})
