"""Whether this CPU multiplies floats of 16 bits.

Without such instructions engines run fp32 in silence (OpenVINO 2026.4 on an emulated Haswell), or convert each value on
the way: limited to AVX-512 without bf16, OpenVINO takes 44 ms for ResNet-18 where it takes 7.6 with it and 15 in fp32,
under kernel names that end in ``bf16`` all the same. So the instructions are asked for, not the names alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from qbench.machine.fingerprint import ROOT, isa
from qbench.modes import Precision

# Instructions whose factors are of the format, in Linux's words; those that only convert (AVX-NE-CONVERT) are none.
_MULTIPLY: Mapping[Precision, tuple[str, ...]] = {
    "bf16": ("avx512_bf16", "amx_bf16", "bf16"),
    "fp16": ("avx512_fp16", "amx_fp16", "asimdhp"),
}
# What oneDNN, and OpenVINO with it, keeps of them where its switch limits it; any other limit leaves all
# (https://uxlfoundation.github.io/oneDNN/dev_guide_cpu_dispatcher_control.html).
_NO_HALVES = ("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI")
_KEPT = {
    **dict.fromkeys(_NO_HALVES, ()),
    "AVX512_CORE_BF16": ("avx512_bf16",),
    **dict.fromkeys(("AVX512_CORE_FP16", "AVX10_1_512"), ("avx512_bf16", "avx512_fp16")),
}


def explain_missing(precision: Precision, root: Path = ROOT, environ: Mapping[str, str] = os.environ) -> str | None:
    """Why oneDNN's and OpenVINO's kernels do not multiply floats of this format here; None where they do."""
    words = _MULTIPLY[precision]
    have = [word for word in words if word in isa(root)]
    if not have:
        return f"this CPU has no instructions that multiply {precision} ({', '.join(words)})"
    name = next((name for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA") if environ.get(name)), None)
    if name is not None and not set(have) & set(_KEPT.get(environ[name].upper(), words)):
        return f"{name}={environ[name]} hides this CPU's instructions that multiply {precision} ({', '.join(have)})"
    return None
