"""A case of a run -> a folder that somebody deploys without qbench: the model's file, and how to run it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from qbench import registry
from qbench.backends.base import Backend
from qbench.cache import manifest
from qbench.errors import CaseSkipped, UsageError
from qbench.files import atomic
from qbench.record.artifact_file import find_in_cache
from qbench.record.schema import Record
from qbench.record.stored_run import StoredRun
from qbench.ship import provenance, readme
from qbench.ship.predict_script import write_script

SCRIPT, README, REQUIREMENTS, PROVENANCE = "predict.py", "README.md", "requirements.txt", "provenance.json"


@dataclass(frozen=True, kw_only=True)
class Shipped:
    """What was written: ``file`` is the model's in ``folder``."""

    case: str
    folder: Path
    file: str


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A case to ship; ``answer``: the run's decision, where the case is its pick."""

    record: Record
    answer: str | None = None


def write_folder(run: StoredRun, chosen: Mapping[str, Chosen], folder: Path) -> list[Shipped]:
    """Writes a case into a folder that is new or empty, several into folders in it by their names; all or none.

    Raises ``UsageError`` where something lies in the folder, where a case has no artifact, or where it is gone from
    the cache, and where its backend does not say how its files run.
    """
    folder = folder.absolute()
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise UsageError(f"{folder}: something lies there already; name a new folder with --output")
    with atomic.make_workplace(folder) as workplace:
        begun = workplace / "shipped"
        begun.mkdir()
        places = {name if len(chosen) > 1 else ".": each for name, each in chosen.items()}
        files = {name: _fill(run, each, begun / name) for name, each in places.items()}
        begun.replace(folder)  # also of an empty folder
    return [Shipped(case=each.record.case.id, folder=folder / name, file=files[name]) for name, each in places.items()]


def _fill(run: StoredRun, chosen: Chosen, folder: Path) -> str:
    """Writes the case's model under a plain name, ``predict.py``, ``requirements.txt``, ``README.md`` and
    ``provenance.json``; returns the name of the model's file."""
    record = chosen.record
    case = record.case.id
    if record.status != "ok" or record.artifact is None:
        raise UsageError(f"{case}: the case is {record.status}, so there is nothing to ship; name one that is ok")
    file = find_in_cache(record)
    if file is None:
        raise UsageError(
            f"{case}: its artifact is gone from the cache; run the suite again (`qbench run {run.info.suite.file}`), "
            "which builds the same bytes, and ship that run"
        )
    backend: Backend = registry.load("backend", record.case.backend)
    folder.mkdir(exist_ok=True)
    try:
        program = backend.deploy(file, folder, plain_name(record.case.model))
    except CaseSkipped as error:
        raise UsageError(f"{case}: {error}") from error
    requirements = provenance.list_requirements(program, run.info.versions)
    texts = {
        SCRIPT: write_script(program, run.info, record, _read_fixed_batch(file)),
        REQUIREMENTS: "".join(f"{line}\n" for line in requirements),
        README: readme.write_readme(run, record, program, chosen.answer),
        PROVENANCE: json.dumps(provenance.describe(run, record), indent=1, ensure_ascii=False) + "\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return program.file


def _read_fixed_batch(file: Path) -> int | None:
    """The only batch size that an artifact takes, as its build said; None: any."""
    size = manifest.read(file.parent).facts.get("fixed_batch")
    return size if isinstance(size, int) else None


def plain_name(model: str) -> str:
    """A model's name as the name of a file on any system."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", model).strip("-.")[:80] or "model"
