"""Work on a large graph in a process of its own: its memory ends with it, and what follows is a long loop."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qbench.errors import QbenchError

LARGE = 4 * 2**20  # bytes of a model; a process takes a second to start, and smaller graphs are done in less
SECONDS = 3600.0  # that the work on one graph may take


def run(file: Path, function: Callable[..., Any], *args: Any) -> Any:
    """What ``function(*args)`` returns, or raises of qbench's errors; in a fresh process where the model ``file`` is
    large, in this one where it is small or where this process may have no children of its own."""
    from qbench import child
    from qbench.process import Limits, Worker

    if _size(file) < LARGE or multiprocessing.current_process().daemon:
        return function(*args)
    with Worker(child.Function, _caught, limits=Limits(seconds=SECONDS), fresh=True, name="graph") as worker:
        worker.ready()
        value, error = worker.ask("run", (function, args))
    if error is not None:
        raise error
    return value


def _caught(function: Callable[..., Any], args: tuple[Any, ...], *, progress: Any) -> tuple[Any, QbenchError | None]:
    """The value, or the error as it is: on its way out of a child an error of usage would become one of a case."""
    try:
        return function(*args), None
    except QbenchError as error:
        return None, type(error)(str(error))


def _size(file: Path) -> int:
    """Of a model and of what lies beside it under its name: weights."""
    if not file.is_file():
        return 0
    return sum(one.stat().st_size for one in file.parent.iterdir() if one.name.startswith(file.stem) and one.is_file())
