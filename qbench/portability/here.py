"""The artifacts of a run that another machine made, answered on this one: beside the answers that the run holds."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.build import Artifact, read_kept
from qbench.data import Data
from qbench.errors import CaseError, UsageError
from qbench.evaluate.predictions import load_predictions, predict_cached
from qbench.hosts.read_back import read_kernels
from qbench.machine import fingerprint
from qbench.process.child_process import Limits
from qbench.progress.callback import Progress
from qbench.record.schema import NATIVE, HostFacts, Record, place_on
from qbench.record.stored_run import StoredRun

Array = NDArray[Any]
HERE = "here"  # stands where a host's name stands
GONE = "its artifact is neither in this machine's cache nor where --artifacts names one"


@dataclass(frozen=True, kw_only=True)
class AnsweredRun(StoredRun):
    """A stored run with records of the host ``here``, whose predictions are ``answers``, by case id."""

    answers: Mapping[str, dict[str, Array]] = field(default_factory=dict)

    def predictions(self, record: Record) -> dict[str, Array]:
        """Those of ``here``, or as the run holds them."""
        return self.answers.get(record.case.id) or super().predictions(record)


def answer_here(
    run: StoredRun,
    data: Data,
    find_file: Callable[[Record], Path | None],
    *,
    root: Path,
    limits: Limits,
    progress: Progress,
) -> AnsweredRun:
    """The run with what its int8 artifacts answer on this machine: ``find_file`` gives the file of a record's, None
    where there is none, ``root`` is the open cache. Raises ``UsageError`` where ``data`` are other examples than the
    run's."""
    records: dict[str, Record] = {}
    answers: dict[str, dict[str, Array]] = {}
    facts: dict[str, HostFacts] = {}
    for record in _list_artifacts(run):
        progress(f"{record.case.id} here", 0.0)
        case = place_on(record.case, HERE)
        plain = replace(record, case=case, latency=None, speedup=None, speedup_fastest=None, accuracy=None)
        file = find_file(record)
        if file is None:
            records[case.id] = replace(plain, status="skipped", stage="evaluate", reason=GONE)
            continue
        _require_same_examples(run, record, data)
        try:
            if case.backend not in facts:
                facts[case.backend] = _describe_machine(case.backend, limits)
            answers[case.id] = _answer(read_kept(file, record), data, case.batch_size, root, limits, progress)
        except CaseError as error:
            records[case.id] = replace(plain, status="failed", stage="evaluate", reason=f"does not run here: {error}")
        else:
            records[case.id] = replace(plain, host=facts[case.backend])
    return AnsweredRun(
        folder=run.folder, info=run.info, records=(*run.records, *records.values()), damage=run.damage, answers=answers
    )


def _list_artifacts(run: StoredRun) -> list[Record]:
    """A record of each int8 artifact with answers of the machine that built it; dynamic ones answer by the batch."""
    first: dict[tuple[object, ...], Record] = {}
    for record in run.records:
        if record.case.mode != "fp32" and record.case.host == NATIVE and record.status == "ok" and record.artifact:
            batch = record.case.batch_size if record.case.mode == "dynamic" else None
            first.setdefault((record.artifact.sha256, record.case.variant, record.case.model, batch), record)
    return list(first.values())


def _require_same_examples(run: StoredRun, record: Record, data: Data) -> None:
    """Raises ``UsageError`` unless the stored answers are of the examples that lie here, in this order."""
    stored = run.predictions(record)
    ours, theirs = data.evaluation_contents(), stored.get("contents")
    if ours is None or theirs is None:
        same = np.array_equal(stored.get("ids", ()), np.asarray(data.evaluation_ids()))
    else:
        same = np.array_equal(ours, theirs)
    if not same:
        raise UsageError(
            f"{run.folder}: its answers are of other evaluation examples than the suite's data on this machine "
            "(by what they hold, in their order); take the same data here, or answers are not comparable"
        )


def _describe_machine(backend: str, limits: Limits) -> HostFacts:
    view = read_kernels(backend, environment={}, limits=limits)
    return HostFacts(
        kind="native",
        cpu=fingerprint.cpu_model(),
        torch_isa=view.torch_isa,
        onednn_isa=view.onednn_isa,
        mkl_isa=view.mkl_isa,
        int8_sums=view.int8_sums,
    )


def _answer(
    artifact: Artifact,
    data: Data,
    batch_size: int,
    root: Path,
    limits: Limits,
    progress: Progress,
) -> dict[str, Array]:
    with tempfile.TemporaryDirectory(prefix="qbench-here-") as folder:
        file = Path(folder) / "predictions.npz"
        predict_cached(
            artifact, data, batch_size, file, same_answers=False, root=root, limits=limits, progress=progress
        )
        return load_predictions(file)
