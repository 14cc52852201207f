"""How the runtime alone runs an artifact: lines of Python, and what they need to be installed."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Program:
    """Lines of Python for a folder that is deployed. ``load`` binds what ``call`` needs from ``FILE``, its path, and
    ``THREADS``; ``call`` returns the list of all outputs as numpy arrays for ``arrays``, a list of contiguous ones,
    each with the examples along its first axis. ``libraries``: the distributions that are imported, beside numpy.
    ``single``: a call takes one example, whatever the case's batch size."""

    file: str
    libraries: tuple[str, ...]
    imports: tuple[str, ...]
    load: tuple[str, ...]
    call: tuple[str, ...]
    single: bool = False


def copy_model(file: Path, folder: Path, name: str) -> str:
    """Copies an artifact's file under a plain name; returns the name with the file's own suffixes."""
    target = folder / (name + "".join(file.suffixes))
    shutil.copyfile(file, target)
    return target.name
