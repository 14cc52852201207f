"""ONNX Runtime's own quantizers: dynamic int8, and its static one as the framework's default."""

from __future__ import annotations

import contextlib
import platform
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from qbench.errors import BuildError, QbenchError, out_of_memory
from qbench.files import regular_file
from qbench.quant.artifacts import onnx_file, onnx_outline
from qbench.quant.onnx import dynamic_scales, float_nodes, onnxruntime_session
from qbench.quant.onnx.export import deploy_onnxruntime
from qbench.quant.onnx.node_names import match_nodes, module_of
from qbench.quant.recipe import Recipe
from qbench.quant.target import ADD_IN_16_BITS, adds_in_16_bits, name_cpus
from qbench.record.schema import TargetFacts

Array = NDArray[Any]
_X86 = ("x86_64", "AMD64")
_INTEGER_PRODUCTS = ("MatMulInteger", "ConvInteger", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul")


def framework_static(fp32: Path, file: Path, recipe: Recipe, calibration: tuple[Array, ...]) -> None:
    """ONNX Runtime's own static quantization as its documentation has it: shapes inferred and operators fused first,
    then every choice at its default (QDQ, per tensor, min/max); of the recipe only ``skip_layers`` and
    ``float_joins`` count.

    But for signed activations on x86, its default for every CPU: its convolutions then run in float there (seen with
    ONNX Runtime 1.31: of a network of three layers 0.2 % in int8). Its min/max calibrator keeps two numbers a tensor
    and example; its histogram calibrators keep every value. Raises ``BuildError`` where the quantizer cannot.
    """
    from onnxruntime.quantization import QuantType, quantize_static

    with tempfile.TemporaryDirectory() as folder, _quantizing(folder, file):
        prepared = preprocess(fp32, Path(folder) / "preprocessed.onnx")
        quantize_static(
            str(prepared),
            str(file),
            _Reader(iter(onnx_file.Batches(fp32, calibration))),
            activation_type=QuantType.QUInt8 if platform.machine() in _X86 else QuantType.QInt8,
            nodes_to_exclude=_excluded(prepared, recipe.skip_layers) + _name_joined(prepared, recipe, calibration),
        )


def _name_joined(file: Path, recipe: Recipe, calibration: tuple[Array, ...]) -> list[str]:
    """The nodes that one scale cannot hold, where the recipe has them in float."""
    if not recipe.float_joins:
        return []
    return [node.name for node in float_nodes.find_float_nodes(file, calibration) if node.name]


def dynamic(fp32: Path, file: Path, recipe: Recipe) -> tuple[str, ...]:
    """int8 weights; activations are quantized as the model runs. What a reader must know of the weights: where ONNX
    Runtime adds products in 16 bits, here or on a CPU of the target, they have 7 bits. Raises ``BuildError`` where the
    quantizer cannot."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    here = deploy_onnxruntime.form_for() == "U8U8"
    narrow = (here or adds_in_16_bits(recipe.cpus)) and not recipe.framework_default

    with tempfile.TemporaryDirectory() as folder, _quantizing(folder, file):
        prepared = preprocess(fp32, Path(folder) / "preprocessed.onnx")
        _plain_weights(prepared)
        quantize_dynamic(
            str(prepared),
            str(file),
            per_channel=bool(recipe.per_channel),
            weight_type=QuantType.QInt8,
            reduce_range=narrow,
            nodes_to_exclude=_excluded(prepared, recipe.skip_layers, splits_gemm=True),
            op_types_to_quantize=_list_kinds(prepared) - {"Gather"} if recipe.embeddings is False else None,
        )
        if recipe.per_channel:
            dynamic_scales.scale_channels(prepared, file, top=64 if narrow else 127)
    where = "no VNNI" if here else f"for {name_cpus(recipe.cpus, ADD_IN_16_BITS)}"
    return (f"{where}: weights have 7 bits, so that 16-bit sums hold",) if narrow else ()


def describe_target(file: Path, recipe: Recipe) -> TargetFacts | None:
    """What a dynamic file is for other CPUs: all of its products have weights of 7 bits where those add in 16 bits;
    None where it is for this one alone."""
    if not recipe.cpus:
        return None
    graph = onnx_outline.read_outline(file).graph
    layers = sum(node.op_type in _INTEGER_PRODUCTS for node in graph.node)
    return TargetFacts(cpus=recipe.cpus, layers=layers, layers_narrowed=layers if adds_in_16_bits(recipe.cpus) else 0)


def _plain_weights(file: Path) -> None:
    """Takes away what ONNX Runtime's dynamic quantizer trips over: it transposes the weight of a Gemm under its name.

    A weight with several readers would be transposed for one of them only, or twice: each further reader gets a copy.
    The noted shape of a weight would no longer be true ("Inferred shape and existing shape differ").
    """
    import onnx

    model = onnx.load(str(file))
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer if len(tensor.dims) == 2}
    names: set[str] = set()
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name in names and name in weights:
                twin = graph.initializer.add()
                twin.CopyFrom(weights[name])
                twin.name = f"{name}_of_{node.name or node.output[0]}_{place}"
                node.input[place] = twin.name
            names.add(name)
    values = [value for value in graph.value_info if value.name not in weights]
    del graph.value_info[:]
    graph.value_info.extend(values)
    onnx.save(model, str(file))


def preprocess(fp32: Path, file: Path) -> Path:
    """Shapes inferred and operators fused (BatchNorm into Conv), as ONNX Runtime's quantizer wants it."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    source, target = str(regular_file.real_path(fp32)), str(regular_file.real_path(file))
    # Where ONNX Runtime's symbolic inference gives up, it leaves the model in the working folder.
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        try:
            quant_pre_process(source, target)
        except Exception as error:  # of all kinds: an axis known by two names, a shape that stands in the file wrongly
            if out_of_memory(error):
                raise
            quant_pre_process(source, target, skip_symbolic_shape=True)  # ONNX's own inference is left
    return file


@contextlib.contextmanager
def _quantizing(*temporary: Path | str) -> Iterator[None]:
    """The quantizer is quiet, and what it raises is one message without the names of temporary files."""
    with _quiet_library():
        try:
            yield
        except QbenchError:
            raise
        except Exception as error:  # the quantizer, onnx and the runtime raise all kinds, some of them bare
            if out_of_memory(error):
                raise
            words = f"{type(error).__name__}: {onnxruntime_session.plain(error, *temporary)}"
            raise BuildError(
                f"ONNX Runtime's quantizer cannot quantize this model: {words}; name what it "
                "cannot take in quantize.*.skip_layers, or leave this mode out"
            ) from error


def _excluded(file: Path, skipped: tuple[str, ...], *, splits_gemm: bool = False) -> list[str]:
    """The nodes that ``skip_layers`` means. ``splits_gemm``: for a quantizer that makes a MatMul and an Add of a Gemm
    before it looks at what is excluded, so that the product has another name by then."""
    nodes = onnx_outline.read_outline(file).graph.node
    labels = {node.name: module_of(node) or node.name for node in nodes}
    names = [name for pattern in skipped for name in match_nodes(pattern, labels)]
    gemms = {node.name for node in nodes if node.op_type == "Gemm"} if splits_gemm else set()
    return [*names, *(f"{name}_MatMul" for name in names if name in gemms)]


def _list_kinds(file: Path) -> set[str]:
    """The kinds of operator in a file."""
    return {node.op_type for node in onnx_outline.read_outline(file).graph.node}


class _Reader:
    """Batches as ONNX Runtime's calibrators ask for them. Where any size will do, one example a batch bounds its memory
    least badly."""

    def __init__(self, batches: Iterator[Mapping[str, Array]]) -> None:
        self._batches = batches

    def get_next(self) -> Mapping[str, Array] | None:
        return next(self._batches, None)

    def __iter__(self) -> Iterator[Mapping[str, Array]]:
        return self._batches

    def __next__(self) -> Mapping[str, Array]:
        return next(self._batches)


@contextlib.contextmanager
def _quiet_library() -> Iterator[None]:
    """The quantizer logs advice through the root logger that qbench has already followed."""
    import logging

    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
