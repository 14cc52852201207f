"""ExecuTorch programs: lower with XNNPACK's kernels, load, and what a call really runs.

A .pte holds the graph, the weights and, for XNNPACK, no machine code: the kernels are chosen where it is loaded. Memory
is planned for one example; a larger batch is answered one by one.

``executorch.extension.pybindings._C`` is what ``executorch.runtime`` wraps: that module imports the exporter (6 s), and
does not tell the threads.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from qbench.errors import BuildError, reraise
from qbench.quant import model_call
from qbench.quant.artifacts import exported_macs, torch_export
from qbench.quant.artifacts.coverage import Layer

# What loading a program imports; the second gives the runtime the conversions that stand between two delegates.
MODULES = ("torch", "executorch.extension.pybindings._C", "executorch.kernels.quantized")
_NATIVE, _XNNPACK = "native_call_", "xnnpack::"
# How XNNPACK begins the names of kernels that multiply, and how ExecuTorch names its own.
_PRODUCTS = ("Convolution", "Deconvolution", "Fully Connected", "Batch Matrix Multiply")
_NATIVE_PRODUCTS = ("convolution.out", "mm.out", "addmm.out", "bmm.out", "linear.out")
# "Convolution (NHWC, QC8) IGEMM", "Fully Connected (NC, QD8, F32, QC8W) GEMM": after the layout the activations' type.
_ACTIVATIONS = re.compile(r"\((?:[A-Z]+, )?(\w+)")
# The runtime's words for an operator that fails: of its first check the end, then the operator.
_SAID = re.compile(r"Check failed \([^\n]*\): ([^\n]+)\n.*in operator ([\w:.]+):", re.DOTALL)
_COUNTER = re.compile(r" #\d+$")


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One kernel of a call, as the runtime tells it: ``name`` without the number that makes it unique, ``seconds``."""

    name: str
    seconds: float

    @property
    def multiplies(self) -> bool:
        """Whether it is a product."""
        return self.name.startswith(_PRODUCTS) or self.name.removeprefix(_NATIVE) in _NATIVE_PRODUCTS

    @property
    def int8(self) -> bool:
        """Whether its activations are bytes; weights alone (``F32, QC8W``) are not enough."""
        activations = _ACTIVATIONS.search(self.name)
        return self.multiplies and activations is not None and activations[1].startswith("Q")


def lower(module: Any, example: tuple[Any, ...], file: Path) -> tuple[Layer, ...]:
    """Writes the program of a module in eval mode; ``example`` is a batch of 1. Returns the operators that multiply, in
    the order in which they run, named after the submodule they come from, else the node; none is int8 as long as no
    kernel was seen (``mark_layers``).

    Raises ``BuildError`` where torch.export cannot trace it, or ExecuTorch has no kernel for an operator.
    """
    import torch

    graph = torch_export.export(module, example, any_batch=False)
    refused = reraise(  # its passes raise in many ways
        BuildError,
        lambda error: (
            f"ExecuTorch cannot lower this network ({model_call.reason(error)}); skip the layer, or use another backend"
        ),
    )
    with torch_export.known_warnings(), torch.no_grad(), refused:
        import executorch.kernels.quantized  # noqa: F401  # as MODULES says, and torch its forms that write
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import to_edge_transform_and_lower

        edge = to_edge_transform_and_lower(graph.program, partitioner=[XnnpackPartitioner()])
        products = tuple(_list_products(edge.exported_program().graph_module))  # the next step rewrites the graph
        file.write_bytes(edge.to_executorch().buffer)
        return products


def _list_products(graph_module: Any) -> Iterator[Layer]:
    """The products of a lowered graph, those of a part that XNNPACK takes (``xnnpack::``) where the part is called."""
    for node in graph_module.graph.nodes:
        if "executorch_call_delegate" in str(node.target):
            part = getattr(graph_module, node.args[0].target)
            for inner in part.original_module.graph_module.graph.nodes:
                yield from _name_product(inner, _XNNPACK)
        else:
            yield from _name_product(node, "aten::")


def _name_product(node: Any, library: str) -> Iterator[Layer]:
    macs = exported_macs.count_macs(node)
    if macs is not None:
        operator = library + exported_macs.name_operator(node).removeprefix("aten.")
        yield Layer(name=torch_export.layer_name(node) or node.name, operator=operator, macs=macs)


def mark_layers(products: Sequence[Layer], ran: Sequence[Ran]) -> tuple[tuple[Layer, ...], str | None]:
    """The products of a lowered graph, each with the kernel that a call of its program ran for it; nothing and why not,
    where they are not one for one: the runtime does not tell the kernels of every part."""
    kernels = [kernel for kernel in ran if kernel.multiplies]
    taken = [product.operator.startswith(_XNNPACK) for product in products]
    if taken != [not kernel.name.startswith(_NATIVE) for kernel in kernels]:
        return (), f"the runtime tells {len(kernels)} products of a call, and the program's graph has {len(products)}"
    return tuple(
        Layer(name=layer.name, operator=kernel.name, macs=layer.macs, precision="int8" if kernel.int8 else "fp32")
        for layer, kernel in zip(products, kernels, strict=True)
    ), None


def set_threads(threads: int) -> None:
    """Gives the process's ExecuTorch that many threads, before a program is loaded."""
    _runtime()._unsafe_reset_threadpool(threads)


def read_threads() -> int:
    """How many threads the process's ExecuTorch has."""
    return int(_runtime()._threadpool_get_thread_count())


def load(file: Path, *, watched: bool = False) -> Any:
    """The program, ready for ``forward([inputs of one example])``, which gives a list of outputs. ``watched``: it keeps
    what each call ran. Raises ``BuildError`` where it does not load."""
    refused = reraise(
        BuildError,
        lambda error: f"{file.name} does not load ({model_call.reason(error)}); made for another ExecuTorch?",
        (RuntimeError,),
    )
    with refused:
        program = _runtime()._load_for_executorch(str(file), enable_etdump=watched)
        program.method_meta("forward")  # before, nothing of the file was read
        return program


def load_running(file: Path, example: tuple[Any, ...]) -> Any:
    """The program, which has answered the example. Raises ``BuildError`` where the runtime has no kernel for a part of
    it, with what it says of that."""
    program = load(file)
    try:
        program.forward(example)
    except RuntimeError as error:
        said = _SAID.search(_run_listening(file, example))
        operator = f"{said[2]}: {said[1].strip().rstrip('.')}" if said else str(error)
        raise BuildError(
            f"ExecuTorch's runtime does not run a part of this network ({operator}); keep that layer out, or use "
            "another backend"
        ) from error
    return program


def _run_listening(file: Path, example: tuple[Any, ...]) -> str:
    """What the runtime says while it runs a program: to Python's standard error alone."""
    program = load(file)
    with contextlib.redirect_stderr(io.StringIO()) as heard, contextlib.suppress(RuntimeError):
        program.forward(example)
    return heard.getvalue()


def _runtime() -> Any:
    import executorch.kernels.quantized  # noqa: F401  # as MODULES says
    from executorch.extension.pybindings import _C

    return _C


def watch_calls(file: Path, example: tuple[Any, ...], *, calls: int) -> list[list[Ran]]:
    """What each of some calls of a program ran, in order, on the threads that are set; the first one is a warm-up that
    is not among them."""
    with torch_export.known_warnings():
        from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc

    program = load(file, watched=True)
    for _ in range(calls + 1):
        program.forward(example)
    with TemporaryDirectory(prefix="qbench-etdump-") as folder:
        dump = Path(folder) / "calls.etdump"
        program.write_etdump_result_to_file(str(dump))
        with torch_export.known_warnings():
            data = deserialize_from_etdump_flatcc(dump.read_bytes())
    blocks = [block for block in data.run_data if block.name == "Execute"]
    return [list(_list_kernels(block.events)) for block in blocks[1:]]


def _list_kernels(events: Sequence[Any]) -> Iterator[Ran]:
    """The kernels of XNNPACK, and ExecuTorch's own; what encloses them is left out."""
    for event in (entry.profile_event for entry in events if entry.profile_event is not None):
        seconds = (event.end_time - event.start_time) / 1e9
        if event.delegate_debug_id_str:
            yield Ran(name=_COUNTER.sub("", event.delegate_debug_id_str), seconds=seconds)
        elif (event.name or "").startswith(_NATIVE):
            yield Ran(name=event.name, seconds=seconds)
