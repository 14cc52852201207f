"""A file of explanations in a run's folder: one line of JSON for each case, which anybody may have written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from qbench.files import atomic, regular_file, strict_json
from qbench.record.run_files import Damaged, find

MOST_BYTES = 10_000_000  # a few thousand cases; more is none of qbench's


class _OfCase(Protocol):
    """What is said of a case."""

    @property
    def case(self) -> str: ...


_Explained = TypeVar("_Explained", bound=_OfCase)


def read_file(folder: Path, name: str, kind: TypeAdapter[_Explained]) -> tuple[_Explained, ...]:
    """What the file holds; nothing where it is not there. Raises ``Damaged`` where it holds something else."""
    file = find(folder, name)
    if file is None:
        return ()
    try:
        lines = [line for line in regular_file.read_text(file, MOST_BYTES).splitlines() if line.strip()]
        return tuple(kind.validate_python(strict_json.parse(line)) for line in lines)
    except (OSError, ValueError, ValidationError) as error:
        raise Damaged(file, "cannot be read as explanations", "delete it to go on without") from error


def write_file(file: Path, known: Sequence[Any], explained: Any) -> None:
    """Writes what is ``known`` with one more case, in place of what was known of that one."""
    others = [each for each in known if each.case != explained.case]
    lines = [json.dumps(asdict(each), ensure_ascii=False, allow_nan=False) for each in (*others, explained)]
    atomic.write_text(file, "".join(f"{line}\n" for line in lines))
