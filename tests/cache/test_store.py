"""The cache: full keys, verified hits, atomic writes, one maker at a time."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import threading
from pathlib import Path
from types import ModuleType

import platformdirs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.cache import manifest, store
from qbench.cache import root as cache_root
from qbench.errors import CaseError, UsageError
from qbench.files import full_disk

KEY = store.key_of({"a": 1})


@pytest.fixture
def root(tmp_path):
    return store.open_cache(tmp_path / "cache")


ELSEWHERE = hashlib.sha256(b"secret").hexdigest()
MANIFESTS = {
    "manifest cut": b"{",
    "manifest of another shape": b'{"files": 3}',
    "manifest of bytes": b"\xff\xfe\x00rubbish",
    "manifest without facts": b'{"files": {}}',
    "manifest without files": b'{"files": {}, "facts": {}}',
    "manifest with a list": b"[]",
    "manifest with other facts": b'{"files": {}, "facts": [1]}',
    "manifest with a number for a digest": b'{"files": {"model": 3}, "facts": {}}',
    "manifest of a file above": b'{"files": {"../../../secret": "%s"}, "facts": {}}' % ELSEWHERE.encode(),
    "manifest of a file anywhere": b'{"files": {"/etc/hostname": "%s"}, "facts": {}}' % ELSEWHERE.encode(),
    "manifest nested": b"[" * 200_000,
    "manifest nested in facts": b'{"files": {}, "facts": ' + b'{"a":' * 100_000,
}


def fill(folder):
    (folder / "model").write_bytes(b"weights")
    return {"layers": (1, 2)}


def test_the_first_fetch_makes_and_the_second_finds(root):
    """One make per key; facts read the same either way (tuples become lists, as JSON has them)."""
    first = store.fetch(root, "artifacts", KEY, fill)
    second = store.fetch(root, "artifacts", KEY, lambda folder: pytest.fail("made twice"))
    assert (first.fresh, second.fresh) == (True, False)
    assert first.facts == second.facts == {"layers": [1, 2]}
    assert (second.folder / "model").read_bytes() == b"weights"


def test_the_root_is_private_and_tagged(root):
    """Mode 0700, since an artifact can hold native code; the tag keeps backups out."""
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert (root / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")
    store.fetch(root, "artifacts", KEY, fill)
    assert {stat.S_IMODE((root / name).stat().st_mode) for name in ("locks", "artifacts")} == {0o700}


@pytest.mark.parametrize("damage", ["change", "delete", "add", "link", "file", "folder linked", *MANIFESTS])
def test_a_damaged_entry_is_made_again_and_said_so(root, damage):
    """Every hit is verified against the manifest; what differs is rebuilt with a note."""
    folder = store.fetch(root, "artifacts", KEY, fill).folder
    if damage == "change":
        (folder / "model").write_bytes(b"weightz")
    elif damage == "delete":
        (folder / "model").unlink()
    elif damage == "add":
        (folder / "more").write_bytes(b"")
    elif damage == "link":
        (folder / "model").rename(root / "elsewhere")
        (folder / "model").symlink_to(root / "elsewhere")
    elif damage == "folder linked":
        folder.rename(root / "elsewhere")
        folder.symlink_to(root / "elsewhere")
    elif damage == "file":
        shutil.rmtree(folder)
        folder.write_text("a file in the place of the folder")
    else:
        (folder / "manifest.json").write_bytes(MANIFESTS[damage])
    again = store.fetch(root, "artifacts", KEY, fill)
    assert again.fresh
    assert "was damaged" in (again.note or "")
    assert (again.folder / "model").read_bytes() == b"weights"
    assert not folder.is_symlink()


DIGEST = "0" * 64


@pytest.mark.parametrize(
    ("name", "digest", "is_listed"),
    [
        ("a/b", DIGEST, True),
        ("..a/b..", DIGEST, True),
        ("", DIGEST, False),
        (".", DIGEST, False),
        ("a/../b", DIGEST, False),
        ("a//b", DIGEST, False),
        ("/a", DIGEST, False),
        ("a", DIGEST[1:], False),
        ("a", DIGEST.replace("0", "A"), False),
        ("a", 0, False),
    ],
)
def test_a_manifest_lists_files_below_its_folder(tmp_path, name, digest, is_listed):
    """By their plain names and whole digests; what is listed and not there is told as that."""
    (tmp_path / "manifest.json").write_text(json.dumps({"files": {name: digest}, "facts": {}}))
    with pytest.raises(manifest.Damaged, match=" is missing$" if is_listed else "^manifest.json lists "):
        manifest.read(tmp_path)


def test_a_manifest_is_read_up_to_a_length(tmp_path, monkeypatch):
    """And no link in its place."""
    manifest.write(tmp_path, {"a": 1})
    size = (tmp_path / "manifest.json").stat().st_size
    monkeypatch.setattr(manifest, "MOST_BYTES", size)
    assert manifest.read(tmp_path).facts == {"a": 1}
    monkeypatch.setattr(manifest, "MOST_BYTES", size - 1)
    with pytest.raises(manifest.Damaged, match=r"^manifest\.json is too long$"):
        manifest.read(tmp_path)
    monkeypatch.undo()
    (tmp_path / "manifest.json").rename(tmp_path.parent / "elsewhere.json")
    (tmp_path / "manifest.json").symlink_to(tmp_path.parent / "elsewhere.json")
    with pytest.raises(manifest.Damaged, match=r"^manifest\.json is a link$"):
        manifest.read(tmp_path)


def test_a_manifest_has_64_mib_at_most(tmp_path):
    """One that long is read, whatever it holds."""
    for size, why in ((64 * 2**20, "cannot be read"), (64 * 2**20 + 1, "is too long")):
        with (tmp_path / "manifest.json").open("wb") as file:
            file.truncate(size)
        with pytest.raises(manifest.Damaged, match=f"^manifest.json {why}$"):
            manifest.read(tmp_path)


def test_a_manifest_is_written_for_people_too(tmp_path):
    """A line for each file; a long name that is none is shown by its beginning."""
    (tmp_path / "model").write_bytes(b"weights")
    manifest.write(tmp_path, {})
    digest = hashlib.sha256(b"weights").hexdigest()
    assert f'{{\n "files": {{\n  "model": "{digest}"\n }},\n' in (tmp_path / "manifest.json").read_text()
    (tmp_path / "manifest.json").write_text(json.dumps({"files": {f"/{'x' * 300}": digest}, "facts": {}}))
    with pytest.raises(manifest.Damaged, match=f"lists '/{'x' * 79}', which is no file of it"):
        manifest.read(tmp_path)


def test_a_copy_is_removed_whole_or_not_at_all(tmp_path):
    """With folders in folders; where anything else lies in it, or it is a link, all of it stays."""
    folder = tmp_path / "copy"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "model").write_text("weights")
    (folder / "empty").mkdir()
    manifest.write(folder, {})
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(manifest.Damaged, match="it is a link"):
        manifest.remove(tmp_path / "link")
    (folder / "a" / "notes").write_text("mine")
    with pytest.raises(manifest.Damaged, match="a/notes does not belong to it"):
        manifest.remove(folder)
    assert (folder / "a" / "b" / "model").read_text() == "weights"
    (folder / "a" / "notes").unlink()
    manifest.remove(folder)
    assert not folder.exists()


def test_facts_that_were_changed_are_damage(root):
    """One other digit in what an artifact's maker said of it would be a wrong figure in a report."""
    file = store.fetch(root, "artifacts", KEY, fill).folder / "manifest.json"
    content = json.loads(file.read_text())
    content["facts"]["layers"] = [1, 3]
    file.write_text(json.dumps(content))
    assert store.fetch(root, "artifacts", KEY, fill).note == (
        "the cached copy was damaged (manifest.json has changed) and was made again"
    )


@pytest.mark.parametrize("facts", [{}, {"file": "../model"}, {"file": 3}, {"file": None}])
def test_facts_that_their_reader_cannot_read_are_damage(root, facts):
    """Whoever wants an entry checks its facts; what breaks the check, in whatever way, is made again."""

    def named(entry):
        if entry.facts["file"].lower() not in entry.files:
            raise ValueError("no file of it")

    store.fetch(root, "artifacts", KEY, lambda folder: (fill(folder), facts)[1])
    again = store.fetch(root, "artifacts", KEY, lambda folder: (fill(folder), {"file": "model"})[1], named)
    assert again.fresh
    assert "manifest.json says what cannot be" in (again.note or "")
    assert not store.fetch(root, "artifacts", KEY, fill, named).fresh


def test_a_sound_entry_can_have_other_facts_from_now_on(root):
    """Its files stay, and nobody takes the change for damage; without other facts it is left as it is."""
    store.fetch(root, "artifacts", KEY, fill)
    entry = store.fetch(
        root, "artifacts", KEY, fill, replace_facts=lambda entry: {"layers": [*entry.facts["layers"], 3]}
    )
    assert (entry.facts, entry.fresh, entry.note) == ({"layers": [1, 2, 3]}, True, None)
    again = store.fetch(root, "artifacts", KEY, fill)
    assert (again.facts, again.fresh, again.note, again.files) == ({"layers": [1, 2, 3]}, False, None, {"model"})


def test_an_unknown_kind_is_refused(root):
    """What ``qbench clean`` does not know would stay for ever."""
    with pytest.raises(ValueError, match="name it in"):
        store.fetch(root, "artefacts", KEY, fill)


def test_a_failed_make_leaves_nothing(root):
    """No half-made entry and no temporary folder stays behind."""

    def broken(folder):
        (folder / "half").write_text("x")
        raise CaseError("no")

    with pytest.raises(CaseError, match="^no$"):
        store.fetch(root, "artifacts", KEY, broken)
    assert list((root / "artifacts").iterdir()) == []


def test_two_at_once_make_once(root):
    """The second waits for the first and finds its entry."""
    result = []
    inside = threading.Event()
    let_go = threading.Event()

    def slow(folder):
        result.append(folder)
        inside.set()
        let_go.wait(10)
        return fill(folder)

    actual = []
    threads = [
        threading.Thread(target=lambda: actual.append(store.fetch(root, "artifacts", KEY, slow))) for _ in range(2)
    ]
    threads[0].start()
    inside.wait(10)
    threads[1].start()
    let_go.set()
    for thread in threads:
        thread.join(10)
    assert len(result) == 1
    assert sorted(entry.fresh for entry in actual) == [False, True]


@pytest.mark.parametrize("through_a_link", [False, True])
def test_a_folder_with_files_of_somebody_is_not_taken(tmp_path, through_a_link):
    """QBENCH_CACHE on a folder of one's own changes neither its mode nor what is in it."""
    own = tmp_path / "home"
    own.mkdir(mode=0o755)
    (own / "thesis").write_text("years of work")
    arguments = tmp_path / "link" if through_a_link else own
    if through_a_link:
        arguments.symlink_to(own)
    with pytest.raises(UsageError, match="holds files that qbench did not put there.*new or an empty folder"):
        store.open_cache(arguments)
    assert stat.S_IMODE(own.stat().st_mode) == 0o755
    assert [path.name for path in own.iterdir()] == ["thesis"]


def test_a_pipe_with_the_name_of_the_tag_is_not_waited_for(tmp_path):
    """A folder that holds one is somebody's, not the cache."""
    os.mkfifo(tmp_path / "CACHEDIR.TAG")
    with pytest.raises(UsageError, match="a named pipe|Invalid argument"):
        store.open_cache(tmp_path)


def test_an_empty_folder_is_taken_and_opened_again(tmp_path):
    """A folder made for it is fine, also one that a qbench was killed in while it wrote the tag; one that is not there
    is made with those above it."""
    (tmp_path / "empty").mkdir(mode=0o755)
    root = store.open_cache(tmp_path / "empty")
    assert (store.open_cache(tmp_path / "above" / "cache") / "CACHEDIR.TAG").exists()
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert store.open_cache(root) == root
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "CACHEDIR.TAG").write_text("Signature: 8a47")
    assert (store.open_cache(tmp_path / "cut") / "CACHEDIR.TAG").read_text() == cache_root.TAG


@pytest.mark.parametrize("tag", ["Signature: 8a477f597d28d172789f06886806bc55\n# made by pip\n", None])
def test_the_tag_of_another_program_is_not_ours(tmp_path, tag):
    """Another program's cache is somebody's own, and so is a folder whose tag is a link to a tag of qbench's."""
    if tag is None:
        store.open_cache(tmp_path / "real")
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "CACHEDIR.TAG").symlink_to(Path("..") / "real" / "CACHEDIR.TAG")
    else:
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "CACHEDIR.TAG").write_text(tag)
    with pytest.raises(UsageError, match="holds files"):
        store.open_cache(tmp_path / "other")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_root_says_what_to_do(tmp_path):
    """Before anything runs: exit code 2 and the variable to set."""
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="QBENCH_CACHE"):
        store.open_cache(tmp_path / "cache")


def test_a_root_that_is_a_file_says_what_to_do(tmp_path):
    """The same for a path that cannot be a folder."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="QBENCH_CACHE"):
        store.open_cache(tmp_path / "file" / "cache")


def test_a_full_disk_is_one_case_not_the_run(root):
    """No space left while making becomes a CaseError with what to do."""

    def full(folder):
        raise OSError(28, "No space left on device")

    with pytest.raises(CaseError, match=r"cannot be written \(No space left on device\); make room with `qbench"):
        store.fetch(root, "artifacts", KEY, full)


def test_a_full_disk_is_called_so_whatever_the_writer_said(root, monkeypatch):
    """torch says "unexpected pos 142848" of a disk that is full; with room left its own words stand."""

    def torn(folder):
        raise CaseError("RuntimeError: unexpected pos 142848 vs 142736")

    with pytest.raises(CaseError, match="^RuntimeError: unexpected pos"):
        store.fetch(root, "artifacts", KEY, torn)
    monkeypatch.setattr(store, "is_full", lambda folder: True)
    with pytest.raises(CaseError, match=r"the disk of the cache is full; make room.*\(RuntimeError: unexpected pos"):
        store.fetch(root, "artifacts", KEY, torn)


def test_a_disk_is_full_where_a_megabyte_more_does_not_fit(tmp_path):
    """No room, no quota or no longer files: all the same to a writer."""
    resource = pytest.importorskip("resource")
    assert not full_disk.is_full(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        assert full_disk.is_full(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_written_by_one_process_at_a_time(root, tmp_path):
    """A second one is told so, by whatever name it calls the folder; other folders, and this one afterwards, are
    free."""
    folder = tmp_path / "run"
    folder.mkdir()
    (tmp_path / "latest").symlink_to(folder)
    refused = pytest.raises(UsageError, match="latest: another qbench writes here now; wait until it has ended")
    by_link = store.hold_folder(root, tmp_path / "latest")
    with store.hold_folder(root, folder), store.hold_folder(root, tmp_path), refused, by_link:
        pytest.fail("two write at once")
    with store.hold_folder(root, folder):
        assert not list(folder.iterdir())


def test_what_a_killed_maker_left_goes_with_the_next(root):
    """Whoever holds the lock of a key knows that nobody else is making it."""
    left = root / "artifacts" / f".{KEY[:16]}-abcd1234"
    left.mkdir(parents=True)
    assert store.fetch(root, "artifacts", KEY, fill).fresh
    assert not left.exists()


def test_the_variable_wins(monkeypatch, tmp_path):
    """QBENCH_CACHE is the folder, else the user's cache folder."""
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "here"))
    assert store.cache_folder() == tmp_path / "here"
    monkeypatch.delenv("QBENCH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert store.cache_folder().name == "qbench"


def test_the_home_folder_of_an_unknown_user_is_no_folder_here(monkeypatch, tmp_path):
    """Native code would lie in the folder that one works in; one that has such a name is meant by its path."""
    monkeypatch.setenv("QBENCH_CACHE", "~nobody-of-that-name/x")
    with pytest.raises(UsageError, match="QBENCH_CACHE=~nobody-of-that-name/x: no home .* name a folder"):
        store.cache_folder()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QBENCH_CACHE", "./~nobody-of-that-name/x")
    assert store.cache_folder() == tmp_path / "~nobody-of-that-name" / "x"


def test_without_a_home_folder_the_variable_is_asked_for(monkeypatch):
    """The user's cache folder would lie below the folder that one works in, with anybody's native code."""
    monkeypatch.delenv("QBENCH_CACHE")
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: Path("~/.cache") / name)
    with pytest.raises(UsageError, match="no home folder is known .* set QBENCH_CACHE"):
        store.cache_folder()


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.none()), st.randoms())
def test_keys_are_full_digests_of_content_not_of_order(parts, random):
    """64 hex digits; equal mappings in any order give equal keys, another value another key."""
    items = list(parts.items())
    random.shuffle(items)
    assert store.key_of(parts) == store.key_of(dict(items))
    assert len(store.key_of(parts)) == 64
    assert store.key_of({**parts, "one more": 1}) != store.key_of(parts)


def test_a_digest_of_source_follows_its_text_and_every_module_of_a_package(tmp_path):
    """Code is named by the modules that are imported: a changed line, or one more module below a package, changes the
    digest, and another folder with the same text does not."""
    package = ModuleType("parts")
    for folder in ("here", "there"):
        (tmp_path / folder / "below").mkdir(parents=True)
        (tmp_path / folder / "__init__.py").write_text("")
        (tmp_path / folder / "below" / "part.py").write_text("value = 1\n")
    package.__file__ = str(tmp_path / "here" / "__init__.py")
    digest = store.source_digest(package)
    package.__file__ = str(tmp_path / "there" / "__init__.py")
    assert store.source_digest(package) == digest
    (tmp_path / "there" / "below" / "part.py").write_text("value = 2\n")
    changed = store.source_digest(package)
    (tmp_path / "there" / "more.py").write_text("")
    assert len({digest, changed, store.source_digest(package)}) == 3


def test_a_digest_of_a_module_is_that_of_its_file_alone(tmp_path):
    """What lies beside it is no code of it."""
    (tmp_path / "part.py").write_text("value = 1\n")
    module = ModuleType("part")
    module.__file__ = str(tmp_path / "part.py")
    digest = store.source_digest(module)
    (tmp_path / "more.py").write_text("")
    assert store.source_digest(module) == digest
    (tmp_path / "part.py").write_text("value = 2\n")
    assert store.source_digest(module) != digest


def test_an_entry_in_the_making_has_a_name_of_qbenchs(root):
    """So that ``qbench clean`` removes what a killed process leaves of it."""
    folders = []
    store.fetch(root, "artifacts", KEY, lambda folder: (folders.append(folder), fill(folder))[1])
    assert [cache_root.is_entry(folder.name) for folder in folders] == [True]


def test_why_facts_cannot_be_read_is_cut(root):
    """What a check says of them may be as long as they are."""

    def check(entry):
        raise ValueError("x" * 300)

    store.fetch(root, "artifacts", KEY, fill)
    note = store.fetch(root, "artifacts", KEY, fill, check).note
    assert note == (
        f"the cached copy was damaged (manifest.json says what cannot be: ValueError: {'x' * 200}) and was made again"
    )


def test_an_empty_folder_that_another_process_takes_first_is_taken(tmp_path, monkeypatch):
    """Its files are there by then."""
    root = store.open_cache(tmp_path / "cache")
    looks = iter((False, True))
    monkeypatch.setattr(cache_root, "is_own", lambda folder: next(looks))
    assert store.open_cache(root) == root
    assert list(looks) == []
