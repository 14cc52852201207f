"""What the steps of ``qbench onnx`` found, in words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from qbench.errors import first_names

if TYPE_CHECKING:
    from pathlib import Path

    from qbench.onnx.accuracy_search import Outcome
    from qbench.onnx.api import Quantized, Saved
    from qbench.quant.onnx.calibration.calibrate import Calibrated

# Constant folding and the ranges of their producers take these in: nobody has to know that they are float.
SILENT = ("Relu", "Clip", "Identity", "Constant", "Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Shape")
AGREEMENT = 0.995  # of predictions, on data of the model's kind: what rounding in another order leaves
SURPRISE = 0.01  # how improbable a count of other predictions must be before it is told
_NAMED = 8  # of the layers that stay float for one reason


def quantized(result: Quantized) -> Iterator[str]:
    """What will be int8, and what stays float and why."""
    operators = {layer.name: layer.operator for layer in result.layers}
    layers = [name for name, layer in result.config.layers.items() if layer.quant_enable]
    inputs = [tensor.layer_name for tensor in result.config.tensor_quantize]
    yield f"int8: {_counted(operators.get(name, '?') for name in layers) or 'no layer'}"
    if inputs:
        yield f"int8 inputs of other nodes: {_counted(operators.get(name, '?') for name in inputs)}"
    reasons: dict[str, list[str]] = {}
    for name, reason in result.sites.floats.items():
        tensor = name in inputs or operators.get(name) in ("Add", "MaxPool")
        if not tensor:
            reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        yield f"float: {first_names(names, _NAMED)}: {reason}"
    others = [layer.operator for layer in result.layers if layer.kind != "layer" and layer.name not in inputs]
    if others := [operator for operator in others if operator not in SILENT]:
        yield f"float operators: {_counted(others)}"


def calibrated(result: Calibrated) -> Iterator[str]:
    """How much was seen, and what looks wrong about it."""
    yield f"calibrated on {result.examples} examples in {result.batches} batches: {len(result.record)} entries"
    yield from (f"warning: {line}" for line in result.warnings)


def saved(result: Saved) -> Iterator[str]:
    """The files, and how far the deploy models agree with the fake-quant model."""
    for what, file in result.files.items():
        yield f"{what}: {file}"
    yield from (f"float: {name}: {why}" for name, why in result.floats.items())
    if result.narrowed is not None:
        yield (
            f"{result.form}: {result.narrowed:.0%} of the channels of weights use fewer than 8 bits, in every model "
            "above, so that a CPU without VNNI adds their products in 16 bits exactly; --form U8U8 keeps all 8 bits "
            "and is slower, --form U8S8 is for CPUs with VNNI"
        )
    kind = "given" if result.real else "random"
    for target, parity in result.parity.items():
        if parity is None:
            yield f"{target}: not compared with fake_quant: no random inputs fit this model; give --data"
            continue
        equal = f"{parity.agreement:.1%} of the predictions as simulated, " if parity.agreement is not None else ""
        yield (
            f"{target} against fake_quant on {parity.examples} {kind} examples: {equal}largest difference "
            f"{parity.largest_difference:.2g} ({parity.relative_difference:.1g} of the largest output)"
        )
        if parity.silent:
            yield (
                f"warning: {target}: every output of the quantized model is zero on these examples: its values are too "
                "small for 8 bits (below 3e-5 they become zero); scale them, or leave the last layers float"
            )
        if result.real and parity.agreement is not None and surprising(parity.agreement, parity.examples):
            yield (
                f"warning: {target}: fewer than {AGREEMENT:.1%} agree, more than rounding explains: compare "
                "the accuracy of both models before you ship this one"
            )


def searched(outcome: Outcome, folder: Path) -> Iterator[str]:
    """What the search ended with, and what to do with it."""
    yield f"float model: {outcome.baseline:g}; {len(outcome.trials)} quantized models scored"
    skipped = [
        name
        for name, layer in outcome.config.layers.items()
        if not layer.quant_enable and name not in outcome.best.floats
    ]
    count, left = len(outcome.best.floats), f"{len(skipped)} skipped" if skipped else ""
    floats = f"{count} layer{'s' * (count != 1)} in float" if count else f"every {'other ' * bool(left)}layer in int8"
    floats = ", ".join(filter(None, (floats, left)))
    yield f"{'within' if outcome.met else 'best so far, not within'} the loss: {outcome.best.score:g} with {floats}"
    similarity = dict(outcome.ranking)
    for name in outcome.best.floats:
        yield f"  float: {name} (similarity {similarity[name]:.4f})" if name in similarity else f"  float: {name}"
    yield from (f"  skipped: {name}" for name in skipped)
    if not any(layer.quant_enable for layer in outcome.config.layers.values()):
        yield "no layer can be int8 within that loss: ship the float model, or allow more"
        return
    files = [str(folder / name) for name in ("calibration.onnx", "config.json", "record.txt")]
    yield f"wrote {', '.join(files)}; next: qbench onnx save {files[0]} -r {files[2]} -o PREFIX"


def surprising(agreement: float, examples: int) -> bool:
    """Whether so few equal predictions of that many are improbable where ``AGREEMENT`` of all are equal (binomial)."""
    other = round((1 - agreement) * examples)
    fewer = (math.comb(examples, k) * (1 - AGREEMENT) ** k * AGREEMENT ** (examples - k) for k in range(other))
    return 1 - math.fsum(fewer) < SURPRISE


def _counted(operators: Iterable[str]) -> str:
    """``Conv 49, Gemm 1``, most frequent first."""
    return ", ".join(f"{operator} {count}" for operator, count in Counter(operators).most_common())
