"""The files beside a run's records, which anyone may have written: read as what a run stores, or not at all."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from qbench.errors import UsageError
from qbench.files import npz_file, regular_file
from qbench.record.layer_numbers import LayerNumbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

GONE = "is not there"
# What stored arrays are: numpy's letters for their types, and from how many to how many axes they have.
_FORMS = {
    **dict.fromkeys(("calls_ns", "block", "baseline_ns", "baseline_block", "process", "round"), ("iu", 1, 1)),
    **dict.fromkeys(("processor_ns", "control_process", "involuntary", "faults"), ("iu", 1, 1)),
    **dict.fromkeys(("log_ratios", "control_log_ratios", "off_core"), ("f", 1, 1)),
    "canary_ns": ("iu", 2, 2),
    "values": ("biuf", 1, 1),
    "outputs": ("biuf", 1, 32),
    "answers": ("biuf", 1, 32),
    "labels": ("biuf", 1, 32),
    "ids": ("US", 1, 1),
    "inputs": ("US", 0, 0),
    "protocol": ("US", 0, 0),
    "stopped": ("US", 0, 0),
    "discarded": ("iu", 0, 0),
    "seconds": ("f", 0, 0),
}
_LAYERS: TypeAdapter[tuple[LayerNumbers, ...]] = TypeAdapter(tuple[LayerNumbers, ...])


class DamagedFile(UsageError):
    """A file that is not what a run stores; ``reason`` says why, without the name of the ``file``."""

    def __init__(self, file: Path, reason: str, advice: str) -> None:
        super().__init__(f"{file}: {reason}; {advice}")
        self.file, self.reason = file, reason


def find(folder: Path, name: str) -> Path | None:
    """The file of that name below the folder; None where there is none, and for a name that leads out of it."""
    file = regular_file.resolve_path(name, folder.absolute())
    return file if file.is_relative_to(regular_file.real_path(folder)) and file.is_file() else None


def is_whole(folder: Path, name: str) -> bool:
    """Whether the file is there and not cut; its content is not read, so a file that lost single bytes passes."""
    file = find(folder, name)
    return file is not None and file.stat().st_size > 0 and (file.suffix != ".npz" or zipfile.is_zipfile(file))


def read_arrays(folder: Path, name: str) -> dict[str, Array]:
    """The arrays of a stored file, empty where there is none; ``DamagedFile`` where it is not what a run stores."""
    file = find(folder, name)
    if file is None:
        return {}
    try:
        arrays = npz_file.read(file)
    except npz_file.BadNpz as error:
        why = f"cannot be read as stored arrays: {error}"
        raise DamagedFile(file, why, "delete it to go on without") from error
    for key, array in arrays.items():
        kinds, least, most = _FORMS.get(
            "outputs" if key.startswith("outputs.") else key, (array.dtype.kind, 0, array.ndim)
        )
        if array.dtype.kind not in kinds or not least <= array.ndim <= most:
            problem = f"{key}: {array.dtype}{list(array.shape)} is not what a run stores under this name"
            raise DamagedFile(file, problem, "delete the file to go on without")
    return arrays


def read_layers(folder: Path, name: str) -> tuple[LayerNumbers, ...]:
    """The numbers of a variant's layers, none where there is no file; ``DamagedFile`` where it holds something else."""
    file = find(folder, name)
    if file is None:
        return ()
    try:
        return _LAYERS.validate_json(regular_file.read_bytes(file))
    except (OSError, ValidationError) as error:
        raise DamagedFile(file, "cannot be read as numbers of layers", "delete it to go on without") from error
