"""This machine's fingerprint: CPU, usable instruction sets, cores that may be used, system, library versions.

Everything is read from ``/proc`` and ``/sys`` (milliseconds). Every reader takes the ``root`` that those folders are
under, so that a test can feed it another machine. What cannot be read is None, never a guess.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import qbench

ROOT = Path("/")

# The instruction sets that decide how fast fp32 and int8 run, by the words of Linux.
_ISA_WORDS = frozenset(
    {
        "sse4_2",
        "avx",
        "avx2",
        "fma",
        "f16c",
        "avx512f",
        "avx512bw",
        "avx512dq",
        "avx512vl",
        "avx512_vnni",
        "avx512_bf16",
        "avx512_fp16",
        "avx_vnni",
        "avx_vnni_int8",
        "amx_tile",
        "amx_int8",
        "amx_bf16",
        "amx_fp16",
        "asimd",
        "asimddp",
        "asimdhp",
        "bf16",
        "i8mm",
        "sve",
        "sve2",
        "svei8mm",
        "sme",
    }
)

# Linux gives ARM cores as numbers; these are the ones met in servers, phones and boards.
# https://developer.arm.com/documentation (MIDR_EL1 of each core's technical reference manual)
_ARM_CORES = {
    ("0x41", "0xd03"): "Cortex-A53",
    ("0x41", "0xd05"): "Cortex-A55",
    ("0x41", "0xd08"): "Cortex-A72",
    ("0x41", "0xd0b"): "Cortex-A76",
    ("0x41", "0xd0c"): "Neoverse-N1",
    ("0x41", "0xd40"): "Neoverse-V1",
    ("0x41", "0xd49"): "Neoverse-N2",
    ("0x41", "0xd4f"): "Neoverse-V2",
}

# Environment variables that can hide an instruction set from a runtime: oneDNN (torch, OpenVINO), torch's vector code,
# MKL, fbgemm (engines fbgemm and x86), OpenVINO's own list of capabilities. ONNX Runtime has none.
HIDING_VARIABLES = (
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    "ATEN_CPU_CAPABILITY",
    "MKL_ENABLE_INSTRUCTIONS",
    "FBGEMM_ENABLE_INSTRUCTIONS",
    "FBGEMM_ENABLE_AVX512_256",
    "OV_CPU_MAX_ISA",
)
# Those that add four products of bytes in 32 bits, and which of them oneDNN uses at most where it is limited; any
# other limit leaves all of them (https://uxlfoundation.github.io/oneDNN/dev_guide_cpu_dispatcher_control.html).
ADD_IN_32_BITS = ("avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8")
_ONEDNN_LIMITS = {
    "SSE41": (),
    "AVX": (),
    "AVX2": (),
    "AVX2_VNNI": ("avx_vnni",),
    "AVX2_VNNI_2": ("avx_vnni", "avx_vnni_int8"),
    "AVX512_CORE": (),
    "AVX512_CORE_VNNI": ("avx512_vnni",),
    "AVX512_CORE_BF16": ("avx512_vnni",),
    "AVX512_CORE_FP16": ("avx512_vnni", "avx_vnni"),
    "AVX10_1_512": ("avx512_vnni", "avx_vnni"),  # the same, by its newer name
}

# A latency means something only beside these; the order is the order in which a difference is named.
COMPARED = ("cpu", "arch", "isa", "isa_switches", "cores_allowed", "cores_total", "hypervisor", "os")


def fingerprint(root: Path = ROOT) -> dict[str, Any]:
    """What decides this machine's latencies, as JSON-able values; no heavy import, no child process on Linux.

    ``cpu`` is the model's name, ``isa`` the sorted usable instruction sets, ``isa_switches`` the variables that hide
    some of them from a runtime (``NAME=value``; None where none is set), ``cores_allowed`` and ``cores_total``
    numbers of logical cores, ``cpu_quota`` the cgroup's limit in cores (None: no limit), ``hypervisor`` a name,
    ``unnamed``, ``none``, or None where the machine does not tell.
    """
    words = isa(root)
    return {
        "cpu": cpu_model(root),
        "arch": platform.machine() or None,
        "isa": list(words) or None,
        "isa_switches": list(switches()) or None,
        "cores_allowed": len(allowed_cores(root)),
        "cores_total": os.cpu_count(),
        "cpu_quota": cpu_quota(root),
        "hypervisor": hypervisor(root),
        "memory_bytes": memory_bytes(root),
        "os": platform.system() or None,
        "kernel": platform.release() or None,
        "python": platform.python_version(),
    }


def comparable(a: Mapping[str, Any], b: Mapping[str, Any]) -> str | None:
    """The first field that makes latencies of two fingerprints incomparable, or None when they may be compared."""
    return next((field for field in COMPARED if a.get(field) != b.get(field)), None)


def versions(names: Iterable[str]) -> dict[str, str | None]:
    """The installed version of each distribution, None where it is not installed; nothing is imported. ``qbench`` is
    the code that runs, whatever a distribution of that name is."""
    import importlib.metadata  # costs 20 ms, which `qbench --help` need not pay

    installed: dict[str, str | None] = {}
    for name in names:
        try:
            installed[name] = qbench.__version__ if name == "qbench" else importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            installed[name] = None
    return installed


def cpu_model(root: Path = ROOT) -> str | None:
    """The processor's name as a reader knows it; on big.LITTLE machines every kind of core, joined by `` + ``."""
    cores = _cpuinfo(root)
    named = {core["model name"]: None for core in cores if "model name" in core}
    if not named:
        named = {_arm_name(core): None for core in cores if "CPU part" in core}
    return " + ".join(named) or None


def isa(root: Path = ROOT) -> tuple[str, ...]:
    """The instruction sets that every core has and the kernel lets programs use, sorted; empty when unknown.

    Linux drops a flag that it does not support itself (say AMX before 5.16), so a flag here is usable.
    """
    cores = [set(flags) for core in _cpuinfo(root) if (flags := _flags(core))]
    return tuple(sorted(_ISA_WORDS.intersection(*cores))) if cores else ()


def switches(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The variables that hide instruction sets from a runtime and are set, sorted, each as ``NAME=value``."""
    return tuple(sorted(f"{name}={environ[name]}" for name in HIDING_VARIABLES if environ.get(name)))


def onednn_isa(root: Path = ROOT, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Of ``isa`` what oneDNN may use of the instructions that add products of bytes, as its own switch says; OpenVINO's
    kernels follow it, too."""
    limit = environ.get("ONEDNN_MAX_CPU_ISA") or environ.get("DNNL_MAX_CPU_ISA") or ""
    kept = _ONEDNN_LIMITS.get(limit.upper(), ADD_IN_32_BITS)
    return tuple(word for word in isa(root) if word not in ADD_IN_32_BITS or word in kept)


def allowed_cores(root: Path = ROOT) -> tuple[int, ...]:
    """The ids of the cores that this process may keep busy: its affinity, cut to the whole cores of its quota.

    A quota of 1.5 cores leaves one: a second busy thread would be throttled, and so would its measurement.
    """
    # macOS and Windows tell no affinity.
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = sorted(os.sched_getaffinity(0)) if has_affinity else list(range(os.cpu_count() or 1))
    quota = cpu_quota(root)
    return tuple(cores if quota is None else cores[: max(1, int(quota))])


def pinned_core() -> int | None:
    """The one core that this process is pinned to, or None where it may run on several or nothing is told."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    return min(cores) if len(cores) == 1 else None


def cpu_quota(root: Path) -> float | None:
    """The cgroup's limit on CPU time in cores (the tightest of all levels, v2 and v1), or None without a limit."""
    limits: list[float] = []
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if hierarchy == "0":
            limits += _quotas(root / "sys/fs/cgroup", group, _quota_v2)
        elif "cpu" in controllers.split(","):
            for mount in dict.fromkeys((controllers, "cpu")):
                limits += _quotas(root / "sys/fs/cgroup" / mount, group, _quota_v1)
    return min(limits, default=None)


def hypervisor(root: Path) -> str | None:
    """A hypervisor's name, ``unnamed`` for one that hides, ``none`` on bare metal, None where it is not told."""
    flags = {flag for core in _cpuinfo(root) for flag in _flags(core)}
    xen_type = _text(root / "sys/hypervisor/type")
    maker = _text(root / "sys/class/dmi/id/sys_vendor") or ""
    product = _text(root / "sys/class/dmi/id/product_name") or ""
    if product.endswith(".metal"):  # EC2's bare metal carries EC2's maker
        return "none"
    if xen_type:
        return xen_type
    x86 = "fpu" in flags
    if x86 and "hypervisor" not in flags:
        return "none"
    for sign, name in _HYPERVISORS.items():
        if sign in f"{maker} {product}":
            return name
    return "unnamed" if x86 else None


_HYPERVISORS = {
    "QEMU": "kvm",
    "KVM": "kvm",
    "Amazon EC2": "nitro",
    "Google": "google",
    "VMware": "vmware",
    "VirtualBox": "virtualbox",
    "Virtual Machine": "hyper-v",
    "Xen": "xen",
    "Parallels": "parallels",
}


def memory_bytes(root: Path = ROOT) -> int | None:
    """The machine's memory in bytes, or None where ``/proc/meminfo`` does not say."""
    for line in (_text(root / "proc/meminfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key == "MemTotal":
            return int(value.split()[0]) * 1024
    return None


def governors(root: Path = ROOT) -> tuple[str, ...] | None:
    """The frequency governors in use, sorted and without repetition, or None where the kernel shows none."""
    files = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    return tuple(sorted({text for text in map(_text, files) if text})) or None


def transparent_hugepages(root: Path = ROOT) -> str | None:
    """The setting of transparent huge pages (``always``, ``madvise``, ``never``), or None where there is none."""
    text = _text(root / "sys/kernel/mm/transparent_hugepage/enabled") or ""
    return next((word.strip("[]") for word in text.split() if word.startswith("[")), None)


def load_average(root: Path = ROOT) -> float | None:
    """Runnable threads, averaged over the last minute, or None where the system does not tell."""
    text = _text(root / "proc/loadavg")
    if text:
        return float(text.split()[0])
    try:
        return os.getloadavg()[0] if root == ROOT else None
    except (AttributeError, OSError):  # Windows has none
        return None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip("\0\n\t ")
    except OSError:
        return None


def _cpuinfo(root: Path) -> list[dict[str, str]]:
    """One mapping per core of ``/proc/cpuinfo``, and for what else it tells; empty ones where there is none."""
    blocks = (_text(root / "proc/cpuinfo") or "").split("\n\n")
    return [dict(_pair(line) for line in block.splitlines()) for block in blocks]


def _pair(line: str) -> tuple[str, str]:
    key, _, value = line.partition(":")
    return key.strip(), value.strip()


def _flags(core: Mapping[str, str]) -> list[str]:
    return (core.get("flags") or core.get("Features") or "").split()


def _arm_name(core: Mapping[str, str]) -> str:
    number = (core.get("CPU implementer", "?"), core["CPU part"])
    return _ARM_CORES.get(number, f"ARM implementer {number[0]} part {number[1]}")


def _quotas(mount: Path, group: str, read: Callable[[Path], float | None]) -> list[float]:
    """The limits of a group and of every group above it; a container sees its own group as the mount itself."""
    path = Path(group.lstrip("/"))
    if ".." in path.parts:  # a group outside this cgroup namespace: only the mount can be read
        path = Path()
    levels = [mount / path, *(mount / parent for parent in path.parents)]
    return [limit for limit in map(read, dict.fromkeys(levels)) if limit is not None]


def _quota_v2(folder: Path) -> float | None:
    quota, _, period = (_text(folder / "cpu.max") or "max").partition(" ")
    return int(quota) / int(period or 100_000) if quota != "max" else None


def _quota_v1(folder: Path) -> float | None:
    quota = int(_text(folder / "cpu.cfs_quota_us") or -1)
    period = int(_text(folder / "cpu.cfs_period_us") or 100_000)
    return quota / period if quota > 0 else None
