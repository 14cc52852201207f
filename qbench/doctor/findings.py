"""Examines this machine: what its CPU can do for int8, how noisy it is, what is installed, what to do about it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from qbench import formatting, registry
from qbench.cache import store as cache
from qbench.cache.clean import size_bytes
from qbench.doctor import plugin_list
from qbench.errors import QbenchError
from qbench.machine import fingerprint as machine
from qbench.machine import half_floats, noise, peak
from qbench.machine import runtime as inside
from qbench.modes import HALVES, Precision
from qbench.process import child_process, start

LIBRARIES = ("torch", "torchao", "onnx", "onnxruntime", "onnxscript", "openvino", "numpy")
# What the runtimes read when they are imported, and what thus changes a measurement.
VARIABLES = (
    "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "ONEDNN_", "DNNL_", "ORT_", "ATEN_", "FBGEMM_", "OV_CPU_", "MALLOC_",
)  # fmt: skip
# Those that bind threads to cores, which is what qbench does itself.
BINDING = ("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES", "OMP_PROC_BIND")
COMPILERS = ("g++", "clang++", "c++", "cl")
NOISE_SECONDS = 5.0
EMULATED = ("qemu:Haswell", "qemu:arm64-max")  # of the CPUs that qemu-user emulates

_MUCH_SHARED = 0.25  # of the time: absolute times of all calls then say as much of the host as of the model
_LOAD_OF_ONE = 0.7  # the one-minute average that a single busy thread reaches after about 70 s
_LIMITS = child_process.Limits(seconds=120.0)  # for each child, beside what it was asked to take

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What was found; what this system does not tell, or what could not be measured, is None.

    ``machine`` is the fingerprint, ``inside`` what a child process sees of itself, ``backends`` and ``hosts`` say of
    each what is missing (None: usable), ``compiler`` is a C++ compiler's path, ``preloaded`` what LD_PRELOAD names,
    ``notes`` why something could not be measured.
    """

    machine: Mapping[str, Any]
    int8: str
    halves: Mapping[str, str]
    inside: inside.Inside | None
    peak: peak.Peak | None
    governors: tuple[str, ...] | None
    transparent_hugepages: str | None
    load_average: float | None
    noise: noise.Noise | None
    versions: Mapping[str, str | None]
    variables: Mapping[str, str]
    preloaded: str | None
    compiler: str | None
    cache: str
    cache_bytes: int
    backends: Mapping[str, str | None]
    hosts: Mapping[str, str | None]
    notes: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()


def examine(
    root: Path = machine.ROOT,
    environ: Mapping[str, str] = os.environ,
    *,
    noise_seconds: float = NOISE_SECONDS,
    effort: peak.Effort = peak.FULL,
    tell: Callable[[str], None] = lambda text: None,
) -> Findings:
    """All findings of this machine; takes about ``noise_seconds``, and some 7 s more the first time.

    Whatever needs a runtime happens in child processes, pinned to the core that a measured case would have.
    """
    facts = machine.fingerprint(root)
    load = machine.load_average(root)  # read before the measurements add to it
    core = machine.allowed_cores()[-1]
    notes: list[str] = []
    tell("reading back what a measuring process sees")
    process = _tried("what a process sees", lambda: inside.look_inside(limits=_LIMITS, cores=(core,)), notes)
    tell("measuring the fp32 and int8 peak of one core, unless that was done before")
    top = _tried("the peak of one core", lambda: _peak(core, effort), notes)
    tell(f"listening to this machine's noise for {noise_seconds:g} s")
    listen = replace(_LIMITS, seconds=_LIMITS.seconds + noise_seconds)
    calm = None if top is None else top.canary_seconds
    heard = _tried("noise", lambda: noise.noise(noise_seconds, limits=listen, core=core, calm_seconds=calm), notes)
    if top is not None and heard is not None and top.is_shared(heard.calm_seconds):
        tell("measuring the peak again: the core was shared when it was measured")
        top = _tried("the peak of one core", lambda: _peak(core, effort, heard.calm_seconds), notes) or top
    folder = cache.cache_folder()
    findings = Findings(
        machine=facts,
        int8=int8_meaning(facts["isa"] or ()),
        halves={precision: half_meaning(precision) for precision in HALVES},
        inside=process,
        peak=top,
        governors=machine.governors(root),
        transparent_hugepages=machine.transparent_hugepages(root),
        load_average=load,
        noise=heard,
        versions=machine.versions(LIBRARIES),
        variables={key: environ[key] for key in sorted(environ) if key.startswith(VARIABLES)},
        preloaded=environ.get("LD_PRELOAD") or None,
        compiler=compiler(environ),
        cache=str(folder),
        cache_bytes=size_bytes(folder),
        backends={row.name: row.missing for row in plugin_list.listing(("backend",))},
        hosts={name: registry.load("host", name).missing() for name in (*registry.names("host"), *EMULATED)},
        notes=tuple(notes),
    )
    return replace(findings, advice=advice(findings))


def _peak(core: int, effort: peak.Effort, calm_seconds: float | None = None) -> peak.Peak:
    return peak.measure_peak(
        cache.open_cache(), limits=_LIMITS, cores=(core,), calm_seconds=calm_seconds, effort=effort
    )


def _tried(what: str, measure: Callable[[], Result], notes: list[str]) -> Result | None:
    """What was measured; where it cannot be, None and a note: a doctor tells the rest."""
    try:
        return measure()
    except QbenchError as error:
        notes.append(f"{what} could not be measured: {error}")
        return None


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


def half_meaning(precision: Precision) -> str:
    """Whether a mode of 16-bit floats can run, in one sentence."""
    reason = half_floats.explain_missing(precision)
    return f"{precision}: mode {precision} runs here" if reason is None else f"{precision}: {reason}"


def compiler(environ: Mapping[str, str]) -> str | None:
    """The path of the C++ compiler that ``CXX`` names, else of the first one found; None where there is none."""
    compilers = (environ["CXX"],) if environ.get("CXX") else COMPILERS
    paths = (shutil.which(name, path=environ.get("PATH")) for name in compilers)
    return next((path for path in paths if path), None)


def advice(findings: Findings) -> tuple[str, ...]:
    """What would make measurements steadier or int8 faster here; nothing that is already followed."""
    return (*_advice_on_cores(findings), *_advice_on_noise(findings), *_advice_on_software(findings))


def _advice_on_cores(findings: Findings) -> Iterator[str]:
    slow = [name for name in findings.governors or () if name != "performance"]
    if slow:
        yield (
            f"the frequency governor is {' and '.join(slow)}: set it with "
            "`sudo cpupower frequency-set -g performance` while you measure"
        )
    quota = findings.machine["cpu_quota"]
    if quota is not None and quota < (findings.machine["cores_total"] or 0):
        yield (
            f"a CPU quota of {quota:g} cores throttles whoever exceeds it: "
            "give whole cores instead (docker: --cpuset-cpus rather than --cpus)"
        )
    if findings.machine["cores_allowed"] == 1:
        yield "only one core is allowed: the coordinator disturbs what it measures; allow two if you can"


def _advice_on_noise(findings: Findings) -> Iterator[str]:
    if findings.load_average is not None and findings.load_average > _LOAD_OF_ONE:
        yield (
            f"the load average of the last minute is {findings.load_average:.1f}: "
            "if something else still runs, stop it before you measure"
        )
    heard = findings.noise
    if heard is not None and heard.shared is not None and heard.shared >= _MUCH_SHARED:
        yield (
            f"the host shares this core with something else {formatting.share(heard.shared, 0)} of the time: speed-ups "
            "hold, and p50 is that of the undisturbed blocks; for p90 and p99 measure on a machine of your own"
        )
    if findings.peak is not None and heard is not None and findings.peak.is_shared(heard.calm_seconds):
        yield (
            "the peak was measured while the host shared the core, so it is too low, and the core was not calm when it "
            "was to be measured again: the next run, or qbench doctor, that finds it calm does so"
        )
    if heard is not None and not heard.decidable:
        yield (
            f"a {formatting.share(heard.tolerance, 0)} gate cannot be decided here in {heard.seconds:.0f} s: raise "
            "measure.max_seconds and measure.processes, allow a larger max_regression, or gate on a quieter machine"
        )
    elif heard is not None and heard.pair_spread > heard.tolerance:
        yield (
            f"two blocks of the same loop differ by up to {formatting.share(heard.pair_spread)}: "
            "keep `protocol: paired`, and raise measure.max_seconds where a run stops before its precision"
        )


def _advice_on_software(findings: Findings) -> Iterator[str]:
    hiding = [name for name in machine.HIDING_VARIABLES if name in findings.variables]
    if hiding:
        yield f"{' and '.join(hiding)} can hide instruction sets from a runtime: unset it unless you mean to"
    elif not _uses_amx(findings):
        yield (
            "the CPU has AMX, but no process here may or does use it: "
            "Linux 5.16 or newer and a sandbox that allows arch_prctl are needed"
        )
    elif findings.inside is not None and findings.inside.onnxruntime_amx is False:
        yield (
            "ONNX Runtime does not use the CPU's AMX: from 1.32 on it does so only in a process that may use two cores "
            "while it imports the library, and this one may use one; where you deploy with more, measure with more"
            if findings.machine["cores_allowed"] == 1
            else "ONNX Runtime does not use the CPU's AMX: versions before 1.14 have no kernels for it; update it"
        )
    fewer = [name for name in start.FLOAT_VARIABLES if findings.variables.get(name, "STRICT").upper() != "STRICT"]
    if fewer:
        yield (
            f"{' and '.join(fewer)} lets oneDNN compute fp32 with fewer bits: qbench measures without it, so times and "
            "answers differ where you deploy with it; unset it there"
        )
    binding = [name for name in BINDING if name in findings.variables]
    if binding:
        yield f"{' and '.join(binding)} can move threads off the cores that qbench pins them to: unset it"
    named = next((name for name in inside.ALLOCATORS if name in (findings.preloaded or "")), None)
    if named and findings.inside is not None and findings.inside.allocator not in (named, None):
        yield f"LD_PRELOAD names {named}, but no process has it: correct the path"
    if findings.compiler is None:
        yield "no C++ compiler: backends that generate code are skipped; install one (Debian: apt install g++)"


def _uses_amx(findings: Findings) -> bool:
    """Whether AMX is used as far as one can tell, or absent."""
    if findings.inside is None or "amx_int8" not in (findings.machine["isa"] or ()):
        return True
    isa = findings.inside.onednn_isa
    return findings.inside.amx_granted is not False and (isa is None or "AMX" in isa)
