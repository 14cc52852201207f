"""The hosts ``avx2`` and ``avx512``: this CPU limited to older instructions by the engines' own switches.

Neither has instructions that add four products of bytes in 32 bits (VNNI, AMX): engines then add two of them in 16
bits, which may saturate, so that answers differ. The kernels under these switches give the bits of an emulated Haswell.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping

from qbench.hosts.base import Answers, Host, KernelView
from qbench.hosts.read_back import PROBED
from qbench.machine import fingerprint

_X86 = ("x86_64", "AMD64")
_NEWER = (*fingerprint.ADD_IN_32_BITS, "amx_tile")
# How oneDNN names instruction sets with VNNI: "Intel AVX-512 with Intel DL Boost", "Intel AVX 10.1", "Intel AVX10.1 and
# Intel AMX with bfloat16 and 8-bit integer support".
_WITH_VNNI = ("Boost", "AVX10", "AVX 10", "AMX")
# torch's fp32 follows oneDNN's, MKL's and its own switch; qnnpack's int8 kernels need nothing newer than SSE4.
LIMITED = ("torch", "fbgemm", "x86", "onednn", "qnnpack", "inductor", "openvino")
_NEWER_IN_MKL = {"avx2": ("AVX-512", "AMX"), "avx512": ("AMX", "DL Boost")}
_NO_SWITCH = {
    "onnxruntime": "ONNX Runtime asks the CPU itself and has no switch that hides instructions from it",
    "executorch": "XNNPACK asks the CPU itself and has no switch that hides instructions from it; qemu:Haswell answers",
}


class Limited(Host):
    """This CPU without the instruction sets beyond one. ``isa``: the words of Linux for what it must have, ``newer``:
    those of which this CPU must have at least one, or it is such a machine already. ``predicted``: the backends whose
    answers there are known without a switch."""

    kind = "limited"

    def __init__(
        self,
        name: str,
        *,
        title: str,
        isa: tuple[str, ...],
        newer: tuple[str, ...],
        variables: Mapping[str, str],
        predicted: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.title = title
        self._isa, self._newer = isa, newer
        self._variables = variables
        self._predicted = predicted

    def missing(self) -> str | None:
        """It takes an x86 CPU that is newer."""
        if platform.machine() not in _X86:
            return f"this is no x86 CPU ({platform.machine()}), so none of its engines can be limited to {self.name}"
        have = fingerprint.isa()
        lacking = [word for word in self._isa if word not in have]
        if lacking:
            return f"this CPU has no {lacking[0]}, so it cannot act as {self.name}"
        if not any(word in have for word in self._newer):
            return f"this CPU has nothing newer than {self.name}: native answers as {self.name} does"
        return None

    def why_not(self, backend: str) -> str | None:
        """Which engines have a switch, and of which others the answers are known."""
        if backend in LIMITED:
            return None
        why = _NO_SWITCH.get(backend, f"no switch of {backend} is known that hides instructions")
        if backend not in self._predicted:
            return f"not limited: {why}"
        if not any(word in fingerprint.ADD_IN_32_BITS for word in fingerprint.isa()):
            return f"not limited: {why}; and not predicted, since this CPU adds products of bytes in 16 bits itself"
        return None

    def answers(self, backend: str) -> Answers:
        """Those of a backend without a switch are predicted."""
        return "runs" if backend in LIMITED else "predicted"

    def caution(self, backend: str) -> str | None:
        """A package of AOTInductor holds code for the CPU that it was compiled on, beside the kernels of oneDNN."""
        if backend != "inductor":
            return None
        return (
            "its package holds machine code compiled for this CPU, which no switch changes: on a CPU without these "
            f"instructions, such as one of {self.name}, it does not load (SIGILL)"
        )

    def environment(self) -> Mapping[str, str]:
        """The switches of oneDNN (torch, inductor, OpenVINO), fbgemm, torch's vector code and MKL (fp32 products of
        matrices)."""
        return dict(self._variables)

    def contradict(self, backend: str, view: KernelView) -> str | None:
        """The libraries name an older instruction set, and the sums of bytes are those of kernels without VNNI."""
        capability = self._variables["ATEN_CPU_CAPABILITY"]
        if view.torch_isa is not None and view.torch_isa.lower() != capability:
            return f"ATEN_CPU_CAPABILITY={capability} was set, but torch's kernels are for {view.torch_isa}"
        if view.onednn_isa is not None and any(name in view.onednn_isa for name in _WITH_VNNI):
            return f"ONEDNN_MAX_CPU_ISA was set, but oneDNN's kernels are for {view.onednn_isa}"
        if view.mkl_isa is not None and any(word in view.mkl_isa for word in _NEWER_IN_MKL[capability]):
            return f"MKL_ENABLE_INSTRUCTIONS was set, but MKL's kernels are for {view.mkl_isa}"
        if backend in PROBED and view.int8_sums != "16 bits":
            return f"the switches for {self.name} were set, but the int8 kernels of {backend} still add in 32 bits"
        return None


AVX2 = Limited(
    "avx2",
    title="this chip, older instructions",
    isa=("avx2",),
    newer=("avx512f", *_NEWER),
    variables={
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "FBGEMM_ENABLE_INSTRUCTIONS": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    },
    predicted=(
        "onnxruntime",
    ),  # equal to an emulated Haswell; its AVX-512 kernels without VNNI were not held against one
)
AVX512 = Limited(
    "avx512",
    title="this chip, older instructions",
    isa=("avx512f", "avx512bw", "avx512vl", "avx512dq"),
    newer=_NEWER,
    variables={
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "FBGEMM_ENABLE_INSTRUCTIONS": "AVX512",
        "ATEN_CPU_CAPABILITY": "avx512",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
    },
)
