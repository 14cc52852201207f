"""An artifact's answers on an emulated CPU, for the evaluation examples that tell most; each is kept as it comes."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench import registry
from qbench.build import Artifact
from qbench.cache import store
from qbench.data import Data
from qbench.evaluate import emulated_process, emulated_worker
from qbench.evaluate.emulated_process import EmulatedProcess
from qbench.evaluate.worker import join_rows
from qbench.files import atomic
from qbench.hosts.base import Host, KernelView
from qbench.metrics.base import list_outputs, name_outputs
from qbench.metrics.validation import read_scores
from qbench.process.child_process import Limits, Worker
from qbench.process.cpu_slots import Slots
from qbench.progress.callback import Progress
from qbench.record.schema import EmulatedExamples

Array = NDArray[Any]
Unit = tuple[int, int]  # the positions of the first example that is computed with others and behind the last
POSITIONS, _FACTS = "positions", "emulated"
_OUTPUTS = "outputs.npz"
_Kept = tuple[Mapping[int, Array], Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Emulation:
    """What is emulated: an artifact on a host, the number of evaluation examples, its ``native`` predictions, and
    whether its outputs are scores of classes. ``batch_size`` is that of the case."""

    artifact: Artifact
    data: Data
    host: str
    batch_size: int
    native: Path
    samples: int
    of_classes: bool


def predict_emulated(
    emulation: Emulation,
    file: Path,
    *,
    root: Path,
    slots: Slots,
    limits: Limits,
    progress: Progress,
    tell: Callable[[str], None],
) -> None:
    """Writes the outputs of the chosen examples to ``file`` (.npz: outputs, their positions among all, ids, labels, and
    how they were chosen); those that the cache ``root`` has are not computed again. ``tell`` hears how long it takes,
    once one is known. Raises ``CaseError`` where the artifact does not run there."""
    data = emulation.data
    with np.load(emulation.native, allow_pickle=False) as archive:
        native = archive["outputs"]
    order, chosen = choose_examples(native, of_classes=emulation.of_classes)
    units = group_examples(order, emulation)
    with slots.occupy():
        kept = list(_compute_units(emulation, units, root, limits, progress, tell))
    positions = np.concatenate([np.arange(start, stop) for start, stop in units])
    outputs = join_rows([outputs for outputs, _ in kept])
    arrays: dict[str, Any] = {
        **{name_outputs(place): rows for place, rows in outputs.items()},
        POSITIONS: positions,
        "ids": np.asarray(data.evaluation_ids())[positions],
    }
    for name, values in (("labels", data.evaluation_labels()), ("contents", data.evaluation_contents())):
        if values is not None:
            arrays[name] = values[positions]
    examples = EmulatedExamples(n=len(positions), of=data.evaluation_count, chosen=chosen)
    arrays[_FACTS] = np.asarray(json.dumps({"examples": asdict(examples), "view": kept[0][1]["view"]}))
    with atomic.replace_file(file) as part, part.open("wb") as stream:
        np.savez(stream, **arrays)


def choose_examples(native: Array, *, of_classes: bool) -> tuple[Array, str]:
    """The positions of all examples, those that tell most first, and the rule in words: of class scores those whose two
    highest lie nearest to each other, which another rounding turns first; else those with the largest output, where
    sums are largest. Equal ones keep their order."""
    if of_classes:
        highest = np.sort(read_scores(native), axis=1)[:, -2:]
        return np.argsort(highest[:, 1] - highest[:, 0], kind="stable"), "nearest to flipping"
    largest = np.abs(native.reshape(len(native), -1)).max(axis=1)
    return np.argsort(-largest, kind="stable"), "largest outputs"


def group_examples(order: Array, emulation: Emulation) -> list[Unit]:
    """The examples as they are computed: each alone; those of a dynamic artifact in the batch that it has natively, as
    its scales are those of the batch."""
    size = emulation.batch_size if emulation.artifact.mode == "dynamic" else 1
    count, units, covered = emulation.data.evaluation_count, dict[Unit, None](), 0
    for position in map(int, order):
        if covered >= emulation.samples:
            break
        start = position // size * size
        unit = (start, min(start + size, count))
        covered += 0 if unit in units else unit[1] - unit[0]
        units[unit] = None
    return list(units)


def _compute_units(
    emulation: Emulation,
    units: Sequence[Unit],
    root: Path,
    limits: Limits,
    progress: Progress,
    tell: Callable[[str], None],
) -> Iterator[_Kept]:
    """The outputs of each unit and what the kernels said, from the cache or from one process that starts when it is
    needed."""
    key = _list_causes(emulation)
    with _LazyProcess(emulation, limits, total=len(units), tell=tell) as process:
        for number, unit in enumerate(units):
            progress(f"emulate on {emulation.host}", number / len(units))

            def make(folder: Path, unit: Unit = unit, number: int = number) -> Mapping[str, Any]:
                outputs = process.compute(unit, left=len(units) - number - 1)
                np.savez(folder / _OUTPUTS, **{name_outputs(place): rows for place, rows in outputs.items()})  # type: ignore[arg-type]
                return {"view": asdict(process.view)}

            entry = store.fetch(root, "predictions", store.key_of({**key, "unit": unit}), make)
            yield _read_outputs(entry.folder / _OUTPUTS), entry.facts


def _read_outputs(file: Path) -> dict[int, Array]:
    """The outputs of a unit by their position, the first one first."""
    with np.load(file, allow_pickle=False) as archive:
        return {int(name.partition(".")[2] or 0): archive[name] for name in list_outputs(archive.files)}


class _LazyProcess:
    """The emulated process, started for the first unit that is not known."""

    def __init__(self, emulation: Emulation, limits: Limits, *, total: int, tell: Callable[[str], None]) -> None:
        self._emulation, self._limits, self._total, self._tell = emulation, limits, total, tell
        self._worker: Worker | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="qbench-emulated-")
        self.view = KernelView()

    def __enter__(self) -> _LazyProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self._worker is not None:
            self._worker.close()
        self._folder.cleanup()

    def compute(self, unit: Unit, *, left: int) -> dict[int, Array]:
        """The outputs of one unit by position; the first time it tells how long the ``left`` others will take."""
        if self._worker is not None:
            return dict(self._worker.ask("compute", *unit))
        started = time.monotonic()
        self._open()
        opened = time.monotonic()
        outputs = dict(self._worker_or_fail().ask("compute", *unit))
        each = time.monotonic() - opened
        self._tell(
            f"{self._emulation.host}: {opened - started:.0f} s to start, {each:.2g} s an example, so about "
            f"{each * left:.0f} s for the {left} that are left of {self._total}"
        )
        return outputs

    def _open(self) -> None:
        emulation = self._emulation
        self._worker = Worker(
            EmulatedProcess,
            emulation.host,
            emulation.artifact,
            emulation.data,
            Path(self._folder.name),
            limits=self._limits,
            name="emulate",
        )
        self._worker.ready()
        self.view = self._worker.ask("open")

    def _worker_or_fail(self) -> Worker:
        assert self._worker is not None
        return self._worker


def _list_causes(emulation: Emulation) -> dict[str, Any]:
    """Everything that decides the outputs of a unit."""
    artifact, data = emulation.artifact, emulation.data
    host: Host = registry.load("host", emulation.host)
    return {
        "artifact": [artifact.key, artifact.sha256, artifact.mode, artifact.backend],
        "data": data.evaluation_digest,
        "ids": store.file_digest(data.folder / "ids.json"),
        "host": [emulation.host, host.describe()],
        "code": store.source_digest(sys.modules[__name__], emulated_process, emulated_worker),
    }


def read_emulated(file: Path) -> tuple[EmulatedExamples, KernelView]:
    """Which examples a file of emulated predictions holds, and what the kernels said there."""
    with np.load(file, allow_pickle=False) as archive:
        facts = json.loads(str(archive[_FACTS]))
    return EmulatedExamples(**facts["examples"]), KernelView(**facts["view"])
