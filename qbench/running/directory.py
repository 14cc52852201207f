"""A run on disk: its folder, ``run.json``, the records as they come, and where ``latest`` points."""

from __future__ import annotations

import datetime
import errno
import json
import secrets
import shlex
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from qbench.backends.libraries import list_libraries
from qbench.data import Data
from qbench.environments.environment import list_needed
from qbench.errors import QbenchError, UsageError
from qbench.files import atomic, regular_file
from qbench.files.stored_name import name_of
from qbench.machine import fingerprint
from qbench.metrics.spec import MetricSpec
from qbench.plan.planner import Plan
from qbench.record import jsonl, locate, schema
from qbench.record.commit import read_commit
from qbench.record.schema import Record
from qbench.record.stored_run import RUN, ExamplesInfo, read_info
from qbench.suite import Suite
from qbench.suite.quick import list_written

REPORTS = Path("reports")
PARTS = ("samples", "predictions")


class RunDirectory:
    """``reports/<suite>/<UTC time>-<short id>/``; records are appended from several threads, one at a time."""

    def __init__(
        self, path: Path, digests: dict[str, str] | None = None, notes: tuple[str, ...] = (), *, quick: bool = False
    ) -> None:
        self.path = path
        self._quick = quick
        self._lock = threading.Lock()
        self._digests: dict[str, str] = digests or {}
        self._notes = notes
        self._shown = False  # whether `latest` points here, or at a later run

    def records(self) -> list[Record]:
        """Everything recorded so far."""
        return jsonl.read(self.path) if (self.path / jsonl.RECORDS).exists() else []

    def write_record(self, record: Record) -> None:
        """Adds one record and forces it to disk."""
        with self._lock, self._writing():
            jsonl.append(self.path / jsonl.RECORDS, record)
            if not self._shown:
                locate.point_latest_at(self.path, quick=self._quick)
                self._shown = True

    def tidy(self) -> None:
        """Removes what killed parts of this run have left half written, and what they would have gone on from."""
        for folder in [self.path, *(path for path in self.path.iterdir() if path.is_dir() and not path.is_symlink())]:
            atomic.sweep(folder)
        for folder in (self.path / "samples").glob("partial-*"):
            atomic.remove_marked(folder)

    def resume_command(
        self, suite: Suite, only: str | None, on: str | None = None, artifacts: Path | None = None
    ) -> str:
        """The command that goes on with this run: the same suite, filter, overrides, cluster and artifacts."""
        words = ["qbench", "run", suite.file]
        words += ["--filter", only] if only else []
        words += ["--quick"] if suite.quick else []
        words += ["--on", on] if on else []
        words += ["--artifacts", str(artifacts)] if artifacts else []
        for override in list_written(suite.overrides, suite.quick):
            words += ["--set", override]
        return shlex.join([*words, "--resume", str(self.path)])

    def require_same_inputs(self, digests: Mapping[str, str]) -> None:
        """Raises ``UsageError`` where the data or a network is not what an earlier part of this run had."""
        changed = [name for name, digest in digests.items() if self._digests.get(name, digest) != digest]
        if changed:
            raise UsageError(
                f"{self.path}: {' and '.join(changed)} changed since this run was started; start a new run, "
                "or its cases would not belong together"
            )
        self._digests |= digests
        self._update_info({"digests": self._digests})

    def write_info(self, suite: Suite, plan: Plan, metric: MetricSpec, *, started: str, only: str | None) -> None:
        """Writes ``run.json``: the suite as read, the plan, the metric, the machine, versions, the commit."""
        commit = read_commit(suite.base)
        content = {
            "schema": schema.SCHEMA,
            "suite": {
                "name": suite.suite,
                "file": suite.file,
                "text": suite.text,
                "overrides": list(suite.overrides),
            },
            "started": started,
            "finished": None,
            "environment": fingerprint.fingerprint(),
            "versions": fingerprint.versions(list_libraries()),
            "locked": list_needed(list_libraries()),
            "plan": {
                "cases": [planned.case.id for planned in plan.cases],
                "skipped": [{"id": skip.key.id, "reason": skip.reason} for skip in plan.skipped],
                "notes": list(plan.notes),
            },
            "metric": _describe_metric(metric),
            "elapsed_seconds": {},
            "digests": self._digests,
            "quick": {"examples": None, "of": None} if suite.quick else None,
            "filter": only,
            "notes": list(self._notes),
            "commit": None if commit is None else asdict(commit),
        }
        with self._writing():
            self._write_info(content)

    def write_metric(self, metric: MetricSpec) -> None:
        """Puts into ``run.json`` the metric that the data decided on."""
        self._update_info({"metric": _describe_metric(metric)})

    def write_quick(self, *, examples: int, of: int | None) -> None:
        """Puts into ``run.json`` how many examples a quick look scores, of how many."""
        self._update_info({"quick": {"examples": examples, "of": of}})

    def write_examples(self, data: Data) -> None:
        """Puts into ``run.json`` what the raw examples are and how they are preprocessed."""
        arrays = data.evaluation_examples().inputs
        described = ExamplesInfo(
            types=tuple(str(array.dtype) for array in arrays),
            shapes=tuple(array.shape[1:] for array in arrays),
            **asdict(data.preprocessing),
        )
        self._update_info({"examples": asdict(described)})

    def write_note(self, text: str) -> None:
        """Puts a sentence into ``run.json`` that a reader of the answer must know; once, also where a run goes on."""
        with self._lock, self._writing():
            if text not in self._notes:
                self._notes += (text,)
                self._rewrite_info({"notes": list(self._notes)})

    def write_end(self, *, finished: str | None, elapsed_seconds: Mapping[str, float]) -> None:
        """Puts into ``run.json`` when the run finished (None: it was interrupted), and where time went."""
        self._update_info({"finished": finished, "elapsed_seconds": dict(elapsed_seconds)})

    def write_layers(self, variant: str, numbers: Sequence[Mapping[str, Any]]) -> str:
        """Keeps the numbers of a variant's layers; the file's name below the run's folder."""
        name = _layers_name(variant)
        with self._writing():
            atomic.make_folder(self.path / "layers")
            atomic.write_text(self.path / name, json.dumps([dict(layer) for layer in numbers], indent=1))
        return name

    def layers(self, variant: str) -> str | None:
        """The name of what ``write_layers`` wrote for a variant; None where it has not."""
        name = _layers_name(variant)
        return name if (self.path / name).is_file() else None

    def _update_info(self, changes: Mapping[str, Any]) -> None:
        with self._lock, self._writing():
            self._rewrite_info(changes)

    def _rewrite_info(self, changes: Mapping[str, Any]) -> None:
        content = json.loads(regular_file.read_text(self.path / RUN))
        self._write_info(content | changes)

    def _write_info(self, content: Mapping[str, Any]) -> None:
        if not self.path.exists():
            with atomic.make_workplace(self.path) as workplace:
                begun = workplace / self.path.name
                for part in PARTS:
                    (begun / part).mkdir(parents=True)
                (begun / RUN).write_text(json.dumps(content, indent=1), encoding="utf-8")
                begun.replace(self.path)
            return
        atomic.write_text(self.path / RUN, json.dumps(content, indent=1))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise QbenchError(
                f"{self.path}: cannot be written ({error.strerror or error}); what was recorded before is kept: "
                "make room and go on with --resume"
            ) from error


def create(suite: Suite, out: Path | None) -> RunDirectory:
    """A new run's folder; ``UsageError`` before anything runs if it cannot be made. It is there, whole, once
    ``write_info`` is; ``latest`` points at it once it holds a record."""
    stamp = f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
    folder = (out or REPORTS) / suite.suite / stamp
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder.parent):
            pass
    except OSError as error:
        raise UsageError(f"{folder}: cannot be made ({error.strerror}); choose another place with --out") from error
    return RunDirectory(folder, quick=suite.quick)


def reopen(folder: Path, suite: Suite) -> RunDirectory:
    """The folder of a stopped run; ``UsageError`` unless it is of this very suite and this kind of machine."""
    info = read_info(folder / RUN)
    if info.suite.text != suite.text or info.suite.overrides != suite.overrides:
        raise UsageError(f"{folder}: was made from another text of the suite, or other --set; start a new run")
    differs = fingerprint.comparable(info.environment, fingerprint.fingerprint())
    if differs is not None:
        raise UsageError(f"{folder}: was made on another machine ({differs} differs); start a new run")
    try:
        for part in PARTS:
            atomic.make_folder(folder / part)
        if (folder / jsonl.RECORDS).is_symlink():
            raise OSError(errno.ELOOP, "records.jsonl is a link; nothing is written behind one")
    except OSError as error:
        raise UsageError(f"{folder}: cannot be gone on with: {error.strerror or error}") from error
    return RunDirectory(folder, dict(info.digests), info.notes, quick=info.quick is not None)


def _describe_metric(spec: MetricSpec) -> dict[str, Any]:
    metric = spec.load()
    return {
        "name": metric.name,
        "percent": metric.percent,
        "higher_is_better": metric.higher_is_better,
        "against": metric.against,
        "own_unit": metric.unit,
        "perfect": metric.perfect,
    }


def _layers_name(variant: str) -> str:
    return f"layers/{name_of(variant)}.json"
