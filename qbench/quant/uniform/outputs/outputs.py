"""Calibration model + complete record -> fake-quant model, deploy models, .quant.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from qbench.errors import UsageError
from qbench.quant.uniform.calibration import scales
from qbench.quant.uniform.calibration.calibration_model import CalibrationModel
from qbench.quant.uniform.calibration.feed import Batch
from qbench.quant.uniform.files import quant_json
from qbench.quant.uniform.files import record as record_file
from qbench.quant.uniform.graph.graph import Graph
from qbench.quant.uniform.outputs.parity import ASCEND_EXAMPLES, Parity, compared

if TYPE_CHECKING:
    from qbench.quant.uniform.files.record import Record
    from qbench.quant.uniform.sites import Sites

Arrays: TypeAlias = tuple[NDArray[Any], ...]
TARGETS = ("onnxruntime", "ascend")
# What a file is -> how its name ends.
ENDINGS = {
    "fake_quant": "_fake_quant_model.onnx",
    "onnxruntime": "_deploy_model.onnx",
    "ascend": "_ascend_model.onnx",
    "quant_json": quant_json.ENDING,
}


@dataclass(frozen=True, kw_only=True)
class Saved:
    """The files that were written, by what they are (the keys of ``ENDINGS``), and how far each target's model agrees
    with the fake-quant model (None: it takes no random inputs); ``real``: on the example that was given."""

    files: Mapping[str, Path]
    parity: Mapping[str, Parity | None] = field(default_factory=dict)
    real: bool = False


def save(
    calibration: Path,
    record: Path,
    prefix: Path,
    targets: Iterable[str],
    example: Batch | None = None,
) -> Saved:
    """Makes every model before the first one is written, each file whole; compares them, writes the document last.

    ``example``: a batch to compare them on (of an ascend model, whose interpreter is slow, its first examples); without
    it random ones. Raises ``UsageError`` for a record that is not complete or not this model's, and ``BuildError`` for
    a layer that cannot be expressed.
    """
    wanted = tuple(dict.fromkeys(targets))
    for target in wanted:
        if target not in TARGETS:
            raise UsageError(f"no target named {target!r}; available: {', '.join(TARGETS)}")
    model, held = CalibrationModel.read(calibration), record_file.read(record)
    graph = model.graph()
    record_file.require_complete(held, graph, model.sites, file=record, batch_num=model.config.batch_num)
    scales.require_same_balance(held, model, record)
    made = {what: _built(what, graph, model.sites, held) for what in ("fake_quant", *wanted)}
    files = {what: prefix.with_name(prefix.name + ENDINGS[what]) for what in (*made, "quant_json")}
    _apart(calibration, record, files.values())
    for what, one in made.items():
        one.save(files[what])
    arrays = None if example is None else _in_order(graph, example)
    parity = {target: compared(made["fake_quant"], made[target], _few(target, arrays)) for target in wanted}
    models = {what: files[what] for what in made}
    told = {target: asdict(one) if one else None for target, one in parity.items()}
    quant_json.write(files["quant_json"], graph=graph, sites=model.sites, record=held, files=models, parity=told)
    return Saved(files=files, parity=parity, real=arrays is not None)


def _in_order(graph: Graph, example: Batch) -> Arrays:
    """The arrays of a batch in the order of the inputs."""
    if isinstance(example, Mapping):
        return tuple(np.asarray(example[name]) for name in graph.inputs)
    return (np.asarray(example),) if hasattr(example, "__array__") else tuple(map(np.asarray, example))


def _few(target: str, arrays: Arrays | None) -> Arrays | None:
    """As many examples as can be compared in seconds; a batch of equal length everywhere may be cut."""
    if arrays is None or target != "ascend" or len({len(one) if one.ndim else 0 for one in arrays}) > 1:
        return arrays
    return tuple(one[:ASCEND_EXAMPLES] for one in arrays)


def _apart(calibration: Path, record: Path, written: Iterable[Path]) -> None:
    """What is read is never overwritten."""
    for file in written:
        if file.resolve() in (calibration.resolve(), record.resolve()):
            raise UsageError(f"{file}: would be overwritten while it is read; take another prefix")


def _built(what: str, graph: Graph, sites: Sites, record: Record) -> Graph:
    if what == "fake_quant":
        from qbench.quant.uniform.outputs.fake_quant import fake_quant

        return fake_quant(graph, sites, record)
    if what == "ascend":
        from qbench.quant.uniform.outputs.deploy_ascend import deploy as ascend

        return ascend(graph, sites, record)
    from qbench.quant.uniform.outputs.deploy_onnxruntime import deploy as onnxruntime

    return onnxruntime(graph, sites, record)
