"""Which cells run: those that ``--filter`` keeps, in their order. Pure."""

from __future__ import annotations

import fnmatch
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from qbench import registry
from qbench.errors import UsageError
from qbench.record.schema import NATIVE, CaseKey
from qbench.suite.gate import CASE_KEYS

if TYPE_CHECKING:  # its module imports numpy, which a plan does not need
    from qbench.backends.base import Backend


def match_globs(keys: list[CaseKey], only: str) -> list[CaseKey]:
    """The cells whose id matches one of the globs; each glob must match one."""
    matched: set[str] = set()
    for glob in (part.strip() for part in only.split(",")):
        match = re.compile(fnmatch.translate(glob)).match
        matches = {key.id for key in keys if match(key.id)}
        if not matches:
            some = ", ".join(key.id for key in keys[:5]) + (", …" if len(keys) > 5 else "") if keys else "none"
            words = {word for key in keys for word in key.id.split("/")}
            near = next((hint for part in glob.split("/") if (hint := registry.suggest(part, words - {part}))), ";")
            raise UsageError(
                f"--filter '{glob}' matches no case{near} ids are model/mode/backend/t<threads>/b<batch size>"
                f"{'' if all(key.host == NATIVE for key in keys) else '[/<host>]'}: {some}"
            )
        matched |= matches
    return [key for key in keys if key.id in matched]


def sort_cells(cells: Iterable[CaseKey], backends: Mapping[str, Backend], listed: Iterable[CaseKey]) -> list[CaseKey]:
    """The cells by model, threads, batch size, host, runtime, fp32 first, then backend and mode, each as it comes among
    those that are ``listed``; before these what is not, such as a reference's backend or host."""
    ranks: dict[str, dict[object, int]] = {name: defaultdict(lambda: -1) for name in (*CASE_KEYS, "runtime")}
    for key in listed:
        for name in CASE_KEYS:
            ranks[name].setdefault(getattr(key, name), len(ranks[name]))
        ranks["runtime"].setdefault(backends[key.backend].runtime, len(ranks["runtime"]))

    def rank_key(key: CaseKey) -> tuple[int, ...]:
        return (
            ranks["model"][key.model],
            ranks["threads"][key.threads],
            ranks["batch_size"][key.batch_size],
            ranks["host"][key.host],
            ranks["runtime"][backends[key.backend].runtime],
            key.mode != "fp32",
            ranks["backend"][key.backend],
            ranks["mode"][key.mode],
            ranks["recipe"][key.recipe],
        )

    return sorted(cells, key=rank_key)
