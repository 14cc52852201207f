"""What kernels say in a child process, with and without a limit."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from qbench import registry
from qbench.hosts import read_back
from qbench.hosts.limited import AVX2
from qbench.hosts.read_back import read_kernels
from qbench.machine import fingerprint
from qbench.process.child_process import Limits

LIMITS = Limits(seconds=120)
limitable = pytest.mark.skipif(AVX2.missing() is not None, reason=f"{AVX2.missing()}")
vnni = pytest.mark.skipif("avx512_vnni" not in fingerprint.isa(), reason="this CPU adds in 16 bits natively")


@limitable
@pytest.mark.parametrize("backend", ["torch", "fbgemm", "onednn", "qnnpack", "openvino"])
def test_the_switches_change_the_kernels(backend):
    """Names and bits are those of AVX2, although the server of children imported torch before they were set."""
    if (reason := registry.load("backend", backend).missing()) is not None:
        pytest.skip(reason)
    view = read_kernels(backend, environment=dict(AVX2.environment()), limits=LIMITS)
    assert AVX2.contradict(backend, view) is None
    assert view.torch_isa in (None, "AVX2")


@limitable
@vnni
@pytest.mark.skipif(bool(fingerprint.switches()), reason="a variable limits this process already")
def test_without_switches_the_kernels_contradict_the_limit():
    """The read-back can fail: sums in 32 bits are no AVX2."""
    view = read_kernels("onednn", environment={}, limits=LIMITS)
    assert view.int8_sums == "32 bits"
    assert AVX2.contradict("onednn", view) is not None


@pytest.mark.parametrize(
    ("backend", "share", "sums"),
    [
        ("onednn", 0.51, "16 bits"),
        ("onednn", 0.7499, "16 bits"),
        ("inductor", 0.75, "32 bits"),
        ("onednn", 1.0, "32 bits"),
        ("qnnpack", 0.51, None),
        ("torch", 0.51, None),
    ],
)
def test_a_sum_that_lost_a_quarter_was_clipped(monkeypatch, backend, share, sums):
    """Rounding loses less, and clipping about half; of backends whose answer is the same everywhere nobody asks."""
    monkeypatch.setattr(read_back, "_sum_by_torch", lambda backend: share * read_back._EXACT)
    assert read_back._find_sums(backend) == sums


@pytest.mark.usefixtures("engine_put_back")
@pytest.mark.parametrize("backend", ["torch_ao", "openvino", "onnxruntime"])
def test_the_largest_sum_is_exact_or_clipped(backend):
    """Whatever this CPU does, and the rounding to a byte of its scale is the only other loss."""
    if backend == "openvino" and (reason := registry.load("backend", backend).missing()) is not None:
        pytest.skip(reason)
    ask = {"openvino": read_back._sum_by_openvino, "onnxruntime": read_back._sum_by_onnxruntime}
    total = ask.get(backend, lambda: read_back._sum_by_torch("onednn"))()
    clipped = 32_767 / (2 * 255 * 127)
    assert any(total / read_back._EXACT == pytest.approx(share, abs=0.005) for share in (1.0, clipped))


@pytest.mark.parametrize(("backend", "isa"), [("torch", "AVX2"), ("qnnpack", "AVX2"), ("openvino", None)])
def test_what_torch_says_of_itself_is_told_of_its_own_engines(monkeypatch, backend, isa):
    """Another runtime has kernels of its own, which only their sums tell of."""
    inside = SimpleNamespace(torch_isa="AVX2", onednn_isa="AVX2", mkl_isa="AVX2")
    monkeypatch.setattr(read_back.runtime, "in_this_process", lambda: inside)
    monkeypatch.setattr(read_back, "_find_sums", lambda backend: "32 bits")
    view = read_back.read_here(backend)
    assert (view.torch_isa, view.onednn_isa, view.mkl_isa, view.int8_sums) == (isa, isa, isa, "32 bits")
