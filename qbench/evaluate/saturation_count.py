"""Stage 4, on a host whose kernels add products of bytes in 16 bits: which layers of an artifact lose sums, counted
there on a sample of the evaluation examples."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from qbench import registry
from qbench.backends.base import Inputs
from qbench.build import Artifact
from qbench.cache import store
from qbench.data import Data
from qbench.errors import CaseSkipped, EvaluateError, reraise
from qbench.hosts.base import Host
from qbench.process.child_process import Limits, call
from qbench.process.threads import set_torch
from qbench.progress.callback import Progress
from qbench.quant import saturation
from qbench.record.schema import SaturatingLayer

Array = NDArray[Any]
EXAMPLES, BATCH = 32, 8  # counted, evenly from the first to the last; run at a time
SECONDS = 30.0  # after which no further batch is begun
MISFIT = (
    0.02  # of a layer's outputs with a saturated sum: more that the model of its kernel cannot give name it unknown
)
_LONGEST = 200  # characters of a runtime's message that are quoted
_TORCH = ("fbgemm", "x86", "onednn")
BACKENDS = (*_TORCH, "openvino")


@dataclass(frozen=True, kw_only=True)
class SaturationCount:
    """The ``layers`` with a saturated sum over some ``examples``, the largest share first; ``unknown``: which layers
    were not counted and why, None where all were."""

    layers: tuple[SaturatingLayer, ...]
    examples: int
    unknown: str | None = None


_COUNT: TypeAdapter[SaturationCount] = TypeAdapter(SaturationCount)


class _Predictor(Protocol):
    """What ``quant.saturation`` has for each backend."""

    unknown: dict[str, str]

    @property
    def layers(self) -> tuple[Any, ...]: ...

    def __call__(self, inputs: Inputs) -> Array: ...


def explain_uncounted(artifact: Artifact) -> str | None:
    """Why the layers of an artifact cannot be counted; None where they can."""
    if artifact.backend == "inductor":
        return "a package of machine code has no layers that can be watched"
    if artifact.backend not in BACKENDS:
        return f"no model of the kernels of {artifact.backend} is there"
    if artifact.backend == "openvino" and artifact.built.format != "onnx":
        return "OpenVINO's own form is not read, only ONNX files are"
    return None


def count_cached(
    artifact: Artifact, data: Data, host: str, *, root: Any, limits: Limits, progress: Progress
) -> SaturationCount:
    """What an artifact loses on a host, from the cache ``root`` where it was counted before. The process is limited as
    the host is, and what its kernels give is held against the model of their sums, layer by layer. Raises
    ``CaseSkipped`` where nothing can be counted, and as the runtime does."""
    if (why := explain_uncounted(artifact)) is not None:
        raise CaseSkipped(why)
    plugin: Host = registry.load("host", host)
    environment = dict(plugin.environment())

    def count(folder: Any) -> Mapping[str, Any]:
        counted = call(_count_here, artifact, data, limits=limits, progress=progress, environment=environment)
        return asdict(counted)

    digests = {
        "artifact": [artifact.key, artifact.sha256, artifact.backend],
        "data": data.evaluation_digest,
        "host": [host, *environment.items()],
        "code": store.source_digest(sys.modules[__name__], saturation),
    }
    entry = store.fetch(
        root, "saturation", store.key_of(digests), count, lambda entry: _COUNT.validate_python(entry.facts)
    )
    return _COUNT.validate_python(entry.facts)


def _count_here(artifact: Artifact, data: Data, *, progress: Progress) -> SaturationCount:
    """Counts in this process, as it is limited."""
    started, examples = time.monotonic(), 0
    batches = list_batches(data.evaluation_count, artifact.built.fixed_batch)
    refused = reraise(
        EvaluateError, lambda error: f"they could not be counted: {type(error).__name__}: {str(error)[:_LONGEST]}"
    )
    with refused:  # the runtimes raise all kinds
        predictor = _open(artifact, data.evaluation(*batches[0]))
        for start, stop in batches:
            predictor(data.evaluation(start, stop))
            examples += stop - start
            progress("count saturated sums", stop / data.evaluation_count)
            if time.monotonic() - started > SECONDS:
                break
    return summarize(predictor.layers, predictor.unknown, examples)


def list_batches(count: int, fixed: int | None) -> list[tuple[int, int]]:
    """The sample as batches (first example, behind the last), evenly from the first example to the last; of the only
    size that an artifact takes where there is one. Raises ``CaseSkipped`` where there are fewer examples than that."""
    size = fixed or min(BATCH, count)
    batches = max(1, min(EXAMPLES, count) // size)
    if count < size:
        raise CaseSkipped(f"it takes {size} examples at a time, and there are {count}")
    return [(start, start + size) for start in np.linspace(0, count - size, batches).astype(int).tolist()]


def _open(artifact: Artifact, example: Inputs) -> _Predictor:
    if artifact.backend == "openvino":
        from qbench.quant.saturation import openvino_prediction

        return openvino_prediction.OpenVinoPredictor(artifact.file, example)
    from qbench.quant.pytorch import torch_ao
    from qbench.quant.saturation import torch_prediction

    set_torch(1)
    torch_ao.set_engine(artifact.backend)
    names = [layer.name for layer in artifact.built.layers if layer.operator.startswith("quantized::")]
    return torch_prediction.TorchPredictor(artifact.file, artifact.backend, names)


def summarize(layers: tuple[Any, ...], unknown: Mapping[str, str], examples: int) -> SaturationCount:
    """The layers with a saturated sum, but for those whose kernel gave something that the model of it does not give."""
    reasons = dict(unknown)
    kept = []
    for layer in layers:
        if layer.rounded > MISFIT * layer.outputs:
            reasons[layer.name] = f"{layer.rounded:,} of {layer.outputs:,} outputs are not those of its sums"
        elif layer.saturated:
            kept.append(SaturatingLayer(name=layer.name, sums=layer.sums, saturated=layer.saturated))
    kept.sort(key=lambda layer: layer.saturated / layer.sums, reverse=True)
    return SaturationCount(layers=tuple(kept), examples=examples, unknown=next(_describe(reasons), None))


def _describe(reasons: Mapping[str, str]) -> Iterator[str]:
    """The first layer that was not counted with its reason, and how many more there are."""
    for name, why in reasons.items():
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        yield f"{name}: {why}{more}"
