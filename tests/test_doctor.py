"""qbench.doctor: what is found on a machine, what it means, and advice that knows what is already followed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qbench import doctor, machine
from qbench.doctor import Findings, advice, allocator, compiler, int8_meaning, to_json, to_text
from qbench.noise import Noise

QUIET = Noise(ratio=1.0002, pair_spread=0.011, call_spread=0.034, pairs=180, seconds=2.0)
GOOD = Findings(
    machine={
        "cpu": "AMD EPYC 9B14",
        "arch": "x86_64",
        "isa": ["avx2", "avx512_vnni"],
        "cores_allowed": 2,
        "cores_total": 2,
        "cpu_quota": None,
        "hypervisor": "kvm",
        "memory_bytes": 8_000_000_000,
        "os": "Linux",
        "kernel": "6.1",
        "python": "3.11.7",
    },
    int8="VNNI",
    governors=("performance",),
    transparent_hugepages="madvise",
    load_average=0.1,
    noise=QUIET,
    versions={"torch": "2.13.0", "openvino": None},
    variables={},
    allocator="system",
    compiler="/usr/bin/g++",
    cache="/cache/qbench",
    cache_bytes=31_337_000,
    backends={"onednn": None, "inductor": "no g++"},
)


def test_a_good_machine_gets_no_advice() -> None:
    """Advice that is already followed is not given."""
    assert advice(GOOD) == ()


@pytest.mark.parametrize(
    ("change", "start"),
    [
        ({"governors": ("performance", "powersave")}, "the frequency governor is powersave"),
        ({"machine": {**GOOD.machine, "cpu_quota": 1.5}}, "a CPU quota of 1.5 cores"),
        ({"machine": {**GOOD.machine, "cores_allowed": 1}}, "only one core is allowed"),
        ({"load_average": 1.3}, "the load average of the last minute is 1.3"),
        ({"noise": replace(QUIET, pair_spread=0.083)}, "two blocks of the same loop differ by up to 8.3 %"),
        ({"variables": {"ONEDNN_MAX_CPU_ISA": "AVX2"}}, "ONEDNN_MAX_CPU_ISA can hide instruction sets"),
        ({"compiler": None}, "no C++ compiler"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_each_fault_gets_its_one_advice(change: dict[str, Any], start: str) -> None:
    """One thing that is wrong gives one line, which says what to do."""
    (line,) = advice(replace(GOOD, **change))
    assert line.startswith(start)
    assert ": " in line


def test_what_the_system_does_not_tell_gives_no_advice() -> None:
    """No advice is made from ignorance."""
    assert advice(replace(GOOD, governors=None, load_average=None, transparent_hugepages=None)) == ()


@pytest.mark.parametrize(
    ("isa", "start"),
    [
        (["avx512_vnni", "amx_int8"], "AMX"),
        (["avx2", "avx_vnni"], "VNNI"),
        (["avx2", "avx512f"], "no VNNI"),
        (["asimd", "asimddp", "i8mm"], "I8MM"),
        (["asimd", "asimddp"], "dot product (SDOT)"),
        (["asimd"], "no dot product"),
        ([], "unknown"),
    ],
)
def test_the_best_instruction_set_decides_what_int8_means(isa: Sequence[str], start: str) -> None:
    """Of several sets the fastest for int8 is named; none known is unknown, never `no VNNI`."""
    assert int8_meaning(isa).startswith(start)


def test_allocator_is_read_from_what_is_preloaded() -> None:
    """A preloaded allocator is named by its library."""
    assert allocator({}) == "system"
    assert allocator({"LD_PRELOAD": "/usr/lib/libfoo.so"}) == "system"
    assert allocator({"LD_PRELOAD": "/usr/lib/libfoo.so:/usr/lib/libjemalloc.so.2"}) == "jemalloc"


def test_compiler_is_what_cxx_names_else_what_the_path_has(tmp_path: Path) -> None:
    """CXX wins also when it is wrong: a build would use it and fail."""
    for name in ("c++", "clang++"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    path = {"PATH": str(tmp_path)}
    assert compiler(path) == str(tmp_path / "clang++")
    assert compiler({**path, "CXX": "c++"}) == str(tmp_path / "c++")
    assert compiler({**path, "CXX": "no-such-compiler"}) is None
    assert compiler({"PATH": str(tmp_path / "empty")}) is None


def test_examine_reads_the_environment_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only variables that runtimes read are kept, so that no secret is shown; the cache is measured."""
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "file").write_bytes(b"x" * 1234)
    monkeypatch.setenv("QBENCH_CACHE", str(cache))
    environ = {"OMP_NUM_THREADS": "1", "AWS_SECRET": "s3cret", "PATH": "", "LD_PRELOAD": "libtcmalloc.so"}
    found = doctor.examine(root=tmp_path / "elsewhere", environ=environ, noise_seconds=0.0)
    assert found.variables == {"OMP_NUM_THREADS": "1"}
    assert (found.allocator, found.compiler) == ("tcmalloc", None)
    assert (found.cache, found.cache_bytes) == (str(cache), 1234)
    assert found.governors is None
    assert "s3cret" not in to_json(found) + to_text(found)
    assert found.advice == advice(found)


def test_examine_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On the machine at hand everything can be read, and the JSON holds the same as the fields."""
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path))
    found = doctor.examine(noise_seconds=0.0)
    assert found.machine == machine.fingerprint()
    data = json.loads(to_json(found))
    assert data["noise"]["pairs"] == found.noise.pairs
    assert set(data["backends"]) >= {"torch", "onnxruntime"}


def test_text_labels_every_fact() -> None:
    """The text is exact: labels aligned, several values below each other, sizes and shares scaled."""
    assert to_text(replace(GOOD, advice=("do this",))) == "\n".join(
        (
            "CPU           AMD EPYC 9B14",
            "int8          VNNI",
            "ISA           avx2 avx512_vnni",
            "cores         2 allowed of 2, no quota",
            "governor      performance",
            "huge pages    madvise",
            "hypervisor    kvm",
            "memory        8.00 GB",
            "system        Linux 6.1, Python 3.11.7",
            "load          0.1",
            "noise         180 pairs of blocks of one loop against itself: median ratio 1.0002, 95 % of pairs "
            "within 1.1 %; the slowest 5 % of single calls take 3.4 % more than the median",
            "libraries     torch 2.13.0",
            "              openvino not installed",
            "variables     none is set",
            "allocator     system",
            "C++ compiler  /usr/bin/g++",
            "cache         /cache/qbench, 31.3 MB",
            "backends      onednn: usable",
            "              inductor: no g++",
            "advice        do this",
        )
    )


def test_text_says_what_is_not_told_and_fits_the_width() -> None:
    """What could not be read is said in words, and no line is longer than the terminal."""
    text = to_text(replace(GOOD, governors=None, load_average=None), width=60)
    assert "governor      not told by this system" in text
    assert max(map(len, text.splitlines())) <= 60
