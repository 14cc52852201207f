"""What a file answers on examples beside its fp32, and at which layer the difference begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench import registry
from qbench.check import float_form
from qbench.check.examples import Examples
from qbench.quant.artifacts.onnx_file import list_inputs
from qbench.quant.sqnr import MOST_DECIBELS, measure_sqnr

Array = NDArray[Any]
LAYER_EXAMPLES = 8  # all tensors of so many are held
# A layer begins the difference where it takes so much of the signal, in dB, and leaves no more than that.
LOST_DB, LEFT_DB = 6.0, 20.0
INPUT = "input"  # in place of an operator: what the file is given, rounded to its range


@dataclass(frozen=True, kw_only=True)
class DataChange:
    """Of so many ``examples``: SQNR of the worst of the ``outputs`` beside that of ``opponent``; of the first one
    ``flips``: of how many the largest value is another one (None: it is no row of classes), and ``right``: of how many
    that is the label, with the file and with its opponent (None: there are no labels)."""

    opponent: str
    examples: int
    sqnr_db: float
    flips: int | None
    right: tuple[int, int] | None
    notes: tuple[str, ...] = ()
    outputs: int = 1


@dataclass(frozen=True, kw_only=True)
class LayerLoss:
    """What a layer takes of the signal: SQNR of what it reads, and of what it gives as bytes."""

    layer: str
    operator: str
    before_db: float
    behind_db: float


def name_output(count: int) -> str:
    """Which of so many outputs a distance is of: the worst."""
    return "its output" if count == 1 else f"the worst of its {count} outputs"


def answer_here(
    backend: str, file: Path, examples: Examples, batch: int, threads: int, *, progress: object
) -> list[Array]:
    """The outputs that have a row for each example, in whole batches; in this process, a child."""
    runner = registry.load("backend", backend).load(file, threads=threads)
    with runner.context():
        answers = [
            runner.all_outputs(runner(runner.prepare(examples.take(start, batch))))
            for start in range(0, len(examples) - batch + 1, batch)
        ]
    return [
        np.concatenate(parts)
        for place, parts in enumerate(zip(*answers, strict=True))
        if place == 0 or {part.shape for part in parts} == {(batch, *parts[0].shape[1:])}
    ]


def compare_answers(answers: list[Array], others: list[Array], examples: Examples, opponent: str) -> DataChange:
    """What the outputs of two files say of each other; the first are those of the file."""
    own, expected = answers[0], others[0]
    pairs = [pair for pair in zip(answers, others, strict=False) if pair[0].shape == pair[1].shape]
    rows = own.ndim == 2 and own.shape == expected.shape and own.shape[1] > 1
    flips, right = None, None
    if rows:
        chosen, before = own.argmax(axis=1), expected.argmax(axis=1)
        flips = int((chosen != before).sum())
        if examples.labels is not None:
            labels = examples.labels[: len(own)]
            right = int((chosen == labels).sum()), int((before == labels).sum())
    return DataChange(
        opponent=opponent,
        examples=len(own),
        sqnr_db=min(measure_sqnr(theirs, ours) for ours, theirs in pairs or [(own, expected)]),
        outputs=len(answers),
        flips=flips,
        right=right,
        notes=examples.notes,
    )


def find_begin_here(
    file: Path, float_file: Path, examples: Examples, batch: int, threads: int, *, progress: object
) -> LayerLoss | None:
    """The layer of a QDQ file that takes most of the signal, where it takes much; None where none does, or the file has
    no DequantizeLinear behind an activation. ``float_file``: its own float form, whose tensors are called alike. In
    this process, a child."""
    import onnx

    models = [onnx.load(str(path)) for path in (file, float_file)]
    pairs = dict(_pair_tensors(*models))
    if not pairs:
        return None
    count = min(max(batch, LAYER_EXAMPLES - LAYER_EXAMPLES % batch), len(examples) - len(examples) % batch)
    entries = dict(zip(_list_entries(models[1]), examples.take(0, count), strict=True))
    rounded = _run(models[0], pairs.keys(), examples, count, batch, threads)
    exact = {**entries, **_run(models[1], set(pairs.values()) - entries.keys(), examples, count, batch, threads)}
    levels = {name: measure_sqnr(exact[tensor], rounded[name]) for name, tensor in pairs.items()}
    losses = [loss for loss in _list_losses(models[0], levels) if loss.behind_db <= LEFT_DB]
    worst = max(losses, key=lambda loss: loss.before_db - loss.behind_db, default=None)
    return worst if worst is not None and worst.before_db - worst.behind_db >= LOST_DB else None


def _list_entries(model: Any) -> list[str]:
    """The names of the inputs that are no initializers, in order."""
    return [entry.name for entry in list_inputs(model)]


def _pair_tensors(model: Any, floats: Any) -> Iterator[tuple[str, str]]:
    """(what a DequantizeLinear gives of an activation, the tensor of the float form that it stands for)."""
    makers = {name: node for node in model.graph.node for name in node.output}
    known = {name for node in floats.graph.node for name in node.output} | {*_list_entries(floats)}
    for node in model.graph.node:
        if node.op_type != "DequantizeLinear":
            continue
        maker = makers.get(node.input[0])
        if maker is None or maker.op_type != "QuantizeLinear":
            continue
        clipped = float_form.name_clipped(maker.output[0])
        tensor = clipped if clipped in known else maker.input[0]
        if tensor in known:
            yield node.output[0], tensor


def _run(model: Any, tensors: Any, examples: Examples, count: int, batch: int, threads: int) -> Mapping[str, Array]:
    """Some tensors of a model for the first ``count`` examples."""
    import onnxruntime

    from qbench.quant.onnx import onnxruntime_session

    if not tensors:
        return {}
    del model.graph.output[:]
    names = sorted(tensors)
    for name in names:
        value = model.graph.output.add()
        value.name = name
        value.type.tensor_type.elem_type = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), onnxruntime_session.session_options(threads), providers=["CPUExecutionProvider"]
    )
    inputs = [value.name for value in session.get_inputs()]
    parts = [
        onnxruntime_session.call(session, names, dict(zip(inputs, examples.take(start, batch), strict=True)))
        for start in range(0, count, batch)
    ]
    return {name: np.concatenate([part[place] for part in parts]) for place, name in enumerate(names)}


def _list_losses(model: Any, levels: Mapping[str, float]) -> Iterator[LayerLoss]:
    """What each part of the graph between activations that are bytes takes."""
    makers = {name: node for node in model.graph.node for name in node.output}
    for name, behind in levels.items():
        source = makers[makers[name].input[0]].input[0]
        if source not in makers:
            yield LayerLoss(layer=source, operator=INPUT, before_db=MOST_DECIBELS, behind_db=behind)
            continue
        before, layer, pending, visited = [], None, [source], set()
        while pending:
            tensor = pending.pop()
            if tensor in visited or tensor not in makers:
                continue
            visited.add(tensor)
            if tensor in levels:
                before.append(levels[tensor])
                continue
            node = makers[tensor]
            if layer is None or node.op_type in ("Conv", "Gemm", "MatMul", "ConvTranspose"):
                layer = node
            pending += node.input
        if layer is not None and before:
            yield LayerLoss(
                layer=layer.name or layer.output[0],
                operator=layer.op_type,
                before_db=min(before),
                behind_db=behind,
            )
