"""A stored baseline: a run's records, its machine and what it said of each example, as three small files to commit,
and the artifacts to run again.

``<suite>.jsonl`` holds the records, sorted by case (``baseline_lines``); ``<suite>.run.json`` beside it the suite, the
environment and the versions; ``<suite>.examples.json`` what ``baseline_examples`` keeps. The same run always gives the
same bytes.

The gate runs the int8 artifacts of the baseline again. They lie in the cache, where the run put them; since they may
be large, they are copied to ``<suite>/<sha256>/`` beside the baseline only when asked for. What the gate loads has
the sha256 of its record.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from qbench import formatting
from qbench.cache import manifest
from qbench.errors import UsageError, first_names
from qbench.files import atomic, output_file
from qbench.files.stored_name import is_digest
from qbench.foreign_text import join_lines
from qbench.gating import baseline_examples, baseline_lines
from qbench.record import jsonl
from qbench.record.artifact_file import find_in_cache, find_sound
from qbench.record.example_scores import ExampleScores
from qbench.record.schema import Record
from qbench.record.stored_run import RunInfo, StoredRun, read_info, read_run

SUFFIX = ".jsonl"


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The records of a stored baseline, and what its run was; ``file`` is where it was read from, ``examples`` what it
    keeps of each example, by case (empty: it keeps none), ``contradictions`` why those of a case are of another run
    than its record."""

    info: RunInfo
    records: tuple[Record, ...]
    file: Path | None = None
    examples: Mapping[str, ExampleScores] = field(default_factory=dict)
    contradictions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Artifacts:
    """Which of the baseline's int8 artifacts a gate on this machine will find. ``folder`` holds copies, where they
    were asked for; ``missing`` are the cases whose artifact is gone from the cache."""

    available: int
    missing: tuple[str, ...]
    size_bytes: int
    folder: Path | None


def write_baseline(run_folder: Path, target: Path, *, allow_failed: bool = False) -> Path:
    """Writes the run as the baseline ``<target>/<suite>.jsonl``, or as ``target`` itself where that ends in
    ``.jsonl``, and returns that file.

    Refuses (``UsageError``) a run with failed or missing cases unless ``allow_failed``, and always a quick look and one
    in which no case is ok: what a gate is held against must be whole.
    """
    run = read_run(run_folder)
    if run.info.quick is not None:
        raise UsageError(
            f"{run.folder}: a quick look is no baseline: its timing is coarse and its examples are few; make a run "
            f"without --quick: `qbench run {run.info.suite.file}`"
        )
    _require_complete(run, allow_failed=allow_failed)
    file = target if target.suffix == SUFFIX else target / f"{run.info.suite.name}{SUFFIX}"
    with output_file.place_for(file):
        in_order = sorted(run.records, key=lambda record: record.case.id)
        atomic.write_text(file, "".join(f"{baseline_lines.to_line(record)}\n" for record in in_order))
        _write_info(info_file(file), run)
        _write_examples(examples_file(file), run)
    return file


def read_baseline(file: Path) -> Baseline:
    """The baseline in a ``.jsonl`` file; raises ``UsageError`` where it or its ``.run.json`` is missing or wrong: NaN,
    a case that stands there twice or no more."""
    if not file.is_file():
        raise UsageError(f"{file}: no such baseline; write one with `qbench baseline RUN`")
    if not info_file(file).is_file():
        raise UsageError(
            f"{info_file(file)}: missing: it says on which machine the baseline was measured; {baseline_examples.AGAIN}"
        )
    records = tuple(jsonl.read_whole(file, baseline_examples.AGAIN))
    if not records:
        raise UsageError(f"{file}: no case stands in it; {baseline_examples.AGAIN}")
    info = read_info(info_file(file))
    _require_lines(file, info, records)
    examples = baseline_examples.read(examples_file(file))
    scores = {record.case.id: record.accuracy.value for record in records if record.accuracy is not None}
    contradictions = baseline_examples.find_contradictions(examples, scores)
    return Baseline(info=info, records=records, file=file, examples=examples, contradictions=contradictions)


def _require_lines(file: Path, info: RunInfo, records: Sequence[Record]) -> None:
    """Raises ``UsageError`` where a case that the run had has no line any more: nothing would be held against it."""
    present = {record.case.id for record in records}
    lost = [case for case in info.plan.cases if case not in present]
    if lost:
        raise UsageError(
            f"{file}: no line of {first_names(lost)}, which the run had by {info_file(file).name}; "
            f"{baseline_examples.AGAIN}"
        )


def info_file(file: Path) -> Path:
    """``x.jsonl`` -> ``x.run.json``."""
    return file.with_name(f"{file.name.removesuffix(SUFFIX)}.run.json")


def examples_file(file: Path) -> Path:
    """``x.jsonl`` -> ``x.examples.json``."""
    return file.with_name(f"{file.name.removesuffix(SUFFIX)}.examples.json")


def artifacts_folder(file: Path) -> Path:
    """``x.jsonl`` -> ``x``, where copies of the artifacts lie."""
    return file.with_name(file.name.removesuffix(SUFFIX))


def locate_artifacts(file: Path, *, keep: bool) -> Artifacts:
    """Looks for the int8 artifacts of the baseline in ``file``; ``keep`` copies them beside it and removes the copies
    of former baselines. Raises ``UsageError`` where they cannot be written."""
    records = [record for record in read_baseline(file).records if record.status == "ok" and record.case.mode != "fp32"]
    files = {record.case.id: artifact_file(record, beside=file) for record in records}
    folders = {
        _sha256(record): kept_file.parent for record in records if (kept_file := files[record.case.id]) is not None
    }
    if keep:
        try:
            _copy(folders, artifacts_folder(file))
        except OSError as error:
            where = error.filename if isinstance(error, FileExistsError) else artifacts_folder(file)
            raise UsageError(f"{where}: cannot be written: {error.strerror or error}") from error
    return Artifacts(
        available=sum(kept_file is not None for kept_file in files.values()),
        missing=tuple(case for case, kept_file in files.items() if kept_file is None),
        size_bytes=sum(
            path.stat().st_size for folder in folders.values() for path in folder.rglob("*") if path.is_file()
        ),
        folder=artifacts_folder(file) if keep else None,
    )


def to_text(artifacts: Artifacts) -> str:
    """Which artifacts a gate will run again, and where they lie; one line for each case that it cannot."""
    count = artifacts.available + len(artifacts.missing)
    if artifacts.folder is None:
        where = "in the cache; --keep-artifacts copies them beside the baseline, for a machine without this cache"
    else:
        where = f"in {artifacts.folder} ({formatting.size(artifacts.size_bytes)}); commit them, or let CI cache them"
    lines = [f"artifacts that `qbench gate` runs again: {artifacts.available} of {count}, {where}"]
    lines += [
        f"  {join_lines(case)}: its artifact is gone from the cache: its stored speed-up is compared instead"
        for case in artifacts.missing
    ]
    return "\n".join(lines)


def artifact_file(record: Record, *, beside: Path | None) -> Path | None:
    """The file of a record's artifact: beside the baseline ``beside``, else in the cache; None where neither has it.

    Only a file whose sha256 is the record's is one, its other files being those that its manifest lists.
    """
    facts = record.artifact
    if facts is None or not is_digest(facts.sha256):
        return None  # a record is data: it names no folder but those that qbench names
    copy = None if beside is None else find_sound(artifacts_folder(beside) / facts.sha256, facts.sha256)
    return copy or find_in_cache(record)


def _sha256(record: Record) -> str:
    assert record.artifact is not None
    return record.artifact.sha256


def _copy(folders: dict[str, Path], target: Path) -> None:
    """Each folder as ``target/<sha256>``, and no other artifact there: a former one goes where its name and its
    manifest prove that every file in it is qbench's. Raises ``FileExistsError`` for anything else in the way."""
    if target.is_symlink():
        raise FileExistsError(errno.EEXIST, "it is a link; nothing is copied or removed behind one", str(target))
    target.mkdir(parents=True, exist_ok=True)
    for sha256, folder in folders.items():
        if folder.parent == target:
            continue
        with atomic.make_workplace(target / sha256) as workplace:
            shutil.copytree(folder, workplace / sha256)
            _clear(target / sha256)
            (workplace / sha256).replace(target / sha256)
    for former in target.iterdir():
        if former.name not in folders and is_digest(former.name) and find_sound(former, former.name) is not None:
            _clear(former)


def _clear(folder: Path) -> None:
    """Removes the files that the manifest of a copy lists, and the folder where nothing else lies in it; raises
    ``FileExistsError`` where something does. The copy may be damaged: a file of it that changed goes, too."""
    if not os.path.lexists(folder):
        return
    left = "something lies here that qbench did not put there; move it away"
    try:
        manifest.remove(folder)
    except (manifest.Damaged, OSError) as error:
        raise FileExistsError(errno.EEXIST, f"{left} ({error})", str(folder)) from error


def _require_complete(run: StoredRun, *, allow_failed: bool) -> None:
    if not any(record.status == "ok" for record in run.records):
        raise UsageError(f"{run.folder}: no case of this run is ok, so it cannot be a baseline")
    if allow_failed:
        return
    wrong = [f"{record.case.id}: {record.reason}" for record in run.records if record.status == "failed"]
    wrong += [f"{case}: no record" for case in run.info.plan.cases if case not in run.by_id]
    if wrong:
        listed = "\n".join(f"  {join_lines(line)}" for line in wrong)
        raise UsageError(
            f"{run.folder}: {len(wrong)} of its cases failed or are missing; fix or resume the run, or allow "
            f"failed cases, which are then not gated:\n{listed}"
        )


def _write_info(file: Path, run: StoredRun) -> None:
    # How long the run took and what its plan had to say differ between runs of equal results. The cases are those that
    # have a line, by which one that gets lost is missed.
    cases = tuple(case for case in run.info.plan.cases if case in run.by_id)
    bare = replace(run.info, plan=replace(run.info.plan, cases=cases, notes=()), elapsed_seconds={})
    text = json.dumps(asdict(bare), ensure_ascii=False, indent=1, sort_keys=True, allow_nan=False)
    atomic.write_text(file, f"{text}\n")


def _write_examples(file: Path, run: StoredRun) -> None:
    """Those of a former baseline go where this run has none; what cannot be read as such is somebody's own."""
    text = baseline_examples.to_text(run)
    if text is not None:
        atomic.write_text(file, text)
    elif baseline_examples.read(file):
        file.unlink()
