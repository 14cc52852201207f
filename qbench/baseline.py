"""A stored baseline: a run's records and its machine, as two small files to commit.

``<suite>.jsonl`` holds the records, sorted by case; ``<suite>.run.json`` beside it the suite, environment and
versions. The same run always gives the same bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from qbench import record as records_file
from qbench.errors import UsageError
from qbench.record import Record
from qbench.stored import RunInfo, StoredRun, read_info, read_run

SUFFIX = ".jsonl"


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The records of a stored baseline, and what its run was."""

    info: RunInfo
    records: tuple[Record, ...]


def write_baseline(run_folder: Path, target: Path, *, allow_failed: bool = False) -> Path:
    """Writes the run as the baseline ``<target>/<suite>.jsonl``, or as ``target`` itself where that ends in
    ``.jsonl``, and returns that file.

    Refuses (``UsageError``) a run with failed or missing cases unless ``allow_failed``, and always one in which no
    case is ok: what a gate is held against must be whole.
    """
    run = read_run(run_folder)
    _check(run, allow_failed=allow_failed)
    file = target if target.suffix == SUFFIX else target / f"{run.info.suite.name}{SUFFIX}"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        records_file.write(file, _committed(run.records))
        _write_info(info_file(file), run.info)
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror or error}") from error
    return file


def read_baseline(file: Path) -> Baseline:
    """The baseline in a ``.jsonl`` file; raises ``UsageError`` where it or its ``.run.json`` is missing or wrong."""
    if not file.is_file():
        raise UsageError(f"{file}: no such baseline; write one with `qbench baseline RUN`")
    if not info_file(file).is_file():
        raise UsageError(f"{info_file(file)}: missing: it says on which machine the baseline was measured")
    return Baseline(info=read_info(info_file(file)), records=tuple(records_file.read(file)))


def info_file(file: Path) -> Path:
    """``x.jsonl`` -> ``x.run.json``."""
    return file.with_name(f"{file.name.removesuffix(SUFFIX)}.run.json")


def _check(run: StoredRun, *, allow_failed: bool) -> None:
    if not any(record.status == "ok" for record in run.records):
        raise UsageError(f"{run.folder}: no case of this run is ok, so it cannot be a baseline")
    if allow_failed:
        return
    wrong = [f"{record.case.id}: {record.reason}" for record in run.records if record.status == "failed"]
    wrong += [f"{case}: no record" for case in run.info.plan.cases if case not in run.by_id]
    if wrong:
        listed = "\n".join(f"  {line}" for line in wrong)
        raise UsageError(
            f"{run.folder}: {len(wrong)} of its cases failed or are missing; mend or resume the run, or allow "
            f"failed cases, which are then not gated:\n{listed}"
        )


def _committed(records: Sequence[Record]) -> list[Record]:
    """Sorted by case, without the paths of samples and predictions, which stay in the run's folder."""
    bare = (replace(record, samples=None, predictions=None) for record in records)
    return sorted(bare, key=lambda record: record.case.id)


def _write_info(file: Path, info: RunInfo) -> None:
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    text = json.dumps(asdict(info), ensure_ascii=False, indent=1, sort_keys=True, allow_nan=False)
    temporary.write_text(f"{text}\n", encoding="utf-8")
    temporary.replace(file)
