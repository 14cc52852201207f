"""A finished run in words: what failed or was skipped and why, where the time went; JSON. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench import formatting
from qbench.record.schema import Record
from qbench.running.run import RunResult

if TYPE_CHECKING:
    from qbench.suite import ModelSpec

SCHEMA = 1
_OF_THE_FILE = ("model", "build", "evaluate")  # stages at which the model's own file may be what fails
_SHOWN = 3  # cases named under one reason; the report names all


def problems(records: Iterable[Record]) -> list[str]:
    """Lines on the failed and the skipped cases, each reason once with its first cases; empty if all are ok."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for record in records:
        if record.status != "ok":
            at = f"{record.stage}: " if record.stage and record.status == "failed" else ""
            by_reason.setdefault((record.status, f"{at}{record.reason}"), []).append(record.case.id)
    lines = []
    for (status, reason), cases in sorted(by_reason.items(), key=lambda item: item[0][0]):
        more = f" and {len(cases) - _SHOWN} more" if len(cases) > _SHOWN else ""
        lines.append(f"{status}: {', '.join(cases[:_SHOWN])}{more}")
        lines += [f"  {formatting.clean(line)}" for line in reason.splitlines()]
    return lines


def suggest_checks(records: Iterable[Record], models: Iterable[ModelSpec], base: Path) -> list[str]:
    """What says more of the files of models, and of int8 files of the user's own, of which a case failed before it was
    measured."""
    failed = [record.case for record in records if record.status == "failed" and record.stage in _OF_THE_FILE]
    files: dict[str, None] = {}
    for case, model in ((case, model) for case in failed for model in models if model.name == case.model):
        own = next((each.file for each in model.int8 if each.recipe == case.recipe), None)
        source = model.source.file if model.source is not None and model.source.loader == "onnx" else None
        if (file := own or source) is not None:
            files[file] = None
    return [f"`qbench check {shlex.quote(str(base / file))}` says what each runtime makes of it" for file in files]


def times(elapsed_seconds: Mapping[str, float]) -> str:
    """``time: build 12.1 s, evaluate 3.04 s, measure 40.2 s, report 2.20 s; 57.5 s in all``."""
    by_stage = ", ".join(f"{stage} {formatting.duration(seconds)}" for stage, seconds in elapsed_seconds.items())
    return f"time: {by_stage}; {formatting.duration(sum(elapsed_seconds.values()))} in all"


def as_json(
    result: RunResult,
    report: Path | None,
    elapsed_seconds: Mapping[str, float],
    answer: Mapping[str, Any] | None = None,
) -> str:
    """Everything, for a program; numbers raw. ``answer``: the decisions, and what to know besides."""
    data = {
        "schema": SCHEMA,
        "folder": str(result.folder),
        "report": None if report is None else str(report),
        "exit_code": result.exit_code,
        "interrupted": result.interrupted,
        "resume": result.resume,
        "elapsed_seconds": dict(elapsed_seconds),
        **(answer or {"decisions": [], "warnings": []}),
        "records": [asdict(record) for record in result.records],
    }
    return json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False) + "\n"
