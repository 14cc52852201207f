"""The exceptions that qbench raises on purpose, and the exit code of each.

    QbenchError                 a user can cause it; shown as one message, without a traceback
    ├── UsageError        (2)   the command line, an option, a path, an unknown name
    │   ├── SuiteError    (2)   a suite file: carries every problem found, each with file:line:col
    │   └── UnknownName   (2)   a plug-in name that is not registered
    ├── CaseError         (1)   one case cannot go on: becomes a failed record, the run goes on
    │   ├── ModelError          the model cannot be loaded or does not fit
    │   ├── DataError           the data set cannot be read or does not fit
    │   ├── BuildError          quantization, export, saving or the proof that int8 ran failed
    │   │   └── ModeImpossible  the network cannot have this mode on this backend: becomes a skipped record
    │   ├── EvaluateError       predictions or scores could not be made
    │   ├── MeasureError        latency could not be measured
    │   └── WorkerError         a child process died, hung or ran out of memory
    │       ├── MemoryExhausted it ran out of memory: tried once more, alone
    │       └── NodeLost        a machine of the cluster is gone: its work goes to another
    ├── CaseSkipped       (0)   a case that cannot exist here: becomes a skipped record with a reason
    └── NotComparable     (3)   two records must not be compared; names the field that differs

Anything else that escapes is a bug and shows its traceback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from qbench.foreign_text import join_lines

# How torch's allocator, C++ and ONNX Runtime's arena say in a message that memory ran out, in lower case.
_OUT_OF_MEMORY = (
    "can't allocate memory",
    "cannot allocate memory",
    "failed to allocate memory",
    "bad_alloc",
    "bad allocation",
)


def first_names(names: Iterable[object], most: int = 8) -> str:
    """``a, b and 3 more``: all of the names, or the first ``most`` and how many there are besides."""
    listed = [str(name) for name in names]
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return f"{', '.join(listed[:most])}{more}"


def out_of_memory(error: BaseException) -> bool:
    """Whether an error of any type says that memory ran out: it is then no fault of the model or the data."""
    return isinstance(error, MemoryError) or any(text in str(error).lower() for text in _OUT_OF_MEMORY)


class QbenchError(Exception):
    """Something that the user can mend; its text says where, what, and what to do."""

    exit_code = 1


class reraise:  # noqa: N801  # read as a verb: with reraise(BuildError, ...):
    """Around what is not qbench's: raises ``kind`` with ``text`` of the error for one of ``errors``. An error of
    qbench's own passes as it is, and so does one that says that memory ran out."""

    def __init__(
        self,
        kind: type[Exception],
        text: Callable[[Exception], str],
        errors: type[Exception] | tuple[type[Exception], ...] = Exception,
    ) -> None:
        self._kind, self._text, self._errors = kind, text, errors

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, self._errors) and not isinstance(error, QbenchError) and not out_of_memory(error):
            raise self._kind(self._text(error)) from error


class UsageError(QbenchError):
    """A wrong option, path or name."""

    exit_code = 2


class UnknownName(UsageError):
    """A name that no plug-in has."""


def refuse(where: str, problems: Sequence[str], most: int = 20) -> None:
    """Raises ``UsageError`` where there are problems: the first ``most``, one a line, and how many more there are."""
    if problems:
        lines = [*problems[:most], *([f"and {len(problems) - most} more"] if len(problems) > most else [])]
        raise UsageError("\n".join(join_lines(f"{where}: {line}") for line in lines))


@dataclass(frozen=True, kw_only=True, order=True)
class Problem:
    """One thing that is wrong in a file: where and what. ``line`` and ``column`` count from 1; ``line`` is 0
    for what stands on no line (``--set KEY``)."""

    file: str
    line: int
    column: int
    where: str
    what: str

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return join_lines(f"{place}: {where}{self.what}")


class SuiteError(UsageError):
    """A suite file with one or more problems; the message lists all of them, one per line."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(problems))
        super().__init__("\n".join(str(problem) for problem in self.problems))


class CaseError(QbenchError):
    """One case cannot go on; the run records the text as the reason and continues."""


class ModelError(CaseError):
    """The model cannot be loaded, or does not fit the data or the metric."""


class DataError(CaseError):
    """The data set cannot be read, or does not fit the model or the metric."""


class BuildError(CaseError):
    """A variant could not be built, or is not what it claims to be."""


class ModeImpossible(BuildError):
    """The network as it is cannot have this mode on this backend; its case is skipped, and the text is the reason."""


class EvaluateError(CaseError):
    """Predictions or scores could not be made."""


class MeasureError(CaseError):
    """Latency could not be measured."""


class WorkerError(CaseError):
    """A child process died, hung or ran out of memory."""


class MemoryExhausted(WorkerError):
    """A child process ran out of memory, or was killed, as the system does then."""


class NodeLost(WorkerError):
    """A machine of the cluster is gone, or can take no more; what it worked on may be done on another."""


class CaseSkipped(QbenchError):
    """The case cannot exist on this machine or for this model; the text is the reason."""

    exit_code = 0


class NotComparable(QbenchError):
    """Two records or runs must not be compared; the text names the field that differs."""

    exit_code = 3
