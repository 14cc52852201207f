"""Which CPUs can be limited, which engines follow, and what shows that one did not."""

from __future__ import annotations

import pytest

from qbench.hosts.base import KernelView
from qbench.hosts.limited import AVX2, AVX512, LIMITED
from qbench.machine import fingerprint

AVX512_WORDS = ("avx2", "avx512bw", "avx512dq", "avx512f", "avx512vl")


@pytest.mark.parametrize(
    ("machine", "isa", "avx2", "avx512"),
    [
        ("x86_64", (*AVX512_WORDS, "avx512_vnni"), None, None),
        ("x86_64", AVX512_WORDS, None, "nothing newer than avx512"),
        ("x86_64", ("avx2", "avx_vnni"), None, "has no avx512f"),
        ("x86_64", ("avx2",), "nothing newer than avx2", "has no avx512f"),
        ("x86_64", ("sse4_2",), "has no avx2", "has no avx512f"),
        ("aarch64", ("asimd", "i8mm"), "no x86 CPU", "no x86 CPU"),
    ],
)
def test_only_a_newer_cpu_can_be_limited(monkeypatch, machine, isa, avx2, avx512):
    """One that is as old already answers as that host does; one that is older, or of another kind, cannot act as it."""
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(fingerprint, "isa", lambda: isa)
    for host, part in ((AVX2, avx2), (AVX512, avx512)):
        reason = host.missing()
        assert (reason is None) == (part is None)
        assert part is None or part in str(reason)


@pytest.mark.parametrize(("host", "backend"), [(AVX512, "onnxruntime"), (AVX2, "mine")])
def test_an_engine_without_a_switch_is_not_limited(host, backend):
    """The reason begins as reports quote it, for a plug-in of the user's, too."""
    assert str(host.why_not(backend)).startswith("not limited: ")


@pytest.mark.parametrize(("isa", "reason"), [(("avx2", "avx512_vnni"), None), (AVX512_WORDS, "adds products")])
def test_onnx_runtime_is_predicted_where_this_cpu_adds_in_32_bits(monkeypatch, isa, reason):
    """On another one the file's own answers are saturated already."""
    monkeypatch.setattr(fingerprint, "isa", lambda: isa)
    assert (AVX2.answers("onnxruntime"), AVX2.answers("onednn")) == ("predicted", "runs")
    answer = AVX2.why_not("onnxruntime")
    assert answer is None if reason is None else reason in str(answer)


@pytest.mark.parametrize(
    ("backend", "view", "holds"),
    [
        ("onednn", KernelView(torch_isa="AVX2", onednn_isa="Intel AVX2", int8_sums="16 bits"), True),
        ("onednn", KernelView(torch_isa="AVX2", onednn_isa="Intel AVX2", int8_sums="32 bits"), False),
        ("onednn", KernelView(torch_isa="AVX512", onednn_isa="Intel AVX2", int8_sums="16 bits"), False),
        ("torch", KernelView(torch_isa="AVX2", onednn_isa="Intel AVX2 with Intel DL Boost"), False),
        ("torch", KernelView(torch_isa="AVX2", onednn_isa="Intel AVX 10.1"), False),
        ("torch", KernelView(torch_isa="AVX2", onednn_isa="Intel AVX10.1 and Intel AMX with 8-bit integers"), False),
        ("torch", KernelView(torch_isa="AVX2", onednn_isa="Intel AVX2"), True),
        ("torch", KernelView(torch_isa="AVX2", mkl_isa="Intel Advanced Vector Extensions 512 (Intel AVX-512)"), False),
        ("torch", KernelView(torch_isa="AVX2", mkl_isa="Intel Advanced Vector Extensions 2 (Intel AVX2)"), True),
        ("qnnpack", KernelView(torch_isa="AVX2"), True),
        ("openvino", KernelView(int8_sums="32 bits"), False),
    ],
)
def test_what_kernels_say_decides(backend, view, holds):
    """A variable that changed no kernel limits nothing."""
    assert (AVX2.contradict(backend, view) is None) == holds


def test_a_package_with_code_for_this_cpu_is_cautioned():
    """No switch changes what AOTInductor compiled."""
    assert "does not load" in str(AVX512.caution("inductor"))
    assert AVX512.caution("onednn") is None


def test_an_engine_that_did_not_follow_is_named_with_the_switch_that_it_ignored():
    """MKL's names differ by what is beyond the limit; sums in 32 bits only where they show a limit."""
    avx512 = "Intel Advanced Vector Extensions 512 (Intel AVX-512)"
    vnni = f"{avx512} with support of Intel Deep Learning Boost (Intel DL Boost)"
    assert AVX512.contradict("torch", KernelView(torch_isa="AVX512", mkl_isa=avx512)) is None
    for mkl in (vnni, "Intel AMX"):
        reason = f"MKL_ENABLE_INSTRUCTIONS was set, but MKL's kernels are for {mkl}"
        assert AVX512.contradict("torch", KernelView(torch_isa="AVX512", mkl_isa=mkl)) == reason
    assert "MKL's" in str(AVX2.contradict("torch", KernelView(mkl_isa="Intel AMX")))
    assert AVX512.contradict("torch", KernelView(torch_isa="AVX2")) == (
        "ATEN_CPU_CAPABILITY=avx512 was set, but torch's kernels are for AVX2"
    )
    assert AVX2.contradict("torch", KernelView(onednn_isa="Intel AMX")) == (
        "ONEDNN_MAX_CPU_ISA was set, but oneDNN's kernels are for Intel AMX"
    )
    assert AVX2.contradict("onnxruntime", KernelView(int8_sums="32 bits")) == (
        "the switches for avx2 were set, but the int8 kernels of onnxruntime still add in 32 bits"
    )
    assert AVX2.contradict("qnnpack", KernelView(int8_sums="32 bits")) is None


def test_each_engine_has_its_switch():
    """By the words of each for the instruction set."""
    assert list(AVX2.environment().values()) == ["AVX2", "AVX2", "avx2", "AVX2"]
    assert list(AVX512.environment().values()) == ["AVX512_CORE", "AVX512", "avx512", "AVX512"]
    assert [AVX512.why_not(backend) for backend in LIMITED] == [None] * len(LIMITED)


def test_an_engine_without_a_switch_says_why():
    """What is predicted at an older limit is not at a newer one."""
    assert AVX2.why_not("executorch") == (
        "not limited: XNNPACK asks the CPU itself and has no switch that hides instructions from it; qemu:Haswell "
        "answers"
    )
    assert AVX512.why_not("mine") == "not limited: no switch of mine is known that hides instructions"
