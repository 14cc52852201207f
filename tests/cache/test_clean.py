"""qbench.cache.clean: what is removed from the cache, and what never is."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import filelock
import pytest

from qbench import formatting
from qbench.cache import root as cache_root
from qbench.cache import store
from qbench.cache.clean import Cleaned, clean, size_bytes, to_text
from qbench.errors import UsageError

KEYS = ("a" * 64, "b" * 64)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A cache with two entries of one kind, 1000 bytes each besides their manifests."""
    root = store.open_cache(tmp_path / "cache")

    def make(folder: Path) -> dict[str, str]:
        (folder / "deep").mkdir()
        (folder / "deep" / "model.pt").write_bytes(b"x" * 1000)
        return {}

    for key in KEYS:
        store.fetch(root, "artifacts", key, make)
    return root


def entry(root: Path, key: str) -> Path:
    """Where an entry lies."""
    return root / "artifacts" / key


def test_everything_goes_and_the_bytes_are_counted(root: Path) -> None:
    """Freed bytes are exactly those of the files that went, and the cache works afterwards."""
    before = sum(size_bytes(entry(root, key)) for key in KEYS)
    done = clean(root)
    assert (done.removed, done.freed_bytes) == (2, before)
    assert before > 2000
    assert not any((root / "artifacts").iterdir())
    assert store.fetch(root, "artifacts", KEYS[0], lambda folder: {}).fresh


def test_dry_run_counts_the_same_and_removes_nothing(root: Path) -> None:
    """A dry run tells what the real one would do."""
    summary = clean(root, dry_run=True)
    assert all(entry(root, key).exists() for key in KEYS)
    assert clean(root) == summary


def test_older_than_keeps_what_is_younger(root: Path) -> None:
    """An entry's age counts from when it was made, up to the day that is given."""
    modified = entry(root, KEYS[0]).stat().st_mtime
    os.utime(entry(root, KEYS[1]), (modified, modified - 3 * 86_400))
    assert clean(root, older_than_days=2, now=modified - 2 * 86_400).kept == 2
    done = clean(root, older_than_days=2, now=modified)
    assert (done.removed, done.kept) == (1, 1)
    assert entry(root, KEYS[0]).exists()
    assert not entry(root, KEYS[1]).exists()
    assert clean(root, older_than_days=2, now=modified + 2 * 86_400).removed == 1


def test_only_one_kind_goes_where_it_is_named(root: Path) -> None:
    """The rest is neither removed nor counted."""
    store.fetch(root, "data", KEYS[0], lambda folder: {})
    done = clean(root, only="data")
    assert (done.removed, done.kept, done.in_use, done.foreign) == (1, 0, 0, 0)
    assert all(entry(root, key).exists() for key in KEYS)


def test_environments_are_named_by_what_they_were_made_for(root: Path) -> None:
    """A line for each with its bytes; by its digest where its manifest cannot be read."""
    for key, wanted in zip(KEYS, (["b==2", "a==1"], ["c==3"]), strict=True):
        store.fetch(root, "environments", key, lambda folder, wanted=wanted: {"wanted": wanted})
    (root / "environments" / KEYS[1] / "manifest.json").write_text('{"facts": {}}')
    done = clean(root, only="environments")
    assert [name for name, _ in done.environments] == ["b==2 a==1", KEYS[1]]
    assert sum(size for _, size in done.environments) == done.freed_bytes
    last = f"environment {KEYS[1]}: {formatting.size(done.environments[1][1])}"
    assert to_text(done).splitlines()[1:] == [
        f"environment b==2 a==1: {formatting.size(done.environments[0][1])}",
        last,
    ]


def test_a_file_counts_as_its_bytes_and_a_link_as_itself(tmp_path: Path) -> None:
    """Whatever it points at."""
    (tmp_path / "file").write_bytes(bytes(3000))
    (tmp_path / "link").symlink_to("file")
    assert (size_bytes(tmp_path / "file"), size_bytes(tmp_path / "link"), size_bytes(tmp_path)) == (3000, 4, 3004)


def test_an_entry_in_the_making_is_left_alone(root: Path) -> None:
    """A run that holds an entry's lock keeps it, and its temporary folder; the rest goes."""
    making = root / "artifacts" / f".{KEYS[0][:16]}-x1y2"
    making.mkdir()
    with filelock.FileLock(root / "locks" / f"artifacts-{KEYS[0]}.lock"):
        done = clean(root)
    assert (done.removed, done.in_use) == (1, 2)
    assert entry(root, KEYS[0]).exists()
    assert making.exists()


def test_what_a_killed_run_left_goes_too(root: Path) -> None:
    """A temporary folder that nobody holds is rubbish."""
    (root / "artifacts" / f".{KEYS[0][:16]}-x1y2").mkdir()
    assert clean(root).removed == 3


def test_links_are_never_followed(root: Path, tmp_path: Path) -> None:
    """A link out of the cache is removed as a link: what it points at stays and is not counted."""
    outside = tmp_path / "precious"
    outside.mkdir()
    (outside / "data").write_bytes(b"y" * 5000)
    (root / "artifacts" / ("c" * 64)).symlink_to(outside)
    (entry(root, KEYS[0]) / "inside").symlink_to(outside)
    (root / "linked-kind").symlink_to(outside)
    done = clean(root)
    assert (outside / "data").read_bytes() == b"y" * 5000
    assert (done.removed, done.foreign) == (3, 1)
    assert done.freed_bytes < 5000


@pytest.mark.parametrize("tag", [None, "Signature: 8a477f597d28d172789f06886806bc55\n# made by pip\n"])
def test_a_folder_that_is_not_a_cache_of_qbench_is_refused(tmp_path: Path, tag: str | None) -> None:
    """Pointing QBENCH_CACHE at a home folder must not cost anybody their files."""
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "text").write_text("years of work")
    if tag is not None:
        (tmp_path / "CACHEDIR.TAG").write_text(tag)
    with pytest.raises(UsageError, match="not a cache of qbench"):
        clean(tmp_path)
    assert (tmp_path / "thesis" / "text").exists()


def test_a_file_is_no_cache(tmp_path: Path) -> None:
    """QBENCH_CACHE may name a file by a slip: one message, and the file stays."""
    (tmp_path / "thesis").write_text("years of work")
    with pytest.raises(UsageError, match=r"thesis: a file, .* check QBENCH_CACHE"):
        clean(tmp_path / "thesis")
    assert (tmp_path / "thesis").read_text() == "years of work"


@pytest.mark.parametrize(
    "name", ["thesis", "artifacts/mine", "downloads/holiday", "photos.jpg", f"artifacts/{'a' * 63}"]
)
def test_only_what_qbench_names_goes(root: Path, name: str) -> None:
    """Files that somebody put into the cache stay, wherever they lie in it, and the text counts them."""
    own = root / name
    own.mkdir(parents=True)
    (own / "text").write_text("years of work")
    done = clean(root)
    assert (done.removed, done.foreign) == (2, 1)
    assert (own / "text").read_text() == "years of work"
    assert to_text(done).endswith("; kept 1 that qbench did not put there")


def test_downloads_of_data_sets_go(root: Path) -> None:
    """What was fetched for a data set that is known here can be fetched again."""
    (root / "downloads" / "mnist").mkdir(parents=True)
    assert clean(root).removed == 3
    assert not (root / "downloads" / "mnist").exists()


def test_a_download_that_goes_on_is_left_alone(root: Path) -> None:
    """Its lock has another name than those of entries."""
    (root / "downloads" / "mnist").mkdir(parents=True)
    with filelock.FileLock(root / "locks" / "download-mnist-images.gz.lock"):
        done = clean(root)
    assert (done.removed, done.in_use) == (2, 1)
    assert (root / "downloads" / "mnist").exists()


def test_a_cache_without_locks_has_no_entries(tmp_path: Path) -> None:
    """An empty folder, of which nothing is told, and one of which only the tag and somebody's files are left."""
    empty = clean(tmp_path)
    assert (empty.removed, empty.freed_bytes, empty.kept, empty.in_use, empty.foreign) == (0, 0, 0, 0, 0)
    root = store.open_cache(tmp_path)
    (root / "locks").rmdir()
    (root / "mine").write_text("")
    assert clean(root) == Cleaned(folder=root, removed=0, freed_bytes=0, foreign=1)


def test_what_stays_is_told_with_its_reason() -> None:
    """Each that there is."""
    cleaned = Cleaned(folder=Path("/c"), removed=0, freed_bytes=0, kept=3, in_use=2, foreign=1)
    words = "kept 3 younger and 2 in use and 1 that qbench did not put there"
    assert to_text(cleaned) == f"removed 0 entries from /c: {formatting.size(0)}; {words}"


def test_a_cache_that_a_run_uses_is_left_whole(root: Path) -> None:
    """Between two entries of its own a run holds no entry's lock, and still needs them all."""
    with store.in_use(root), pytest.raises(UsageError, match=rf"process {os.getpid()} of qbench uses this cache"):
        clean(root)
    assert all(entry(root, key).exists() for key in KEYS)
    assert clean(root).removed == 2


def test_a_killed_run_does_not_hold_the_cache(root: Path) -> None:
    """The system gives a dead process's lock back, and its file goes."""
    left = root / "locks" / "user-999999-abcd1234.lock"
    left.write_text("")
    with store.in_use(root):
        assert not left.exists()
    assert list((root / "locks").glob("user-*")) == []
    left.write_text("")
    assert clean(root).removed == 2
    assert not left.exists()


def test_nobody_begins_to_use_a_cache_that_is_being_emptied(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that begins meanwhile waits, and says so where that does not end."""
    monkeypatch.setattr(cache_root, "_CLEANING_SECONDS", 0.0)
    with cache_root.nobody_uses(root):
        with pytest.raises(UsageError, match="is emptying this cache"), store.in_use(root):
            pytest.fail("used while it is emptied")
        with pytest.raises(UsageError, match="another `qbench clean`"):
            clean(root)
    with store.in_use(root), store.in_use(root):  # many at once
        pass


def test_no_cache_is_nothing_to_do(tmp_path: Path) -> None:
    """A cache that does not exist yet frees nothing and is not made."""
    assert clean(tmp_path / "none") == Cleaned(folder=tmp_path / "none", removed=0, freed_bytes=0)
    assert not (tmp_path / "none").exists()


def test_the_folder_is_the_one_that_the_environment_names(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an argument it is QBENCH_CACHE that is emptied."""
    monkeypatch.setenv("QBENCH_CACHE", str(root))
    assert clean().removed == 2


def test_text_says_what_went_and_what_stayed(root: Path) -> None:
    """One line holds the number, the folder, the room made, and why the rest stayed."""
    with filelock.FileLock(root / "locks" / f"artifacts-{KEYS[0]}.lock"):
        done = clean(root, dry_run=True)
    freed = formatting.size(done.freed_bytes)
    assert to_text(done, dry_run=True) == f"would remove 1 entry from {root}: {freed}; kept 1 in use"
    assert to_text(clean(root)).startswith(f"removed 2 entries from {root}: ")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            PermissionError(13, "Permission denied", "/cache/file"),
            "/cache/file: cannot be removed (Permission denied);",
        ),
        (OSError("odd"), ": cannot be removed (odd); change its permissions"),
    ],
)
def test_what_cannot_be_removed_is_named_with_the_reason(
    root: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, told: str
) -> None:
    """The file that stands in the way, as far as the system tells it."""

    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(shutil, "rmtree", refuse)
    with pytest.raises(UsageError, match=re.escape(told)):
        clean(root)


def test_an_age_counts_until_now(root: Path) -> None:
    """Where no other moment is given."""
    modified = entry(root, KEYS[0]).stat().st_mtime
    os.utime(entry(root, KEYS[1]), (modified, modified - 3 * 86_400))
    done = clean(root, older_than_days=2)
    assert (done.removed, done.kept) == (1, 1)


def test_a_link_in_the_place_of_a_kind_is_not_followed(root: Path, tmp_path: Path) -> None:
    """Nor is what it points at counted: somebody has moved a part of the cache, or has another cache there."""
    outside = tmp_path / "outside"
    (outside / KEYS[0]).mkdir(parents=True)
    (outside / "mine").mkdir()
    (root / "data").symlink_to(outside)
    done = clean(root)
    assert (done.removed, done.foreign) == (2, 0)
    assert {path.name for path in outside.iterdir()} == {KEYS[0], "mine"}


def test_a_file_with_the_name_of_an_entry_is_none(root: Path) -> None:
    """An entry is a folder."""
    (root / "artifacts" / ("c" * 64)).write_text("mine")
    done = clean(root)
    assert (done.removed, done.foreign) == (2, 1)
    assert (root / "artifacts" / ("c" * 64)).read_text() == "mine"


def test_only_a_run_that_begins_waits_for_a_lock(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten minutes, while the cache is emptied; whoever empties it, or wants a folder that another has, is told at
    once."""
    waits: dict[str, float] = {}

    class Lock(filelock.FileLock):  # type: ignore[misc,valid-type]  # of this system
        def acquire(self, *words: Any, **options: Any) -> Any:
            waits[Path(self.lock_file).name.split("-")[0]] = self.timeout
            return super().acquire(*words, **options)

    (root / "locks" / "user-999999-abcd1234.lock").write_text("")
    monkeypatch.setattr(filelock, "FileLock", Lock)
    clean(root, dry_run=True)
    with store.hold_folder(root, root):
        assert waits == {"clean.lock": 0, "user": 0, "artifacts": 0, "folder": 0}
    with store.in_use(root):
        assert waits["clean.lock"] == 600.0
