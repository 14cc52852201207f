"""What a shipped folder came from: digests, versions, the machine, the record; and what it needs installed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import qbench
from qbench.backends.program import Program
from qbench.record.schema import Record
from qbench.record.stored_run import StoredRun

SCHEMA = 1
_NUMBER = re.compile(r"[0-9][0-9A-Za-z.]*")  # of a release, also a.dev1 or an rc


def list_requirements(program: Program, versions: Mapping[str, str | None]) -> list[str]:
    """Lines for pip: what the script imports, in the versions that the run had. The ``+cpu`` of a build is left out,
    since an index with only that build offers it for the plain number, too; and what is no version, since the run may
    be somebody else's and pip reads more than versions."""
    pinned = []
    for name in ("numpy", *program.libraries):
        if name == "torch":
            pinned.append("# torch: its build for CPUs alone is enough, and much smaller; README.md says how to get it")
        number = (versions.get(name) or "").partition("+")[0]
        pinned.append(f"{name}=={number}" if _NUMBER.fullmatch(number) else name)
    return pinned


def describe(run: StoredRun, record: Record) -> dict[str, Any]:
    """``provenance.json``: ready for JSON."""
    info = run.info
    return {
        "schema": SCHEMA,
        "qbench": qbench.__version__,
        "run": run.folder.name,
        "suite": {
            "name": info.suite.name,
            "sha256": hashlib.sha256(info.suite.text.encode()).hexdigest(),
            "overrides": list(info.suite.overrides),
            "commit": None if info.commit is None else asdict(info.commit),
        },
        "digests": {name: digest for name, digest in info.digests.items() if _concerns(name, record.case.model)},
        "versions": dict(info.versions),
        "machine": dict(info.environment),
        "record": asdict(record),
    }


def _concerns(name: str, model: str) -> bool:
    """Whether a digest is that of the data or of this model."""
    return name == "data" or name == f"model {model}" or name.endswith(f" of {model}")
