"""qbench.machine.runtime: what a measuring process sees of itself, read back and never guessed."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from qbench.errors import MeasureError
from qbench.explain.causes import machine
from qbench.machine import fingerprint, runtime
from qbench.machine.runtime import allocator, mkl_isa, onednn_isa
from qbench.process.child_process import Limits, call

MAPS = (
    "55d0-55d1 r--p 00000000 fe:00 12 /usr/bin/python3\n"
    "7f00-7f01 rw-p 00000000 00:00 0\n"
    "7f10-7f11 r-xp 00000000 fe:00 99 {path}\n"
    "7ffc-7ffd rw-p 00000000 00:00 0                          [stack]\n"
)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", "jemalloc"),
        ("/opt/lib/libtcmalloc_minimal.so.4", "tcmalloc"),
        ("/a folder/libmimalloc.so", "mimalloc"),
        ("/usr/lib/libc.so.6", "system"),
        ("/home/jemalloc/data.bin", "system"),
        ("/home/libjemalloc.bin", "system"),
        ("/home/jemalloc/libother.so", "system"),
    ],
)
def test_the_allocator_is_the_library_that_is_mapped(path: str, name: str) -> None:
    """Only a mapped shared library counts, by its own name."""
    assert allocator(MAPS.format(path=path)) == name


def test_without_maps_the_allocator_is_unknown() -> None:
    """A system without /proc tells nothing: null, not `system`."""
    assert allocator(None) is None


@pytest.mark.parametrize(
    ("said", "isa"),
    [
        ("onednn_verbose,v1,info,cpu,runtime:OpenMP\nonednn_verbose,v1,info,cpu,isa:Intel AVX2\n", "Intel AVX2"),
        ("onednn_verbose,info,cpu,isa:Intel AVX-512 with Intel DL Boost", "Intel AVX-512 with Intel DL Boost"),
        ("dnnl_verbose,info,cpu,isa:Generic", "Generic"),
        ("nothing of the kind", None),
        ("", None),
        (None, None),
    ],
)
def test_onednn_says_its_instruction_set_in_its_header(said: str | None, isa: str | None) -> None:
    """The line is found in old and new forms; without it nothing is known."""
    assert onednn_isa(said) == isa


HAS_ONEDNN, HAS_MKL = torch.backends.mkldnn.is_available(), torch.backends.mkl.is_available()


@pytest.mark.skipif(sys.platform != "linux", reason="reads back affinity and /proc, which Linux has")
def test_a_child_sees_its_core_its_thread_and_its_allocator() -> None:
    """What is set from outside is read back inside."""
    core = fingerprint.allowed_cores()[-1]
    child = runtime.look_inside(limits=Limits(seconds=60), cores=(core,))
    assert (child.cores, child.threads) == ((core,), 1)
    assert child.torch_isa
    assert (child.mkl_isa is not None) is HAS_MKL
    if "avx512_vnni" in fingerprint.isa():  # others may multiply bytes without it
        assert (child.onednn_isa is not None) is HAS_ONEDNN
    assert child.allocator in ("system", *runtime.ALLOCATORS)
    assert child.amx_granted is None or "amx_tile" in fingerprint.isa()
    assert (child.onnxruntime_amx is None) is ("amx_tile" not in fingerprint.isa())


@pytest.mark.parametrize(
    ("said", "isa"),
    [
        (
            "MKL_VERBOSE oneMKL 2024.0 Update 2 Product build 20240605 for Intel(R) 64 architecture Intel(R) Advanced "
            "Vector Extensions 2 (Intel(R) AVX2) enabled processors, Lnx 2.60GHz lp64\nMKL_VERBOSE SGEMM\n",
            "Intel Advanced Vector Extensions 2 (Intel AVX2)",
        ),
        (
            "MKL_VERBOSE oneMKL 2024.0 Product for Intel(R) 64 architecture Intel(R) AVX-512 with support for INT8, "
            "BF16 instructions, and Intel(R) AMX with INT8, Lnx 2.60GHz",
            "Intel AVX-512 with support for INT8, BF16 instructions, and Intel AMX with INT8",
        ),
        ("nothing of MKL", None),
        (None, None),
    ],
)
def test_what_mkl_says_is_found_in_its_words(said, isa):
    """The first line that MKL writes when it is verbose names the instruction set that it uses."""
    assert mkl_isa(said) == isa


def count_faults(environment: dict[str, str], *, progress: object) -> int:
    """The page faults of three blocks of 40 MB, one after the other, in a process with these variables: more than what
    glibc keeps by itself."""
    import resource

    runtime.set_malloc(environment)
    faults = []
    for _ in range(4):
        block = bytearray(b"1") * (40 << 20)
        del block
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
    return faults[-1] - faults[0]


@pytest.mark.skipif(sys.platform != "linux", reason="the variables are those of glibc")
def test_malloc_keeps_its_memory_where_it_is_told() -> None:
    """Read back by what it is for: blocks that are not given back are not cleared again by the kernel."""
    limits = Limits(seconds=60)
    given_back, kept = (call(count_faults, variables, limits=limits) for variables in ({}, machine.KEEPING))
    assert given_back > 20 * (kept + 1)


def test_another_malloc_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in place of a measurement of another case."""
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    with pytest.raises(MeasureError, match="malloc does not take MALLOC_MMAP_MAX_=0"):
        runtime.set_malloc({"MALLOC_MMAP_MAX_": "0"})


def test_what_c_code_writes_lands_in_the_file_and_then_where_it_did(capfd: pytest.CaptureFixture[str]) -> None:
    """Also where something fails within; no descriptor is left open."""
    spare = os.dup(1)
    os.close(spare)
    for error in (None, KeyError):
        with tempfile.TemporaryFile("w+") as file:
            try:
                with runtime._stdout_into(file):
                    os.write(1, b"inside")
                    if error is not None:
                        raise error
            except KeyError:
                pass
            os.write(1, b"after")
            file.seek(0)
            assert file.read() == "inside"
        assert capfd.readouterr().out == "after"
    assert os.dup(1) == spare
    os.close(spare)


def test_each_variable_of_malloc_sets_its_own_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the numbers of mallopt(3); others are left alone, and so is what is not named."""
    asked: list[tuple[int, int]] = []

    def mallopt(parameter: int, value: int) -> int:
        asked.append((parameter, value))
        return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    names = ("TRIM_THRESHOLD_", "TOP_PAD_", "MMAP_THRESHOLD_", "MMAP_MAX_")
    runtime.set_malloc({f"MALLOC_{name}": str(number) for number, name in enumerate(names)} | {"MALLOC_ARENA_MAX": "9"})
    assert asked == [(-1, 0), (-2, 1), (-3, 2), (-4, 3)]
    runtime.set_malloc({})
    assert len(asked) == 4


def test_a_system_without_affinity_tells_no_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is told there, too."""
    for name in ("_onednn_says", "_mkl_says"):
        monkeypatch.setattr(runtime, name, lambda: None)
    monkeypatch.delattr(os, "sched_getaffinity")
    inside = runtime.in_this_process()
    assert (inside.cores, inside.onednn_isa, inside.mkl_isa) == (None, None, None)
    assert inside.threads == torch.get_num_threads()


def test_a_variable_that_malloc_refuses_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """mallopt(3) says so by 0."""
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=lambda parameter, value: 0))
    with pytest.raises(MeasureError, match="malloc does not take MALLOC_TOP_PAD_=1: not measured"):
        runtime.set_malloc({"MALLOC_TOP_PAD_": "1"})


def test_onnxruntimes_use_of_amx_shows_behind_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 64 rows, a few tiles; without AMX none is made, and without ONNX Runtime nothing is told."""
    done: list[object] = []

    def make(size: int) -> Callable[[], None]:
        return lambda: done.append(size)

    monkeypatch.setattr(runtime.gemm, "make_onnxruntime_int8", make)
    monkeypatch.setattr(runtime.amx_tiles, "are_in_use", lambda: None)
    assert runtime._see_onnxruntime_use_amx() is None
    assert done == []
    monkeypatch.setattr(runtime.amx_tiles, "are_in_use", lambda: bool(done))
    assert runtime._see_onnxruntime_use_amx() is True
    assert done == [64]

    def fail(size: int) -> Callable[[], None]:
        raise ImportError

    monkeypatch.setattr(runtime.gemm, "make_onnxruntime_int8", fail)
    assert runtime._see_onnxruntime_use_amx() is None


def test_a_torch_without_them_says_nothing_of_onednn_and_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    """No product is made."""
    monkeypatch.setattr(runtime, "read_stdout_of", lambda call: pytest.fail("it was called"))
    for library in (torch.backends.mkldnn, torch.backends.mkl):
        monkeypatch.setattr(library, "is_available", lambda: False)
    assert (runtime._onednn_says(), runtime._mkl_says()) == (None, None)


def test_what_was_written_before_is_not_among_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Python keeps its own text until there is enough."""
    with open(1, "w", closefd=False) as stdout, tempfile.TemporaryFile("w+") as file:
        monkeypatch.setattr(sys, "stdout", stdout)
        stdout.write("before")
        with runtime._stdout_into(file):
            stdout.write("inside")
            stdout.flush()
        file.seek(0)
        assert file.read() == "inside"
        assert capfd.readouterr().out == "before"
