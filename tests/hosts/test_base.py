"""What every host must hold, built in or of a package."""

from __future__ import annotations

from pathlib import Path

import pytest

from qbench import registry
from qbench.errors import UsageError
from qbench.hosts.base import NATIVE, KernelView
from qbench.suite.types import SLUG

HOSTS = (*registry.names("host"), "qemu:Haswell", "qemu:arm64-max", "ray:any")
BACKENDS = tuple(registry.BUILT_IN["backend"])


@pytest.mark.parametrize("name", HOSTS)
def test_a_host_is_named_and_says_what_it_is(name: str) -> None:
    """Its name is the end of case ids and of file names."""
    host = registry.load("host", name)
    assert host.name == name
    assert SLUG.fullmatch(name.replace(":", "-").lower())
    assert host.title.strip()
    assert host.kind in ("native", "limited", "node", "emulated")


@pytest.mark.parametrize("name", HOSTS)
def test_a_host_answers_for_every_backend(name: str) -> None:
    """Why it is not there and why a backend does not run there are sentences or None; variables are text."""
    host = registry.load("host", name)
    answers = [host.missing(), *(host.why_not(backend) for backend in BACKENDS)]
    answers += [host.caution(backend) for backend in BACKENDS]
    assert {host.answers(backend) for backend in BACKENDS} <= {"runs", "predicted", "emulated"}
    assert all(answer is None or len(answer) > 10 for answer in answers)
    assert all(isinstance(text, str) and text for pair in host.environment().items() for text in pair)


@pytest.mark.parametrize("name", [name for name in HOSTS if "arm64" not in name])
def test_a_host_that_takes_nothing_is_not_prepared(name: str, tmp_path: Path) -> None:
    """It says so, and fetches nothing."""
    with pytest.raises(UsageError, match="nothing is to be prepared"):
        registry.load("host", name).prepare(tmp_path, pytest.fail)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [name for name in HOSTS if name != NATIVE])
def test_a_host_that_sets_something_reads_it_back(name: str) -> None:
    """Kernels that still add in 32 bits and name the newest instructions contradict every host without VNNI."""
    host = registry.load("host", name)
    new = KernelView(torch_isa="AVX10", onednn_isa="Intel AVX-512 with Intel DL Boost", int8_sums="32 bits")
    assert not host.environment() or host.contradict("onednn", new) is not None


def test_native_is_the_machine_as_it_is() -> None:
    """It sets nothing, lacks nothing and holds whatever the kernels say."""
    host = registry.load("host", NATIVE)
    assert (host.missing(), dict(host.environment()), host.contradict("onednn", KernelView())) == (None, {}, None)
    assert all(host.why_not(backend) is None for backend in BACKENDS)
