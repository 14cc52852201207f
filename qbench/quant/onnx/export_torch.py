"""A torch network as an ONNX file, proven to give the same."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from qbench.errors import BuildError, ModeImpossible, out_of_memory
from qbench.quant import model_call
from qbench.quant.onnx import onnxruntime_session

# A wider difference than rounding in another order gives (fp32, a few dozen layers).
EXPORT_TOLERANCE = 1e-3


def export(module: Any, example: tuple[Any, ...], file: Path, *, tolerance: float = EXPORT_TOLERANCE) -> None:
    """Exports a torch module with the dynamo exporter and a dynamic batch axis, and checks its outputs.

    Raises ``BuildError`` where the exporter cannot, or where ONNX Runtime's outputs differ from torch's by more
    than ``tolerance`` as a share of the largest output.
    """
    import torch

    expected = model_call.of_one_example(module, example).numpy()
    batch = torch.export.Dim("batch", min=1)
    doubled = tuple(torch.cat([tensor, tensor]) for tensor in example)
    with warnings.catch_warnings():
        # The exporter warns of its own deprecated internals; what matters is checked below.
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(
                module,
                doubled,
                str(file),
                dynamo=True,
                dynamic_shapes=tuple({0: batch} for _ in example),
                input_names=[f"input_{i}" for i in range(len(example))],
                output_names=["output"],
                external_data=False,
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            cause = error.__cause__ or error
            if out_of_memory(cause):
                raise cause from error
            raise ModeImpossible(
                f"torch.onnx cannot export this model: {model_call.reason(cause)}; write that part with other tensor "
                "operations, give an ONNX file of the model, or use a torch engine"
            ) from error
    _forget_sources(file)
    outputs = onnxruntime_session.run(file, tuple(tensor.numpy() for tensor in example))
    worst = float(np.abs(expected - outputs).max())
    if not worst <= tolerance * max(1.0, float(np.abs(expected).max())):
        model_call.require_repeatable(module, example=example)
        raise BuildError(f"the exported ONNX model differs from the torch model: largest difference {worst:g}")


def _forget_sources(file: Path) -> None:
    """Takes away where in the Python each node comes from: with it a comment in the model's file, or another folder,
    would give other bytes, and an artifact that is the same would not look it."""
    import onnx

    model = onnx.load(str(file))
    graphs = [model.graph]
    for graph in graphs:  # grows by the bodies of If, Loop and Scan
        del graph.metadata_props[:]
        for part in (*graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
            del part.metadata_props[:]
        graphs += [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
    for node in (node for function in model.functions for node in function.node):
        del node.metadata_props[:]
    onnx.save(model, str(file))
