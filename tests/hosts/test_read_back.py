"""What kernels say in a child process, with and without a limit."""

from __future__ import annotations

import pytest

from qbench import registry
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
