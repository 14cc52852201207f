"""Examines this machine: what its CPU can do for int8, how noisy it is, what is installed, what to do about it."""

from __future__ import annotations

import json
import os
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from qbench import list as plugins
from qbench import machine, wording
from qbench.cache import cache_folder
from qbench.clean import size_bytes
from qbench.noise import Noise, noise

LIBRARIES = ("torch", "torchao", "onnx", "onnxruntime", "onnxscript", "openvino", "numpy")
# What the runtimes read when they are imported, and what thus changes a measurement.
VARIABLES = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "ONEDNN_", "DNNL_", "ORT_", "ATEN_", "MALLOC_")
# Those that can hide an instruction set from a runtime.
HIDING = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS")
ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc")
COMPILERS = ("g++", "clang++", "c++", "cl")

_LOAD_OF_ONE = 0.7  # the one-minute average that a single busy thread reaches after about 70 s
_NOISY_PAIR = 0.05  # the gate's default tolerance


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What was found; what this system does not tell is None.

    ``machine`` is the fingerprint, ``backends`` says of each what is missing (None: usable), ``compiler`` is a C++
    compiler's path, ``allocator`` the one that LD_PRELOAD puts in place.
    """

    machine: Mapping[str, Any]
    int8: str
    governors: tuple[str, ...] | None
    transparent_hugepages: str | None
    load_average: float | None
    noise: Noise
    versions: Mapping[str, str | None]
    variables: Mapping[str, str]
    allocator: str
    compiler: str | None
    cache: str
    cache_bytes: int
    backends: Mapping[str, str | None]
    advice: tuple[str, ...] = ()


def examine(root: Path = machine.ROOT, environ: Mapping[str, str] = os.environ, noise_seconds: float = 2.0) -> Findings:
    """All findings of this machine; takes about ``noise_seconds`` and imports no runtime."""
    facts = machine.fingerprint(root)
    folder = cache_folder()
    found = Findings(
        machine=facts,
        int8=int8_meaning(facts["isa"] or ()),
        governors=machine.governors(root),
        transparent_hugepages=machine.transparent_hugepages(root),
        load_average=machine.load_average(root),  # read before the noise test adds to it
        noise=noise(noise_seconds),
        versions=machine.versions(LIBRARIES),
        variables={key: environ[key] for key in sorted(environ) if key.startswith(VARIABLES)},
        allocator=allocator(environ),
        compiler=compiler(environ),
        cache=str(folder),
        cache_bytes=size_bytes(folder) if folder.exists() else 0,
        backends={row.name: row.missing for row in plugins.listing(("backend",))},
    )
    return replace(found, advice=advice(found))


def int8_meaning(isa: Sequence[str]) -> str:
    """What the instruction sets mean for int8, in one sentence.

    The peaks follow from the instructions: VNNI and SDOT sum four 8-bit products in each 32-bit lane, SMMLA
    eight, and AMX does 2048 operations a cycle where VNNI does 256 (Intel 64 and IA-32 Architectures Optimization
    Reference Manual, chapter on AMX).
    """
    if "amx_int8" in isa:
        return "AMX: int8 in tiles, up to 8 times the peak of VNNI where a runtime uses it"
    if {"avx512_vnni", "avx_vnni"} & set(isa):
        return "VNNI: int8 products summed four at a time in 32 bits, up to 4 times the peak of fp32"
    if "i8mm" in isa:
        return "I8MM: int8 products summed eight at a time, up to 8 times the peak of fp32"
    if "asimddp" in isa:
        return "dot product (SDOT): int8 products summed four at a time, up to 4 times the peak of fp32"
    if "avx2" in isa:
        return (
            "no VNNI: int8 products are summed in 16 bits, which can saturate; "
            "expect little speed from int8 beyond what smaller weights save in memory"
        )
    if "asimd" in isa:
        return "no dot product: int8 products are widened to 16 bits, at most about twice the peak of fp32"
    return "unknown: this system does not tell which of the instruction sets that matter it has"


def allocator(environ: Mapping[str, str]) -> str:
    """The memory allocator that LD_PRELOAD puts in place, or ``system``."""
    preloaded = environ.get("LD_PRELOAD", "")
    return next((name for name in ALLOCATORS if name in preloaded), "system")


def compiler(environ: Mapping[str, str]) -> str | None:
    """The path of the C++ compiler that ``CXX`` names, else of the first one found; None where there is none."""
    wanted = (environ["CXX"],) if environ.get("CXX") else COMPILERS
    paths = (shutil.which(name, path=environ.get("PATH")) for name in wanted)
    return next((path for path in paths if path), None)


def advice(found: Findings) -> tuple[str, ...]:
    """What would make measurements steadier or int8 faster here; nothing that is already followed."""
    return (*_advice_on_cores(found), *_advice_on_noise(found), *_advice_on_software(found))


def _advice_on_cores(found: Findings) -> Iterator[str]:
    slow = [name for name in found.governors or () if name != "performance"]
    if slow:
        yield (
            f"the frequency governor is {' and '.join(slow)}: set it with "
            "`sudo cpupower frequency-set -g performance` while you measure"
        )
    quota = found.machine["cpu_quota"]
    if quota is not None and quota < (found.machine["cores_total"] or 0):
        yield (
            f"a CPU quota of {quota:g} cores throttles whoever exceeds it: "
            "give whole cores instead (docker: --cpuset-cpus rather than --cpus)"
        )
    if found.machine["cores_allowed"] == 1:
        yield "only one core is allowed: the coordinator disturbs what it measures; allow two if you can"


def _advice_on_noise(found: Findings) -> Iterator[str]:
    if found.load_average is not None and found.load_average > _LOAD_OF_ONE:
        yield (
            f"the load average of the last minute is {found.load_average:.1f}: "
            "if something else still runs, stop it before you measure"
        )
    if found.noise.pair_spread > _NOISY_PAIR:
        yield (
            f"two blocks of the same loop differ by up to {wording.share(found.noise.pair_spread)}: "
            "keep `protocol: paired`, and raise measure.max_seconds where a run stops before its precision"
        )


def _advice_on_software(found: Findings) -> Iterator[str]:
    hiding = [name for name in HIDING if name in found.variables]
    if hiding:
        yield f"{' and '.join(hiding)} can hide instruction sets from a runtime: unset it unless you mean to"
    if found.compiler is None:
        yield "no C++ compiler: backends that generate code are skipped; install one (Debian: apt install g++)"


def to_json(found: Findings) -> str:
    """The findings as an indented JSON object with the fields of ``Findings``."""
    return json.dumps(asdict(found), indent=2, ensure_ascii=False)


def to_text(found: Findings, width: int | None = None) -> str:
    """The findings as labelled lines, wrapped at ``width`` columns (None: not at all)."""
    lines: list[str] = []
    for label, values in _rows(found):
        for value in values or ("not told by this system",):
            lines += _wrapped(f"{label:<13} ", value, width)
            label = ""
    return "\n".join(lines)


def _wrapped(prefix: str, value: str, width: int | None) -> list[str]:
    if width is None:
        return [prefix + value]
    return textwrap.wrap(
        value,
        max(width, 40),
        initial_indent=prefix,
        subsequent_indent=" " * len(prefix),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _rows(found: Findings) -> Iterator[tuple[str, tuple[str, ...]]]:
    facts = found.machine
    yield "CPU", _told(facts["cpu"])
    yield "int8", (found.int8,)
    yield "ISA", _told(" ".join(facts["isa"] or ()))
    yield "cores", (_cores(facts),)
    yield "governor", found.governors or ()
    yield "huge pages", _told(found.transparent_hugepages)
    yield "hypervisor", _told(facts["hypervisor"])
    yield "memory", (wording.size(facts["memory_bytes"]),) if facts["memory_bytes"] else ()
    yield "system", (f"{facts['os']} {facts['kernel']}, Python {facts['python']}",)
    yield "load", _told(found.load_average)
    yield "noise", (_noise(found.noise),)
    yield "libraries", tuple(f"{name} {version or 'not installed'}" for name, version in found.versions.items())
    yield "variables", tuple(f"{key}={value}" for key, value in found.variables.items()) or ("none is set",)
    yield "allocator", (found.allocator,)
    yield "C++ compiler", (found.compiler or "none",)
    yield "cache", (f"{found.cache}, {wording.size(found.cache_bytes)}",)
    yield "backends", tuple(f"{name}: {missing or 'usable'}" for name, missing in found.backends.items())
    yield "advice", found.advice or ("none: nothing here stands in the way of a good measurement",)


def _told(value: object) -> tuple[str, ...]:
    return (str(value),) if value not in (None, "") else ()


def _cores(facts: Mapping[str, Any]) -> str:
    quota = "no quota" if facts["cpu_quota"] is None else f"a quota of {facts['cpu_quota']:g}"
    return f"{facts['cores_allowed']} allowed of {facts['cores_total']}, {quota}"


def _noise(seen: Noise) -> str:
    return (
        f"{seen.pairs} pairs of blocks of one loop against itself: median ratio {seen.ratio:.4f}, "
        f"95 % of pairs within {wording.share(seen.pair_spread)}; "
        f"the slowest 5 % of single calls take {wording.share(seen.call_spread)} more than the median"
    )
