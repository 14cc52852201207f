"""``bisect.jsonl``: what was asked, then every look, a line of JSON each, written as soon as it is known.

Statistics are not stored: a search that is taken up again derives them, and the next step, from the looks. A line that
a kill cut short is left out. The file is data: anybody may have written it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from qbench.bisect.question import Observation, Question
from qbench.errors import UsageError
from qbench.files import atomic, regular_file, strict_json

FILE = "bisect.jsonl"
MOST_BYTES = 100_000_000
SCHEMA = 1
_NAMES: Mapping[str, str] = {"digest": "what artifacts and examples are made from", "on": "--on"}
_QUESTION = TypeAdapter(Question)
_OBSERVATION = TypeAdapter(Observation)


@dataclass(kw_only=True)
class Journal:
    """The looks of one bisection, and where they are kept."""

    folder: Path
    question: Question
    observations: list[Observation] = field(default_factory=list)

    @property
    def file(self) -> Path:
        """The file."""
        return self.folder / FILE

    def add(self, observation: Observation) -> None:
        """One more look: it is on the disk when this returns."""
        self.observations.append(observation)
        _append(self.file, _strip(asdict(observation)))


def open_journal(folder: Path, question: Question) -> Journal:
    """The journal in a folder: begun, or taken up where it holds looks of this very question.

    Raises ``UsageError`` where it holds another one, or something else.
    """
    file = folder / FILE
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        atomic.write_text(file, f"{json.dumps({'schema': SCHEMA, 'question': asdict(question)})}\n")
        return Journal(folder=folder, question=question)
    asked, observations, whole = read_journal(file)
    differing = [name for name, value in asdict(question).items() if asdict(asked)[name] != value]
    if differing:
        named = ", ".join(_NAMES.get(name, name) for name in differing)
        raise UsageError(
            f"{file}: of another search ({named} differ); delete the folder to begin anew, or name another with --out"
        )
    if not whole:
        lines = [{"schema": SCHEMA, "question": asdict(question)}, *(_strip(asdict(each)) for each in observations)]
        atomic.write_text(file, "".join(f"{json.dumps(line)}\n" for line in lines))
    return Journal(folder=folder, question=question, observations=observations)


def read_journal(file: Path) -> tuple[Question, list[Observation], bool]:
    """What was asked, the looks, and whether the last line is whole; raises ``UsageError`` where it is no journal."""
    try:
        first, *lines = regular_file.read_text(file, MOST_BYTES).split("\n")
        head = strict_json.parse(first)
        if head["schema"] != SCHEMA:
            raise UsageError(
                f"{file}: schema {head['schema']!r}, and this qbench reads {SCHEMA}; begin anew with --out"
            )
        question = _QUESTION.validate_python(head["question"])
        *whole, last = lines or [first]  # a text that ends with a line feed has an empty last part
        observations = [_OBSERVATION.validate_python(strict_json.parse(line)) for line in whole]
    except (OSError, ValueError, TypeError, KeyError, ValidationError) as error:
        raise UsageError(f"{file}: cannot be read as a search; delete it to begin anew") from error
    if wrong := [each.candidate for each in observations if not 0 <= each.candidate <= question.last]:
        raise UsageError(f"{file}: a look at candidate {wrong[0]}, of {question.last}; delete it to begin anew")
    return question, observations, not last


def _strip(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _append(file: Path, line: Mapping[str, Any]) -> None:
    with regular_file.open_to_write(file, append=True) as stream:
        stream.write(f"{json.dumps(line, allow_nan=False)}\n")
        stream.flush()
        os.fsync(stream.fileno())
