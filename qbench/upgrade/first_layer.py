"""From which layer on the bits of one file differ under two versions of its runtime.

The file gives what each of its layers passes on, behind its quantization, as further outputs; each version runs it in a
process of its own on the same examples. What a runtime fuses across a layer's output it does not fuse in such a file:
a difference that only fusion makes may not show.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from qbench.backends.base import Inputs
from qbench.environments.environment import Environment
from qbench.errors import CaseError
from qbench.process.child import Function
from qbench.process.child_process import Limits, Worker
from qbench.progress.callback import Progress


def find_first_layer(file: Path, inputs: Inputs, old: Environment, new: Environment, limits: Limits) -> str | None:
    """The first layer of an ONNX file whose bits differ; None where none does, or where it cannot be looked at."""
    try:
        before, after = (_ask(file, inputs, environment, limits) for environment in (old, new))
    except CaseError:
        return None
    return next((name for name, digest in before.items() if after.get(name) != digest), None)


def _ask(file: Path, inputs: Inputs, environment: Environment, limits: Limits) -> Mapping[str, str]:
    with Worker(
        Function,
        digest_layers,
        limits=limits,
        fresh=True,
        imports=("onnxruntime",),
        environment=environment.worker_variables,
        name="digest_layers",
    ) as worker:
        worker.ready()
        digests: Mapping[str, str] = worker.ask("run", (file, inputs))
        return digests


def digest_layers(file: Path, inputs: Inputs, *, progress: Progress) -> Mapping[str, str]:
    """The sha256 of what each layer of an ONNX file passes on for these inputs, in the order of the graph."""
    import onnx

    from qbench.quant.analysis.onnx_tensors import shared_layers
    from qbench.quant.onnx import onnxruntime_session

    layers = shared_layers(file, file)
    model = onnx.load(str(file))
    outputs = {value.name for value in model.graph.output}
    wanted = dict.fromkeys(layer.tensor for layer in layers if layer.tensor not in outputs)
    model.graph.output.extend(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in wanted)
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(model, str(Path(folder) / file.name))
        session = onnxruntime_session.open_session(Path(folder) / file.name)
        names = list(dict.fromkeys(layer.tensor for layer in layers))
        feed = dict(zip((value.name for value in session.get_inputs()), inputs, strict=True))
        given = dict(zip(names, session.run(names, feed), strict=True))
    return {layer.name: hashlib.sha256(np.ascontiguousarray(given[layer.tensor]).tobytes()).hexdigest()
            for layer in layers}  # fmt: skip
