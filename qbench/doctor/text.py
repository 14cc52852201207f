"""What the doctor found, as text and as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from qbench import formatting
from qbench.doctor.findings import Findings
from qbench.machine.noise import Noise
from qbench.machine.peak import Peak
from qbench.machine.runtime import Inside

_UNTOLD = "not told by this system"
_LITTLE = 1.5  # below it int8 arithmetic is no reason to quantize


def as_json(findings: Findings) -> str:
    """The findings as an indented JSON object with the fields of ``Findings``, and the ratio of the peaks."""
    data = asdict(findings)
    if findings.peak is not None:
        data["peak"]["ratio"] = findings.peak.ratio
    return json.dumps(data, indent=2, ensure_ascii=False)


def text(findings: Findings, width: int | None = None) -> str:
    """The findings as labelled lines, wrapped at ``width`` columns (None: not at all)."""
    lines: list[str] = []
    for label, values in _rows(findings):
        for value in values or (_UNTOLD,):
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


def _rows(findings: Findings) -> Iterator[tuple[str, tuple[str, ...]]]:
    facts = findings.machine
    yield "CPU", _list_value(facts["cpu"])
    yield "int8", (findings.int8,)
    yield "16-bit floats", tuple(findings.halves.values())
    yield "ISA", _list_value(" ".join(facts["isa"] or ()))
    yield "as used", () if findings.inside is None else _list_isa(findings.inside)
    yield "peak", () if findings.peak is None else _peak(findings.peak)
    yield "cores", (_cores(facts),)
    yield "governor", findings.governors or ()
    yield "huge pages", _list_value(findings.transparent_hugepages)
    yield "hypervisor", _list_value(facts["hypervisor"])
    yield "memory", (formatting.size(facts["memory_bytes"]),) if facts["memory_bytes"] else ()
    yield "system", (f"{facts['os']} {facts['kernel']}, Python {facts['python']}",)
    yield "load", _list_value(findings.load_average)
    yield "noise", () if findings.noise is None else _noise(findings.noise)
    yield "libraries", tuple(f"{name} {version or 'not installed'}" for name, version in findings.versions.items())
    yield "variables", tuple(f"{key}={value}" for key, value in findings.variables.items()) or ("none is set",)
    yield "allocator", _list_value(findings.inside.allocator if findings.inside else None)
    yield "preloaded", (findings.preloaded or "nothing",)
    yield "C++ compiler", (findings.compiler or "none",)
    yield "cache", (f"{findings.cache}, {formatting.size(findings.cache_bytes)}",)
    yield "backends", tuple(f"{name}: {missing or 'usable'}" for name, missing in findings.backends.items())
    yield "hosts", tuple(f"{name}: {missing or 'usable'}" for name, missing in findings.hosts.items())
    if findings.notes:
        yield "notes", findings.notes
    yield "advice", findings.advice or ("none: nothing here stands in the way of a good measurement",)


def _list_value(value: object) -> tuple[str, ...]:
    return (str(value),) if value not in (None, "") else ()


def _list_isa(inside: Inside) -> tuple[str, ...]:
    used = (("torch", inside.torch_isa), ("oneDNN", inside.onednn_isa), ("MKL", inside.mkl_isa))
    lines = tuple(f"{name}: {isa}" for name, isa in used if isa is not None)
    if inside.amx_granted is not None:
        lines = (*lines, f"AMX: {'granted' if inside.amx_granted else 'denied'}")
    if inside.onnxruntime_amx is not None:
        lines = (*lines, f"ONNX Runtime: {'with' if inside.onnxruntime_amx else 'without'} AMX")
    return lines


def _bf16_peak(peak: Peak) -> tuple[str, ...]:
    if peak.bf16_flops_per_second is None or peak.bf16_size is None:
        return ()
    return (f"bf16 {_giga(peak.bf16_flops_per_second)} GFLOP/s: {peak.bf16_kernel}, {_square(peak.bf16_size)}",)


def _peak(peak: Peak) -> tuple[str, ...]:
    where = "one thread, not pinned" if peak.core is None else f"one thread on core {peak.core}"
    return (
        f"fp32 {_giga(peak.fp32_flops_per_second)} GFLOP/s: {peak.fp32_kernel}, {_square(peak.fp32_size)}; {where}",
        *_bf16_peak(peak),
        f"int8 {_giga(peak.int8_ops_per_second)} GOP/s: {peak.int8_kernel}, {_square(peak.int8_size)}",
        f"ratio {peak.ratio:.1f}: {ratio_meaning(peak.ratio)}",
    )


def ratio_meaning(ratio: float) -> str:
    """What the ratio of the peaks says of the speed-up that int8 can give."""
    if ratio < _LITTLE:
        return (
            "int8 arithmetic is hardly faster than fp32 on this core; what int8 gains comes from moving a quarter of "
            "the bytes"
        )
    return (
        f"a layer that arithmetic limits gains at most {ratio:.1f} times from int8 by these kernels, one that memory "
        "limits at most 4 (a quarter of the bytes), one of many small calls less than either"
    )


def _giga(rate: float) -> str:
    return f"{rate / 1e9:.1f}" if rate < 99.95e9 else f"{rate / 1e9:.0f}"


def _square(size: int) -> str:
    return f"{size} x {size}"


def _cores(facts: Mapping[str, Any]) -> str:
    quota = "no quota" if facts["cpu_quota"] is None else f"a quota of {facts['cpu_quota']:g}"
    return f"{facts['cores_allowed']} allowed of {facts['cores_total']}, {quota}"


def _noise(heard: Noise) -> tuple[str, ...]:
    where = "not pinned" if heard.core is None else f"on core {heard.core}"
    can = "can" if heard.decidable else "cannot"
    return (
        f"{heard.pairs} pairs of blocks of one loop against itself, {where}, {heard.seconds:.1f} s: "
        f"ratio {formatting.with_limits(heard.ratio)}, where 1 is true{_comment_ratio(heard)}",
        f"95 % of pairs within {formatting.share(heard.pair_spread)}; "
        f"the slowest 5 % of single calls take {formatting.share(heard.call_spread)} more than the median",
        f"a {formatting.share(heard.tolerance, 0)} gate {can} be decided: the interval must lie within "
        f"{formatting.share(heard.tolerance / 2)} of 1",
        *_host(heard),
    )


def _comment_ratio(heard: Noise) -> str:
    """What an interval without 1 means: noise that the blocks shared, not chance alone."""
    low, high = heard.ratio.low, heard.ratio.high
    if low is None or high is None or low <= 1 <= high:
        return ""
    off = max(low - 1, 1 - high)
    return (
        f": 1 lies outside, so something here favours one of two equals by at least {formatting.share(off, 2)}; "
        "differences of that size prove nothing, so repeat this when the machine is idle"
    )


def _host(heard: Noise) -> Iterator[str]:
    if heard.shared is None or heard.calm_seconds is None:
        return
    calm = formatting.duration(heard.calm_seconds)
    if heard.shared_seconds is None:
        yield f"the host left the core alone all the time: a canary of arithmetic took {calm} throughout"
        return
    yield (
        f"the host shared the core {formatting.share(heard.shared, 0)} of the time: a canary of arithmetic took "
        f"{formatting.duration(heard.shared_seconds)} then, {calm} on the core alone"
    )
