"""qbench.doctor.findings: what is found on a machine, what it means, and advice that knows what is already followed."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qbench.doctor import findings
from qbench.doctor.findings import Findings, advice, compiler, int8_meaning
from qbench.doctor.text import as_json, ratio_meaning, text
from qbench.errors import WorkerError
from qbench.machine import fingerprint, noise, peak
from qbench.machine.noise import Noise
from qbench.machine.peak import Effort, Peak
from qbench.machine.runtime import Inside
from qbench.process import child_process
from qbench.process.child_process import Limits
from qbench.stats.interval_type import Interval

TINY = Effort(sizes=(32,), screen_seconds=0.0, finalists=1, final_seconds=0.0)
QUIET = Noise(
    ratio=Interval(value=1.0002, low=0.9991, high=1.0013),
    pair_spread=0.011,
    call_spread=0.034,
    pairs=180,
    seconds=5.0,
    core=1,
    tolerance=0.05,
    decidable=True,
)
SEEN = Inside(
    torch_isa="AVX512",
    onednn_isa="Intel AVX-512 with Intel DL Boost",
    mkl_isa="Intel AVX-512",
    amx_granted=None,
    onnxruntime_amx=None,
    allocator="system",
    cores=(1,),
    threads=1,
)
USES_AMX = replace(SEEN, onednn_isa="Intel AVX10.1 and Intel AMX", amx_granted=True, onnxruntime_amx=True)
PEAK = Peak(
    fp32_flops_per_second=98.7e9,
    fp32_kernel="torch.mm",
    fp32_size=512,
    int8_ops_per_second=437e9,
    int8_kernel="torch._int_mm",
    int8_size=768,
    core=1,
    bf16_flops_per_second=201e9,
    bf16_kernel="torch bf16 mm",
    bf16_size=512,
    seconds=3.1,
    versions={"torch": "2.13.0"},
    kernels={"torch.mm": 98.7e9, "torch._int_mm": 437e9, "quantized linear, qnnpack": None},
)
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
    halves={"bf16": "bf16: mode bf16 runs here", "fp16": "fp16: this CPU has none"},
    inside=SEEN,
    peak=PEAK,
    governors=("performance",),
    transparent_hugepages="madvise",
    load_average=0.1,
    noise=QUIET,
    versions={"torch": "2.13.0", "openvino": None},
    variables={},
    preloaded=None,
    compiler="/usr/bin/g++",
    cache="/cache/qbench",
    cache_bytes=31_337_000,
    backends={"onednn": None, "inductor": "no g++"},
    hosts={"avx2": None, "qemu:Haswell": "qemu-x86_64 is not installed: `apt-get install qemu-user`"},
)
AMX = {**GOOD.machine, "isa": ["amx_int8", "avx2"]}


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
        ({"noise": replace(QUIET, decidable=False)}, "a 5 % gate cannot be decided here in 5 s"),
        ({"noise": replace(QUIET, shared=0.6)}, "the host shares this core with something else 60 % of the time"),
        ({"noise": replace(QUIET, shared=0.25)}, "the host shares this core with something else 25 % of the time"),
        (
            {"noise": replace(QUIET, calm_seconds=5.6e-6), "peak": replace(PEAK, canary_seconds=9e-6)},
            "the peak was measured while the host shared the core",
        ),
        ({"variables": {"ONEDNN_MAX_CPU_ISA": "AVX2"}}, "ONEDNN_MAX_CPU_ISA can hide instruction sets"),
        ({"variables": {"FBGEMM_ENABLE_INSTRUCTIONS": "AVX2"}}, "FBGEMM_ENABLE_INSTRUCTIONS can hide instruction sets"),
        ({"variables": {"OV_CPU_MAX_ISA": "AVX2"}}, "OV_CPU_MAX_ISA can hide instruction sets"),
        (
            {"variables": {"ONEDNN_DEFAULT_FPMATH_MODE": "bf16"}},
            "ONEDNN_DEFAULT_FPMATH_MODE lets oneDNN compute",
        ),
        ({"variables": {"KMP_AFFINITY": "compact"}}, "KMP_AFFINITY can move threads off the cores"),
        ({"preloaded": "/wrong/libjemalloc.so"}, "LD_PRELOAD names jemalloc, but no process has it"),
        ({"machine": AMX}, "the CPU has AMX, but no process here may or does use it"),
        ({"machine": AMX, "inside": replace(SEEN, onednn_isa=None, amx_granted=False)}, "the CPU has AMX, but no"),
        (
            {"machine": AMX, "inside": replace(USES_AMX, onnxruntime_amx=False)},
            "ONNX Runtime does not use the CPU's AMX",
        ),
        ({"compiler": None}, "no C++ compiler"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_each_fault_gets_its_one_advice(change: dict[str, Any], start: str) -> None:
    """One thing that is wrong gives one line, which says what to do."""
    (line,) = advice(replace(GOOD, **change))
    assert line.startswith(start)
    assert ": " in line


@pytest.mark.parametrize(
    "change",
    [
        {"machine": {**GOOD.machine, "cpu_quota": 2.0}},
        {"machine": {**GOOD.machine, "cpu_quota": 0.5, "cores_total": None}},
        {"load_average": 0.7},
        {"noise": replace(QUIET, shared=0.24)},
        {"noise": replace(QUIET, pair_spread=QUIET.tolerance)},
        {"noise": replace(QUIET, calm_seconds=5.6e-6), "peak": replace(PEAK, canary_seconds=5.6e-6)},
        {"preloaded": "libmimicked.so"},
    ],
)
def test_what_just_holds_is_no_fault(change: dict[str, Any]) -> None:
    """A quota of all cores, the load of one thread, a spread that a gate allows."""
    assert advice(replace(GOOD, **change)) == ()


@pytest.mark.parametrize(
    ("change", "start"),
    [
        ({"noise": replace(QUIET, decidable=False, pair_spread=0.083)}, "a 5 % gate cannot be decided"),
        ({"machine": AMX, "variables": {"ONEDNN_MAX_CPU_ISA": "AVX2"}}, "ONEDNN_MAX_CPU_ISA can hide"),
        ({"machine": AMX, "inside": replace(SEEN, onnxruntime_amx=False)}, "the CPU has AMX, but no process"),
    ],
)
def test_of_two_faults_the_one_that_explains_the_other_is_told(change: dict[str, Any], start: str) -> None:
    """What to do about the second would not help."""
    (line,) = advice(replace(GOOD, **change))
    assert line.startswith(start)


def test_all_that_is_at_fault_is_named() -> None:
    """In one line for each kind, and nothing beside it."""
    variables = {"OMP_PLACES": "cores", "GOMP_CPU_AFFINITY": "0", "DNNL_DEFAULT_FPMATH_MODE": "any", "OMP_X": "1"}
    lines = advice(replace(GOOD, governors=("ondemand", "performance", "powersave"), variables=variables))
    assert [line.split(" can ")[0].split(": ")[0] for line in lines] == [
        "the frequency governor is ondemand and powersave",
        "DNNL_DEFAULT_FPMATH_MODE lets oneDNN compute fp32 with fewer bits",
        "GOMP_CPU_AFFINITY and OMP_PLACES",
    ]


@pytest.mark.parametrize(("cores", "advised"), [(1, "measure with more"), (2, "update it")])
def test_what_keeps_onnxruntime_from_amx_is_told_from_the_cores(cores: int, advised: str) -> None:
    """One core is what a newer one lacks; with two it is the version."""
    unused = replace(USES_AMX, onnxruntime_amx=False)
    lines = advice(replace(GOOD, machine={**AMX, "cores_allowed": cores}, inside=unused))
    (line,) = (line for line in lines if line.startswith("ONNX Runtime"))
    assert line.endswith(advised)


def test_what_the_system_does_not_tell_gives_no_advice() -> None:
    """No advice is made from ignorance."""
    ignorant = replace(GOOD, governors=None, load_average=None, transparent_hugepages=None, noise=None, peak=None)
    assert advice(ignorant) == ()
    assert advice(replace(ignorant, machine=AMX, inside=None, preloaded="libjemalloc.so")) == ()
    unsaid = replace(SEEN, onednn_isa=None, allocator=None)
    assert advice(replace(ignorant, machine=AMX, inside=unsaid, preloaded="libjemalloc.so")) == ()


def test_what_is_followed_is_not_advised() -> None:
    """AMX that is used, and an allocator that is in place, need no advice."""
    used = replace(USES_AMX, allocator="jemalloc")
    assert advice(replace(GOOD, machine=AMX, inside=used, preloaded="/usr/lib/libjemalloc.so.2")) == ()
    assert advice(replace(GOOD, variables={"ONEDNN_DEFAULT_FPMATH_MODE": "strict"})) == ()


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


def test_examine_reads_what_it_is_given_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without /proc and /sys every fact is null, the rest is measured, and no secret is shown: only
    variables that runtimes read are kept."""
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))
    environ = {"OMP_NUM_THREADS": "1", "AWS_SECRET": "s3cret", "PATH": "", "LD_PRELOAD": "libtcmalloc.so"}
    told: list[str] = []
    examined = findings.examine(
        root=tmp_path / "elsewhere", environ=environ, noise_seconds=0.0, effort=TINY, tell=told.append
    )
    assert examined.variables == {"OMP_NUM_THREADS": "1"}
    assert (examined.preloaded, examined.compiler) == ("libtcmalloc.so", None)
    assert examined.cache == str(tmp_path / "cache")
    assert examined.cache_bytes > 0
    assert (examined.governors, examined.load_average, examined.machine["isa"]) == (None, None, None)
    assert "s3cret" not in as_json(examined) + text(examined)
    assert examined.advice == advice(examined)
    assert examined.notes == ()
    # A canary that is disturbed while the peak is measured, and not afterwards, adds a line.
    assert [line.split()[0] for line in told[:3]] == ["reading", "measuring", "listening"]


def test_the_peak_of_a_shared_core_is_measured_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The canary beside the noise shows that the core was shared before: the doctor measures the peak again, says so,
    and has nothing to advise."""
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path))
    shared, calm = replace(PEAK, canary_seconds=9e-6), replace(PEAK, canary_seconds=5.6e-6)

    def measure_peak(*args: Any, calm_seconds: float | None, **options: Any) -> Peak:
        return calm if calm_seconds == 5.6e-6 else shared

    monkeypatch.setattr(peak, "measure_peak", measure_peak)
    monkeypatch.setattr(noise, "noise", lambda *args, **options: replace(QUIET, calm_seconds=5.6e-6))
    told: list[str] = []
    examined = findings.examine(noise_seconds=0.0, effort=TINY, tell=told.append)
    assert examined.peak == calm
    assert len(told) == 4
    assert told[-1] == "measuring the peak again: the core was shared when it was measured"
    assert not [line for line in examined.advice if "the peak" in line]


def test_the_peak_of_a_calm_core_is_measured_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And its canary is what the noise is held against; what a process sees, the peak and the noise have two minutes
    each, the noise beside the time that it listens."""
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path))
    calm = replace(PEAK, canary_seconds=5.6e-6)
    asked: list[tuple[str, float, object]] = []

    def note(name: str, answer: Any) -> Any:
        def measure(*_: object, limits: Limits, calm_seconds: float | None = None, **__: object) -> Any:
            asked.append((name, limits.seconds, calm_seconds))
            return answer

        return measure

    monkeypatch.setattr(findings.inside, "look_inside", note("inside", SEEN))
    monkeypatch.setattr(peak, "measure_peak", note("peak", calm))
    monkeypatch.setattr(noise, "noise", note("noise", replace(QUIET, calm_seconds=5.6e-6)))
    told: list[str] = []
    examined = findings.examine(noise_seconds=3.0, effort=TINY, tell=told.append)
    assert (examined.peak, len(told)) == (calm, 3)
    assert asked == [("inside", 120.0, None), ("peak", 120.0, None), ("noise", 123.0, 5.6e-6)]


def test_a_peak_that_cannot_be_measured_again_is_the_first_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a note, and the advice that it is too low."""
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path))
    shared = replace(PEAK, canary_seconds=9e-6)
    answers = [shared]

    def measure_peak(*_: Any, **__: Any) -> Peak:
        if not answers:
            raise WorkerError("the process was ended by SIGILL")
        return answers.pop()

    monkeypatch.setattr(peak, "measure_peak", measure_peak)
    monkeypatch.setattr(noise, "noise", lambda *_, **__: replace(QUIET, calm_seconds=5.6e-6))
    examined = findings.examine(noise_seconds=0.0, effort=TINY)
    assert examined.peak == shared
    assert examined.notes == ("the peak of one core could not be measured: the process was ended by SIGILL",)
    assert any("the peak was measured while the host shared the core" in line for line in examined.advice)


def test_examine_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On the machine at hand everything is measured in pinned processes, and the JSON holds it all."""
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path))
    examined = findings.examine(noise_seconds=0.0, effort=TINY)
    assert examined.machine == fingerprint.fingerprint()
    data = json.loads(as_json(examined))
    assert examined.noise is not None
    assert examined.peak is not None
    assert data["noise"]["pairs"] == examined.noise.pairs
    assert data["noise"]["ratio"]["low"] == examined.noise.ratio.low
    assert data["peak"]["ratio"] == pytest.approx(examined.peak.ratio)
    assert set(data["backends"]) >= {"torch", "onnxruntime"}
    if hasattr(os, "sched_getaffinity"):
        core = fingerprint.allowed_cores()[-1]
        assert (data["noise"]["core"], data["peak"]["core"], data["inside"]["cores"]) == (core, core, [core])


def test_the_last_core_of_many_is_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is the one that cases are measured on; the first ones serve the system's interrupts."""
    asked: list[object] = []

    def ended(*_: object, **options: Any) -> Any:
        asked.append(options.get("cores", options.get("core")))
        raise WorkerError("the process was ended by SIGILL")

    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(findings.machine, "allowed_cores", lambda *_: (2, 3, 5, 7))
    for module, name in ((findings.inside, "look_inside"), (findings.peak, "measure_peak"), (findings.noise, "noise")):
        monkeypatch.setattr(module, name, ended)
    findings.examine(noise_seconds=0.0, effort=TINY)
    assert asked == [(7,), (7,), 7]


def test_what_cannot_be_measured_is_null_with_a_note(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A child that dies takes one finding with it; the doctor says which and why, and tells the rest."""

    def dead(function: Any, *args: Any, **rest: Any) -> None:
        raise WorkerError("the process was ended by SIGILL")

    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "file"))
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr(child_process, "call", dead)
    examined = findings.examine(noise_seconds=0.0, effort=TINY)
    assert (examined.inside, examined.peak, examined.noise) == (None, None, None)
    inside, peak, noise = examined.notes
    assert inside == "what a process sees could not be measured: the process was ended by SIGILL"
    assert "the cache cannot be written" in peak
    assert noise == "noise could not be measured: the process was ended by SIGILL"
    assert json.loads(as_json(examined))["peak"] is None
    assert "notes         what a process sees could not be measured" in text(examined)


@pytest.mark.parametrize(
    ("ratio", "start"),
    [(0.9, "int8 arithmetic is hardly faster"), (1.49, "int8 arithmetic is hardly"), (1.5, "a layer that arithmetic")],
)
def test_the_ratio_of_the_peaks_is_explained(ratio: float, start: str) -> None:
    """A reader learns what int8 can gain at most, and where from."""
    assert ratio_meaning(ratio).startswith(start)


def test_text_labels_every_fact() -> None:
    """The text is exact: labels aligned, several values below each other, sizes and shares scaled."""
    assert text(replace(GOOD, advice=("do this",))) == "\n".join(
        (
            "CPU           AMD EPYC 9B14",
            "int8          VNNI",
            "16-bit floats bf16: mode bf16 runs here",
            "              fp16: this CPU has none",
            "ISA           avx2 avx512_vnni",
            "as used       torch: AVX512",
            "              oneDNN: Intel AVX-512 with Intel DL Boost",
            "              MKL: Intel AVX-512",
            "peak          fp32 98.7 GFLOP/s: torch.mm, 512 x 512; one thread on core 1",
            "              bf16 201 GFLOP/s: torch bf16 mm, 512 x 512",
            "              int8 437 GOP/s: torch._int_mm, 768 x 768",
            "              ratio 4.4: a layer that arithmetic limits gains at most 4.4 times from int8 by these "
            "kernels, one that memory limits at most 4 (a quarter of the bytes), one of many small calls "
            "less than either",
            "cores         2 allowed of 2, no quota",
            "governor      performance",
            "huge pages    madvise",
            "hypervisor    kvm",
            "memory        8.00 GB",
            "system        Linux 6.1, Python 3.11.7",
            "load          0.1",
            "noise         180 pairs of blocks of one loop against itself, on core 1, 5.0 s: "
            "ratio 1.0002 [0.9991, 1.0013], where 1 is true",
            "              95 % of pairs within 1.1 %; the slowest 5 % of single calls take 3.4 % more than the median",
            "              a 5 % gate can be decided: the interval must lie within 2.5 % of 1",
            "libraries     torch 2.13.0",
            "              openvino not installed",
            "variables     none is set",
            "allocator     system",
            "preloaded     nothing",
            "C++ compiler  /usr/bin/g++",
            "cache         /cache/qbench, 31.3 MB",
            "backends      onednn: usable",
            "              inductor: no g++",
            "hosts         avx2: usable",
            "              qemu:Haswell: qemu-x86_64 is not installed: `apt-get install qemu-user`",
            "advice        do this",
        )
    )


def test_text_says_what_the_host_did() -> None:
    """How much of the time something else used the core, and what the canary took then and on the core alone; nothing
    where it was not read."""
    shared = replace(QUIET, shared=0.42, calm_seconds=5.6e-6, shared_seconds=8.9e-6)
    told = text(replace(GOOD, noise=shared)).replace("µ", "u")
    assert "the host shared the core 42 % of the time: a canary of arithmetic took 8.90 us then, 5.60 us on the" in told
    alone = text(replace(GOOD, noise=replace(shared, shared=0.0, shared_seconds=None))).replace("µ", "u")
    assert "the host left the core alone all the time: a canary of arithmetic took 5.60 us throughout" in alone
    assert "canary" not in text(GOOD)


def test_text_says_what_is_otherwise_than_on_a_good_machine() -> None:
    """Each side of what can be one thing or another, in its own words."""
    denied = replace(SEEN, torch_isa=None, mkl_isa=None, amx_granted=False, onnxruntime_amx=False)
    fast = replace(PEAK, core=None, bf16_size=None, fp32_flops_per_second=99.94e9, int8_ops_per_second=99.95e9)
    machine = {**GOOD.machine, "cpu_quota": 1.5, "memory_bytes": None, "isa": None}
    examined = replace(
        GOOD,
        machine=machine,
        inside=denied,
        peak=fast,
        noise=replace(QUIET, core=None, decidable=False, shared=0.4),
        compiler=None,
        variables={"OMP_X": "1"},
        preloaded="lib.so",
    )
    told = text(examined).splitlines()
    assert told[5:8] == [
        "as used       oneDNN: Intel AVX-512 with Intel DL Boost",
        "              AMX: denied",
        "              ONNX Runtime: without AMX",
    ]
    lines = [
        "ISA           not told by this system",
        "peak          fp32 99.9 GFLOP/s: torch.mm, 512 x 512; one thread, not pinned",
        "              int8 100 GOP/s: torch._int_mm, 768 x 768",
        "cores         2 allowed of 2, a quota of 1.5",
        "memory        not told by this system",
        "variables     OMP_X=1",
        "preloaded     lib.so",
        "C++ compiler  none",
        "advice        none: nothing here stands in the way of a good measurement",
    ]
    assert [line for line in told if line in lines] == lines
    joined = "\n".join(told)
    assert "loop against itself, not pinned, 5.0 s" in joined
    assert "a 5 % gate cannot be decided: the interval" in joined
    assert not any(word in joined for word in ("canary", "bf16 201"))
    shown = text(replace(GOOD, inside=USES_AMX))
    assert "AMX: granted\n              ONNX Runtime: with AMX" in shown


def test_text_says_what_is_not_told_and_fits_the_width() -> None:
    """What could not be read is said in words, and no line is longer than the terminal."""
    shown = text(replace(GOOD, governors=None, load_average=None, noise=None, peak=None, inside=None), width=60)
    for label in ("governor", "load", "noise", "peak", "as used", "allocator"):
        assert f"{label:<13} not told by this system" in shown
    assert max(map(len, shown.splitlines())) <= 60


def test_words_are_not_broken_and_lines_fill_at_least_40_columns() -> None:
    """A path longer than the line stays whole, and so does a name with hyphens: who copies it gets all of it."""
    path, name = f"/cache/{'a' * 50}", "a-name-with-hyphens-that-is-wider"
    shown = text(replace(GOOD, compiler=path, preloaded=f"{'b' * 20} {name}", advice=("a " * 40,)), width=40)
    assert any(line.endswith(path) for line in shown.splitlines())
    assert f"\n{'':<14}{name}\n" in shown
    advice = [line for line in text(replace(GOOD, advice=("a " * 40,)), width=1).splitlines() if line.endswith("a a")]
    assert max(map(len, advice)) == 39


@pytest.mark.parametrize(("giga", "shown"), [(98.75, "98.8"), (98.65, "98.7"), (437.5, "438"), (438.5, "438")])
def test_a_rate_is_rounded_as_it_is(giga: float, shown: str) -> None:
    """One digit behind the point below 100, none above."""
    assert f"fp32 {shown} GFLOP/s" in text(replace(GOOD, peak=replace(PEAK, fp32_flops_per_second=giga * 1e9)))


def test_json_is_indented_and_keeps_letters() -> None:
    """A person reads it, too."""
    lines = as_json(replace(GOOD, machine={**GOOD.machine, "cpu": "CPU µ"})).splitlines()
    assert lines[:3] == ["{", '  "machine": {', '    "cpu": "CPU µ",']


@pytest.mark.parametrize("width", [1, 20, 39, 40])
def test_text_is_no_narrower_than_40_columns(width: int) -> None:
    """In a narrower terminal the lines are those of one with 40; a column of single words reads no better."""
    shown = text(GOOD, width=width)
    assert shown == text(GOOD, width=40)
    assert 38 <= max(map(len, shown.splitlines())) <= 40 or any(" " not in line[14:] for line in shown.splitlines())


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.9991, 1.0013, ""),
        (1.0, 1.01, ""),
        (0.99, 1.0, ""),
        (1.0102, 1.02, "at least 1.02 %"),
        (0.97, 0.99, "at least 1.00 %"),
        (None, 0.99, ""),
        (1.01, None, ""),
        (None, None, ""),
    ],
)
def test_an_interval_that_leaves_1_is_commented(low: float | None, high: float | None, said: str) -> None:
    """Two equals that differ beyond chance: what is read here is off by so much; without limits nothing is said."""
    noise = replace(QUIET, ratio=Interval(value=high or low or 1.0, low=low, high=high))
    lines = text(replace(GOOD, noise=noise))
    assert ("1 lies outside" in lines) == bool(said)
    assert said in lines
