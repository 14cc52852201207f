"""AOTInductor artifacts: compile with frozen weights, package as .pt2, load, prove; and what the package really runs.

A .pt2 holds machine code for the CPU that compiled it (g++ -march=native), the C++ that it was made from, and the
weights. Loading needs no compiler.

Batch: compiled for one example, and a larger batch is answered one by one. With a free batch axis oneDNN cannot pack
weights for a known shape (EfficientNet-Lite0, one thread, batch 1: fp32 12 %, int8 5 % slower; a batch of 8 gains
nothing over eight calls; small networks gain: three convolutions on 1x8x8, int8, 0.50 ms against 2.30 one by one).
Two int8 convolutions in a row, ``Conv2d(1, 8, 3, padding=1)`` the first, then give wrong outputs in torch 2.13 (off by
0.98 at up to 0.64): ``mkldnn_ir._prepare_convolution_fusion_create`` expects contiguous outputs of symbolic sizes for a
contiguous input, which one of a single channel is, and the int8 kernel writes channels last. With
``is_contiguous_storage_and_layout`` False there wherever ``quantize_args`` are given they are right.

Threads: by default Inductor writes the number of threads of the compiling process into the code (``num_threads(2)``).
With ``cpp.dynamic_threads`` each parallel region asks OpenMP when it runs (3 % at most for one thread), so one package
serves every number of threads; ``read_threads`` reads from a package whether that is so.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qbench.errors import BuildError, reraise
from qbench.quant import model_call
from qbench.quant.artifacts import (
    exported_macs,
    inductor_vectors,
    onednn_log,
    same_outputs,
    torch_export,
)
from qbench.quant.artifacts.coverage import Layer

OPTIONS: dict[str, Any] = {
    "freezing": True,  # without it there are no int8 kernels: weights must be constants to be packed
    "cpp.dynamic_threads": True,
    "compile_threads": 1,
    "aot_inductor.precompile_headers": False,  # they pay for many compilations, and this is one
    "aot_inductor.model_name_for_generated_files": "model",  # else a hash that depends on the folder
    "aot_inductor.enable_line_tables": False,  # for debuggers; they would hold the folder too
    "aot_inductor.enable_frame_pointer": False,
    "size_asserts": False,  # checks for debugging, whose messages hold addresses of Python objects
    "alignment_asserts": False,  # the same, written from torch 2.15 on
}

_WATCHED = "cpp.enable_kernel_profile"
# Bits of a vector of the CPUs that code is compiled for: without it Inductor takes the widest of this machine.
VECTOR_BITS = {"haswell": 256, "skylake-avx512": 512}


def compile_package(
    module: Any, example: tuple[Any, ...], file: Path, *, march: str | None = None, watched: bool = False
) -> tuple[Layer, ...]:
    """Compiles a module in eval mode into ``file`` (.pt2); ``example`` is a batch of 1. ``march``: the CPU that the
    machine code is for, by the compiler's name (a key of ``VECTOR_BITS``); None: this one. ``watched``: its kernels
    tell torch's profiler when they run, which costs some time in every call.

    Returns the operators that its graph computes with, in order, named after the submodule they come from, else
    operator and position. Raises ``BuildError`` where torch.export cannot trace it, where Inductor cannot compile it,
    or where the C++ calls another number of int8 kernels than the graph that it was made from.
    """
    import torch

    graph = torch_export.export(module, example, any_batch=False)
    layers: list[Layer] = []
    options = {**OPTIONS, "post_grad_custom_pre_pass": _reader(layers, _layer_of_scale(graph.module()))}
    if watched:
        options[_WATCHED] = True
    if march is not None:
        options |= {"cpp.march": march, "cpp.simdlen": VECTOR_BITS[march]}
    quiet = torch_export.known_warnings()
    refused = reraise(  # Inductor raises its own errors, the compiler's and torch's
        BuildError,
        lambda error: f"Inductor cannot compile this network ({model_call.reason(error)}); use another backend",
    )
    as_asked = inductor_vectors.ask_for_flags()
    with _cache_beside(file) as cache, _paths_from(cache), _own_rules(), as_asked, quiet, torch.no_grad(), refused:
        torch._inductor.aoti_compile_and_package(graph.program, package_path=str(file), inductor_configs=options)
    _forget_folder(file, cache)
    called, meant = count_int8_calls(file), sum(layer.int8 for layer in layers)
    if called != meant:
        raise BuildError(f"the package calls {called} int8 kernels and its graph has {meant}; report it as a bug")
    return tuple(layers)


@contextmanager
def _cache_beside(file: Path) -> Iterator[str]:
    """Inductor's cache (C++, objects) in a folder beside the file, which is gone afterwards; where the path has
    characters that Inductor does not quote for the compiler, such as spaces, it is in the system's temporary folder."""
    import torch._inductor.utils  # noqa: F401  # what `temporary_cache_dir` needs and does not import
    from torch._inductor.runtime.cache_dir_utils import temporary_cache_dir

    beside = str(file.parent)
    plain = beside if shlex.quote(beside) == beside else None
    with tempfile.TemporaryDirectory(prefix=".inductor-", dir=plain) as folder, temporary_cache_dir(folder):
        yield folder


@contextmanager
def _paths_from(folder: str) -> Iterator[None]:
    """What the C++ compiler writes of its files (``__FILE__`` in messages) begins below ``folder``: one that is new in
    each build would be part of the machine code. Inductor has no option for flags of one's own."""
    from torch._inductor import cpp_builder

    flags = cpp_builder._get_os_related_cpp_cflags
    own = [f"f{kind}-prefix-map={folder}=." for kind in ("macro", "debug")]

    def with_own(compiler: str) -> list[str]:
        return [*flags(compiler), *own]

    cpp_builder._get_os_related_cpp_cflags = with_own
    try:
        yield
    finally:
        cpp_builder._get_os_related_cpp_cflags = flags


def _forget_folder(file: Path, folder: str) -> None:
    """Takes the folder of the compilation out of the comments of the C++: the bytes must not depend on it."""
    from torch.export.pt2_archive._package import PT2ArchiveReader, PT2ArchiveWriter

    with PT2ArchiveReader(str(file)) as reader:
        names = [name for name in reader.get_file_names() if name.startswith("data/")]
        contents = {name: reader.read_bytes(name) for name in names}
    with PT2ArchiveWriter(str(file)) as writer:
        for name, content in contents.items():
            source = name.endswith(".cpp")
            writer.write_bytes(name, content.replace(folder.encode(), b".") if source else content)


@contextmanager
def _own_rules() -> Iterator[None]:
    """How Inductor writes out operators, but for two of its rules, in the table that a compilation reads (torch keeps
    a copy from the first compilation of the process on, so a change of ``decompositions`` alone may come too late).

    Products of one row with 16 x 16 weights at most, or with one column, stay products: Inductor would write them out
    as multiplications and a sum, after which no int8 pattern finds them. And ``_choose_qparams`` takes the place of
    Inductor's.
    """
    import torch
    from torch._inductor.decomposition import select_decomp_table

    table: dict[Any, Any] = select_decomp_table()
    before = dict(table)
    products = (torch.ops.aten.addmm, torch.ops.aten.mm)
    for key in before:
        if getattr(key, "overloadpacket", None) in products:
            del table[key]
    table[torch.ops.quantized_decomposed.choose_qparams.tensor] = _choose_qparams
    try:
        yield
    finally:
        table.update(before)


def _choose_qparams(values: Any, quant_min: int, quant_max: int, eps: float, dtype: Any) -> tuple[Any, Any]:
    """Scale and zero point of a range that holds 0, as the operator itself chooses them. In torch 2.13 Inductor's rule
    for it leaves 0 out: where all values have one sign, its zero point would lie outside of the integers, and is
    clamped, so that most values are clipped."""
    import torch

    low, high = torch.aminmax(values)
    low, high = low.clamp(max=0), high.clamp(min=0)
    scale = torch.max((high - low) / float(quant_max - quant_min), torch.Tensor([eps]))
    zero_point = (quant_min - torch.round(low / scale).to(torch.int)).clamp(quant_min, quant_max)
    return scale.to(torch.float64), zero_point.to(torch.int64)


def _layer_of_scale(module: Any) -> dict[str, str]:
    """Name of the buffer with a weight's scales -> that weight's layer: what fusion leaves of a layer's identity."""
    layers: dict[str, str] = {}
    for node in module.graph.nodes:
        if "dequantize_per_channel" in str(node.target):
            users = [user for user in node.users if torch_export.layer_name(user)]
            layers |= {str(node.args[1].target): str(torch_export.layer_name(user)) for user in users}
    return layers


def _reader(layers: list[Layer], layer_of_scale: Mapping[str, str]) -> Callable[[Any], None]:
    """A pass that reads the graph after freezing and fusion, when its int8 operators are there, and changes nothing."""

    def read(graph: Any) -> None:
        for node in graph.nodes:
            macs = exported_macs.count_macs(node)
            if macs is not None:
                operator = exported_macs.name_operator(node).replace(".", "::")
                int8 = operator in _INT8
                scale = str(getattr(node.args[_WEIGHT_SCALE], "target", "")) if int8 else ""
                name = layer_of_scale.get(scale) or torch_export.layer_name(node) or f"{operator}#{len(layers)}"
                layers.append(Layer(name=name, operator=operator, macs=macs, precision="int8" if int8 else "fp32"))

    return read


_INT8 = ("onednn::qconv_pointwise", "onednn::qconv2d_pointwise", "onednn::qlinear_pointwise")
_WEIGHT_SCALE = 4  # its place among the arguments of each of them


def watch_products(file: Path, example: tuple[Any, ...]) -> tuple[onednn_log.Product, ...]:
    """What oneDNN says that it ran in one call of a package, which has run before."""
    import torch

    loader = load(file)
    with torch.no_grad():
        loader.run(list(example))
        return onednn_log.watch(lambda: loader.run(list(example)))


def read_sources(file: Path) -> str:
    """The C++ in a package, which its machine code was compiled from."""
    with zipfile.ZipFile(file) as archive:
        return "\n".join(archive.read(name).decode() for name in archive.namelist() if name.endswith(".cpp"))


def count_int8_calls(file: Path) -> int:
    """How many int8 kernels of oneDNN the C++ of a package calls in one inference."""
    return len(re.findall(r"\baoti_torch_cpu__(?:qconv|qlinear)\w*\(", read_sources(file)))


def read_threads(file: Path) -> frozenset[int]:
    """The numbers of threads that the C++ of a package demands; empty where OpenMP decides when it runs."""
    return frozenset(int(number) for number in re.findall(r"\bnum_threads\((\d+)\)", read_sources(file)))


def is_watched(file: Path) -> bool:
    """Whether the kernels of a package tell torch's profiler when they run."""
    return "RAIIAtenRecordFunctionHandle record_" in read_sources(file)


def load(file: Path) -> Any:
    """The package, ready for ``run([inputs of one example])``, which gives a list of outputs.

    This is what ``torch._inductor.aoti_load_package`` wraps: importing that module takes 3 s and loading 0.03, and each
    of its calls parses the tree of inputs from JSON. The loader unpacks into a folder that it removes when it dies;
    here the folder is gone as soon as the code is mapped, so that a killed process leaves nothing.
    """
    import torch

    before = os.environ.get("TMPDIR")
    with tempfile.TemporaryDirectory(prefix="qbench-aoti-") as folder:
        os.environ["TMPDIR"] = folder
        try:
            return torch._C._aoti.AOTIModelPackageLoader(str(file), "model", False, 1, -1)
        except RuntimeError as error:
            raise BuildError(
                f"{file.name} does not load ({model_call.reason(error)}); made for another CPU or torch? Build it again"
            ) from error
        finally:
            if before is None:
                del os.environ["TMPDIR"]
            else:
                os.environ["TMPDIR"] = before


def require_equal(
    module: Any,
    file: Path,
    probes: tuple[Any, ...],
    *,
    saturates: bool = False,
    tolerance: float = same_outputs.TOLERANCE,
) -> str | None:
    """What ``same_outputs.require`` says of a package and the module that it was made from."""
    loader = load(file)
    return same_outputs.require(
        module, lambda example: loader.run(list(example))[0], probes, saturates=saturates, tolerance=tolerance
    )
