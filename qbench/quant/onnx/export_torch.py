"""A torch network as an ONNX file, proven to give the same: by torch's exporter, or by the way round it that works."""

from __future__ import annotations

import contextlib
import functools
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from qbench.errors import BuildError, ModeImpossible, out_of_memory
from qbench.quant import model_call
from qbench.quant.artifacts import onnx_outline
from qbench.quant.onnx import onnxruntime_session
from qbench.quant.onnx.graph import model_writer

# A wider difference than rounding in another order gives (fp32, a few dozen layers).
EXPORT_TOLERANCE = 1e-3
NOTE = "qbench.export"  # where a file tells how it was exported, where that was not the usual way
_OPSET = 18  # of the older exporter: the one that the newer writes
# In the configurations of transformers: which code computes a part, and what exporters take. Experts in groups are an
# operator of transformers' own.
_PLAIN = {"experts_implementation": "batched_mm", "attn_implementation": "eager"}
_MARKS = {"experts_implementation": "is_concatenated"}  # every configuration names one; this is on modules of experts
Example = tuple[Any, ...]
Examples = Callable[[], Iterable[Example]]


def export(module: Any, example: Example, file: Path, *, tolerance: float = EXPORT_TOLERANCE) -> None:
    """Exports a torch module with the dynamo exporter and a dynamic batch axis, and checks its outputs.

    Raises ``ModeImpossible`` where the exporter cannot, ``BuildError`` where ONNX Runtime's outputs differ from
    torch's by more than ``tolerance`` as a share of the largest output.
    """
    expected = model_call.of_one_example(module, example)
    try:
        _export_by_dynamo(module, example, file)
    except _NotExported as error:
        raise _explain({"": error}) from error
    _require_equal(file, module, example, expected, tolerance)


def export_any_way(module: Any, example: Example, file: Path, examples: Examples) -> None:
    """As ``export``; where torch's exporter cannot, by the first way round it whose file gives the same:

    - the experts and the attention of a transformers model in plain operations (``experts_implementation: batched_mm``,
      ``attn_implementation: eager``),
    - with the batch size fixed at 1,
    - by the older exporter, from a trace whose frozen decisions do no harm on ``examples`` (each a batch of 1).

    The file then tells how (``read_note``). Raises ``ModeImpossible`` with what each way says where none works.
    """
    expected = model_call.of_one_example(module, example)
    refusals: dict[str, Exception] = {}
    for name, way in _list_ways(module, examples).items():
        try:
            said = way(module, example, file)
            _require_equal(file, module, example, expected, EXPORT_TOLERANCE)
        except (_NotExported, BuildError) as error:
            refusals[name] = error
            continue
        if name:
            why = f"as the usual way cannot ({next(iter(refusals.values()))})"
            _write_note(file, "; ".join(part for part in (f"exported {name}, {why}", said) if part))
        return
    raise _explain(refusals)


def read_note(file: Path) -> str | None:
    """How a file was exported; None of one that came the usual way, or from somebody else."""
    model = onnx_outline.read_outline(file)
    return next((prop.value for prop in model.metadata_props if prop.key == NOTE), None)


class _NotExported(Exception):  # a way that does not work, no error yet
    """Why a way gives no file."""


Way = Callable[[Any, Example, Path], "str | None"]


def _list_ways(module: Any, examples: Examples) -> dict[str, Way]:
    """The ways in order, by what a note says of them; empty for the usual one."""
    ways: dict[str, Way] = {"": _export_by_dynamo}
    named = [key for key in _PLAIN if _find_choices(module, key)]
    for keys in dict.fromkeys([*((key,) for key in named), tuple(named)]):
        if keys:
            plain = " and ".join(f"{key} {_PLAIN[key]}" for key in keys)
            ways[f"with {plain}"] = functools.partial(_export_plain, keys=keys)
    ways["for a batch of 1"] = lambda *given: _export_by_dynamo(*given, any_batch=False)

    def by_trace(network: Any, example: Example, file: Path) -> str | None:
        return _export_by_trace(network, example, file, examples)

    ways["by torch's older exporter"] = by_trace
    return ways


def _explain(refusals: dict[str, Exception]) -> BuildError:
    """What each way says, each reason once; that of a network that is at fault by itself alone."""
    said: dict[str, str] = {}
    for name, error in refusals.items():
        said.setdefault(str(error), name)
    alone = next((error for error in refusals.values() if isinstance(error, model_call.ChangesByItself)), None)
    if alone is not None:
        return alone
    reasons = [f"{name}: {text}" if name else text for text, name in said.items()]
    return ModeImpossible(
        f"torch.onnx cannot export this model: {'; '.join(reasons)}; write that part with other tensor operations, "
        "give an ONNX file of the model, or use a torch engine"
    )


def _export_by_dynamo(module: Any, example: Example, file: Path, *, any_batch: bool = True) -> str | None:
    import torch

    batch = torch.export.Dim("batch", min=1)
    given = tuple(torch.cat([tensor, tensor]) for tensor in example) if any_batch else example
    with warnings.catch_warnings():
        # The exporter warns of its own deprecated internals; what matters is checked afterwards.
        warnings.simplefilter("ignore")
        try:
            program = torch.onnx.export(
                module,
                given,
                dynamo=True,
                dynamic_shapes=tuple({0: batch} for _ in example) if any_batch else None,
                input_names=_name_inputs(example),
                output_names=["output"],
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            cause = error.__cause__ or error
            if out_of_memory(cause):
                raise cause from error
            raise _NotExported(model_call.reason(cause)) from error
    _save(program, file)
    del program
    _release_graphs()
    return None


def _release_graphs() -> None:
    """Frees the graphs that libraries would keep until the process ends. torch's tracer keeps the nodes of its last
    trace. Each rule of onnxscript's optimizer keeps the last graph that it looked at, with all its weights, so the
    rules are shown a small one."""
    import onnx
    import onnxscript.optimizer
    from torch.fx.experimental import proxy_tensor

    getattr(proxy_tensor, "_FAKE_TENSOR_ID_TO_PROXY_MAP_FOR_EXPORT", {}).clear()

    value = onnx.helper.make_tensor_value_info("value", onnx.TensorProto.FLOAT, [1])
    node = onnx.helper.make_node("Identity", ["value"], ["same"])
    same = onnx.helper.make_tensor_value_info("same", onnx.TensorProto.FLOAT, [1])
    onnxscript.optimizer.optimize(onnx.helper.make_model(onnx.helper.make_graph([node], "small", [value], [same])))


def _save(program: Any, file: Path) -> None:
    """Writes what torch's exporter gives as one file, without the places in the Python that its nodes come from: with
    these a comment in the model's file, or another folder, would give other bytes, and an artifact that is the same
    would not look it. torch's own way to write one file holds three copies of the weights meanwhile."""
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        apart = Path(folder) / "model.onnx"
        program.save(str(apart), external_data=True)
        model = onnx.load(str(apart), load_external_data=False)
        _forget_sources(model)
        model_writer.write_model(model, file, weights=apart.parent)


def _export_plain(module: Any, example: Example, file: Path, *, keys: tuple[str, ...]) -> str | None:
    """With every configuration of transformers that names another code for these parts at the plain one meanwhile."""
    before = [choice for key in keys for choice in _find_choices(module, key)]
    try:
        for config, attribute, _ in before:
            setattr(config, attribute, _PLAIN[attribute.removeprefix("_")])
        return _export_by_dynamo(module, example, file)
    finally:
        for config, attribute, name in before:
            setattr(config, attribute, name)


def _find_choices(module: Any, key: str) -> list[tuple[Any, str, str]]:
    """The configurations on a network's modules that name another code for a part than the plain one: configuration,
    its attribute, and the name."""
    marked = [part for part in module.modules() if hasattr(part, _MARKS.get(key, "config"))]
    configs = {id(part.config): part.config for part in marked if hasattr(part, "config")}
    named = [(config, f"_{key}", getattr(config, f"_{key}", None)) for config in configs.values()]
    return [(config, attribute, name) for config, attribute, name in named if name and name != _PLAIN[key]]


def _export_by_trace(module: Any, example: Example, file: Path, examples: Examples) -> str | None:
    """From a trace, which takes what the newer exporter cannot read; returns what is to know of frozen decisions."""
    import torch

    from qbench.quant.artifacts import tracing

    traced = tracing.trace(module, example)
    harmless = tracing.require_harmless(module, traced, examples())
    names = [*_name_inputs(example), "output"]
    with warnings.catch_warnings(), torch.no_grad():  # the trace may hold tensors of inference mode
        warnings.simplefilter("ignore")  # of its own deprecation
        try:
            torch.onnx.export(
                traced.script,
                example,
                str(file),
                dynamo=False,
                opset_version=_OPSET,
                dynamic_axes={name: {0: "batch"} for name in names},
                input_names=names[:-1],
                output_names=names[-1:],
            )
        except Exception as error:  # its symbolic functions raise in many ways
            if out_of_memory(error):
                raise
            raise _NotExported(model_call.reason(error)) from error
    return harmless


def _name_inputs(example: Example) -> list[str]:
    return [f"input_{i}" for i in range(len(example))]


def _require_equal(file: Path, module: Any, example: Example, expected: Any, tolerance: float) -> None:
    """Raises ``BuildError`` where ONNX Runtime's outputs differ from torch's."""
    with _stated("the exported ONNX model does not run"):
        run = onnxruntime_session.bind_run(onnxruntime_session.open_lean(file))
        outputs = run(tuple(tensor.numpy() for tensor in example))
    reference = expected.numpy()
    same_shape = outputs.shape == reference.shape
    worst = float(np.abs(reference - outputs).max()) if same_shape else float("inf")
    if not worst <= tolerance * max(1.0, float(np.abs(reference).max())):
        model_call.require_repeatable(module, example=example)
        raise BuildError(f"the exported ONNX model differs from the torch model: largest difference {worst:g}")


@contextlib.contextmanager
def _stated(what: str) -> Iterator[None]:
    """Errors of ONNX Runtime, which has kinds of its own, as ``_NotExported``."""
    try:
        yield
    except BuildError:
        raise
    except Exception as error:  # a file that an exporter wrote can be refused in any way
        if out_of_memory(error):
            raise
        raise _NotExported(f"{what}: {model_call.reason(error)}") from error


def _write_note(file: Path, note: str) -> None:
    import onnx

    model = onnx.load(str(file))
    model.metadata_props.add(key=NOTE, value=note)
    onnx.save(model, str(file))


def _forget_sources(model: Any) -> None:
    """Takes away where in the Python each node comes from."""
    graphs = [model.graph]
    for graph in graphs:  # grows by the bodies of If, Loop and Scan
        del graph.metadata_props[:]
        for part in (*graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
            del part.metadata_props[:]
        graphs += [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
    for node in (node for function in model.functions for node in function.node):
        del node.metadata_props[:]
