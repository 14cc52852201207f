"""Stage 4: artifact + data set -> predictions of every example, in a file."""

from __future__ import annotations

import json
import math
import shutil
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from qbench import data as data_stage
from qbench import registry
from qbench.build import Artifact
from qbench.cache import store
from qbench.data import Data
from qbench.datasets import base as dataset_contract
from qbench.datasets import overlap as contents
from qbench.datasets import preprocessing
from qbench.errors import EvaluateError
from qbench.evaluate import batch_size as evaluate_batch_size
from qbench.evaluate import older_cpu, worker, worker_pool
from qbench.evaluate.worker import Evaluation
from qbench.evaluate.worker_pool import compute_outputs
from qbench.files import atomic, regular_file
from qbench.hosts.base import NATIVE, Host
from qbench.machine import fingerprint
from qbench.metrics.base import ANSWERS, name_outputs
from qbench.models import postprocess as answering
from qbench.models.postprocess import Postprocess
from qbench.process.child_process import Limits, Worker, call
from qbench.process.cpu_slots import Slots
from qbench.progress.callback import Progress
from qbench.quant import saturation
from qbench.quant.analysis import input_drift
from qbench.record.schema import InputFit, SaturatingLayer, Spread

Array = NDArray[Any]
SEEN = 64  # examples of which the values are looked at together
RANGED = ("static", "qat")  # modes whose activations have a range that was fixed before
_FIT, _SUMS = "inputs", "sums"
_FILE = "predictions.npz"
_FITS: TypeAdapter[tuple[InputFit | None, ...]] = TypeAdapter(tuple[InputFit | None, ...])


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """``cached``: nothing had to be evaluated; ``note`` says when a damaged copy in the cache was made again."""

    cached: bool
    note: str | None = None


def predict_cached(
    artifact: Artifact,
    data: Data,
    batch_size: int,
    file: Path,
    *,
    host: str = NATIVE,
    same_answers: bool = True,
    postprocess: Postprocess | None = None,
    cpu: Sequence[Any] | None = None,
    root: Path,
    slots: Slots | None = None,
    start_worker: Callable[..., Any] = Worker,
    limits: Limits,
    progress: Progress,
) -> Predicted:
    """Writes what ``predict`` writes to ``file``, from the cache ``root`` where the same artifact was evaluated before
    on the same examples by the same code of qbench; ``file`` is whole or not there.

    ``slots`` is what the evaluations of one run share, ``Slots(jobs)``: each waits for one place and uses more while
    they are free, so that a variant that runs alone has all cores (None: one process); ``start_worker`` starts each,
    and ``cpu`` is what names the processor that it then runs on (None: this machine's).
    Raises ``EvaluateError``, ``WorkerError``.
    """

    def make(folder: Path) -> Mapping[str, Any]:
        predict(
            artifact,
            data,
            batch_size,
            folder / _FILE,
            host=host,
            same_answers=same_answers,
            postprocess=postprocess,
            root=root,
            slots=slots,
            start_worker=start_worker,
            limits=limits,
            progress=progress,
        )
        return {}

    key = store.key_of(
        {
            **_list_causes(artifact, data, batch_size, host, cpu),
            **({} if postprocess is None else {"postprocess": [postprocess.digest(), store.source_digest(answering)]}),
        }
    )
    entry = store.fetch(root, "predictions", key, make)
    try:
        with atomic.replace_file(file) as part:
            shutil.copyfile(entry.folder / _FILE, part)
    except OSError as error:
        raise EvaluateError(
            f"{file}: the predictions cannot be written ({error.strerror or error}): make room and go on with --resume"
        ) from error
    return Predicted(cached=not entry.fresh, note=entry.note)


def _list_causes(
    artifact: Artifact, data: Data, batch_size: int, host: str, cpu: Sequence[Any] | None
) -> dict[str, Any]:
    """Everything that decides the outputs; the artifact's own key holds versions, instruction set and the code of the
    backends, ``evaluation_digest`` the preprocessing."""
    return {
        "artifact": [artifact.key, artifact.sha256, artifact.mode, artifact.backend],
        "batch": artifact.built.fixed_batch or (batch_size if artifact.mode == "dynamic" else None),
        "data": data.evaluation_digest,
        "ids": store.file_digest(data.folder / "ids.json"),
        "calibration": data.calibration_digest if artifact.mode in RANGED else None,
        "cpu": cpu or [fingerprint.cpu_model(), fingerprint.isa(), fingerprint.switches()],
        "host": None if host == NATIVE else [host, *_environment(host).items()],
        "predicted": store.source_digest(older_cpu, saturation) if _is_predicted(artifact, host) else None,
        "code": _code(),
    }


def _environment(host: str) -> Mapping[str, str]:
    """The variables of a host's processes."""
    plugin: Host = registry.load("host", host)
    return plugin.environment()


def _is_predicted(artifact: Artifact, host: str) -> bool:
    """Whether a host's answers of an artifact are computed on this machine."""
    plugin: Host = registry.load("host", host)
    return plugin.answers(artifact.backend) == "predicted"


def _code() -> str:
    """The digest of the code that decides predictions and is no part of an artifact's own key."""
    here = sys.modules[__name__]
    return store.source_digest(
        here, worker_pool, worker, evaluate_batch_size, data_stage, dataset_contract, preprocessing, contents
    )


def predict(
    artifact: Artifact,
    data: Data,
    batch_size: int,
    file: Path,
    *,
    host: str = NATIVE,
    same_answers: bool = True,
    postprocess: Postprocess | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
    root: Path | None = None,
    slots: Slots | None = None,
    start_worker: Callable[..., Any] = Worker,
    limits: Limits,
    progress: Progress,
) -> None:
    """Writes the outputs of every evaluation example to ``file`` (.npz: outputs, those behind the first as
    ``name_outputs`` says, labels, ids, digests of the inputs, and of a static or QAT artifact as JSON how the inputs
    fit it), from fresh processes, each of which proves first that the artifact gives there what it gave where it was
    built; but on another ``host`` than ``native``, or where it was built on another machine (``same_answers`` False),
    it may give something else. Where the host's answers are predicted, the sums of each layer are written, too.
    ``environment``: further variables of these processes.

    With a ``postprocess`` what it makes of every example is written as ``answers``, and the outputs of the first
    examples alone where those of all would be large (``worker.MOST_BYTES``).

    Dynamic models choose activation scales per batch, so they are evaluated at the batch size of the case; others in
    batches as wide as is fastest (``batch_size``), since their outputs do not depend on it.
    """
    predicted = _is_predicted(artifact, host)
    size = artifact.built.fixed_batch or (
        batch_size if artifact.mode == "dynamic" else older_cpu.BATCH if predicted else None
    )
    evaluation = Evaluation(
        artifact=artifact,
        data=data,
        size=size,
        same_answers=same_answers and host == NATIVE,
        predicted=predicted,
        postprocess=postprocess,
    )
    result = compute_outputs(
        evaluation,
        environment={**_environment(host), **environment},
        slots=slots or Slots(1),
        start_worker=start_worker,
        limits=limits,
        progress=progress,
    )
    outputs = {name_outputs(place): rows for place, rows in {0: result.rows, **result.others}.items()}
    arrays: dict[str, Any] = {**outputs, "ids": np.asarray(data.evaluation_ids())}
    if result.answers is not None:
        arrays[ANSWERS] = result.answers
    labels = data.evaluation_labels()
    if labels is not None:
        arrays["labels"] = labels
    if (contents := data.evaluation_contents()) is not None:
        arrays["contents"] = contents
    if predicted:
        arrays[_SUMS] = np.asarray(json.dumps(result.sums))
    if artifact.mode in RANGED:
        spreads = _spreads(data, root, limits=limits, progress=progress)
        values = [math.prod(array.shape[1:]) * data.evaluation_count for array in data.evaluation(0, 1)]
        clipped = [count / max(1, n) for count, n in zip(result.outside, values, strict=True)]
        fits = input_drift.compare_inputs(
            spreads.evaluated, spreads.calibrated, artifact.built.conversion.input_ranges, clipped
        )
        arrays[_FIT] = np.asarray(json.dumps([None if fit is None else asdict(fit) for fit in fits]))
    _write(file, arrays)


@dataclass(frozen=True, kw_only=True)
class _Spreads:
    """What each model input was in the evaluation and in the calibration examples."""

    evaluated: tuple[Spread | None, ...]
    calibrated: tuple[Spread | None, ...]


_SPREADS: TypeAdapter[_Spreads] = TypeAdapter(_Spreads)


def _spreads(data: Data, root: Path | None, *, limits: Limits, progress: Progress) -> _Spreads:
    """Seen once for all variants of a run."""

    def look(folder: Path | None) -> Mapping[str, Any]:
        spreads: _Spreads = call(_spreads_here, data, limits=limits, progress=progress)
        return asdict(spreads)

    if root is None:
        return _SPREADS.validate_python(look(None))
    digests = {"evaluation": data.evaluation_digest, "calibration": data.calibration_digest, "code": _code()}
    key = store.key_of(digests)
    entry = store.fetch(root, "spreads", key, look, lambda entry: _SPREADS.validate_python(entry.facts))
    return _SPREADS.validate_python(entry.facts)


def _spreads_here(data: Data, *, progress: Progress) -> _Spreads:
    progress("look at the inputs", 0.9)
    calibration, axis = data.calibration(), data.preprocessing.channel_axis
    count = data.evaluation_count
    evaluation = (data.evaluation(start, start + SEEN) for start in range(0, count, SEEN))
    parts = (tuple(array[i : i + SEEN] for array in calibration) for i in range(0, len(calibration[0]), SEEN))
    return _Spreads(
        evaluated=input_drift.measure_spreads(evaluation, axis), calibrated=input_drift.measure_spreads(parts, axis)
    )


def _write(file: Path, arrays: Mapping[str, Array]) -> None:
    """An .npz that is the same byte by byte for the same arrays; outputs are hardly smaller compressed."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy")  # of 1980, whenever it is written
            entry.compress_type = zipfile.ZIP_STORED if name.startswith("outputs") else zipfile.ZIP_DEFLATED
            with archive.open(entry, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)


def input_fits(predictions: dict[str, Array]) -> tuple[InputFit | None, ...] | None:
    """How each input of what ``predict`` wrote fits its artifact; None where that has no fixed ranges."""
    return _FITS.validate_json(str(predictions[_FIT])) if _FIT in predictions else None


def read_saturating(file: Path) -> tuple[SaturatingLayer, ...]:
    """The layers with a saturated sum of predictions that were computed for an older CPU, the largest share first."""
    with regular_file.open_file(file) as stream, np.load(stream, allow_pickle=False) as archive:
        sums = json.loads(str(archive[_SUMS]))
    layers = [
        SaturatingLayer(name=name, sums=total, saturated=clipped) for name, (total, clipped) in sums.items() if clipped
    ]
    return tuple(sorted(layers, key=lambda layer: layer.saturated / layer.sums, reverse=True))


def load_predictions(file: Path) -> dict[str, Array]:
    """What ``predict`` wrote."""
    with regular_file.open_file(file) as stream, np.load(stream, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}
