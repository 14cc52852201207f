"""qbench.machine.fingerprint: what is read of a machine, fed from fixture trees of other machines."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from file_trees import write_tree

from qbench.machine import fingerprint

X86 = (
    "processor\t: {n}\nmodel name\t: AMD EPYC 9B14\n"
    "flags\t\t: fpu sse4_2 avx avx2 fma avx512f avx512_vnni hypervisor {more}\n\n"
)
ARM = "processor\t: {n}\nFeatures\t: fp asimd asimddp i8mm sve\nCPU implementer\t: 0x41\nCPU part\t: {part}\n\n"


def test_isa_is_what_every_core_has_in_known_words_sorted(tmp_path: Path) -> None:
    """The usable instruction sets are those of all cores; flags that do not matter to int8 are left out."""
    root = write_tree(tmp_path, {"proc/cpuinfo": X86.format(n=0, more="amx_int8") + X86.format(n=1, more="")})
    assert fingerprint.isa(root) == ("avx", "avx2", "avx512_vnni", "avx512f", "fma", "sse4_2")


@pytest.mark.parametrize("name", fingerprint.HIDING_VARIABLES)
def test_a_switch_makes_it_another_machine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What hides instructions from a runtime decides its answers and its speed: the fingerprint holds it."""
    for other in fingerprint.HIDING_VARIABLES:
        monkeypatch.delenv(other, raising=False)
    before = fingerprint.fingerprint()
    monkeypatch.setenv(name, "AVX2")
    assert fingerprint.fingerprint()["isa_switches"] == [f"{name}=AVX2"]
    assert fingerprint.comparable(before, fingerprint.fingerprint()) == "isa_switches"
    old = {key: value for key, value in before.items() if key != "isa_switches"}  # of a run before there was the field
    assert fingerprint.comparable(old, before) is None
    monkeypatch.setenv(name, "")
    assert fingerprint.comparable(before, fingerprint.fingerprint()) is None


@pytest.mark.parametrize(
    ("environ", "left"),
    [
        ({}, {"avx512_vnni", "amx_int8"}),
        ({"ONEDNN_MAX_CPU_ISA": "DEFAULT"}, {"avx512_vnni", "amx_int8"}),
        ({"ONEDNN_MAX_CPU_ISA": "AVX2"}, set()),
        ({"DNNL_MAX_CPU_ISA": "avx512_core"}, set()),
        ({"ONEDNN_MAX_CPU_ISA": "AVX2_VNNI"}, set()),
        ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI", "DNNL_MAX_CPU_ISA": "AVX2"}, {"avx512_vnni"}),
        ({"ONEDNN_MAX_CPU_ISA": "AVX10_1_512"}, {"avx512_vnni"}),
        ({"OV_CPU_MAX_ISA": "AVX2", "FBGEMM_ENABLE_INSTRUCTIONS": "AVX2"}, {"avx512_vnni", "amx_int8"}),
    ],
)
def test_onednns_switch_hides_what_adds_in_32_bits(tmp_path: Path, environ: dict[str, str], left: set[str]) -> None:
    """OpenVINO's kernels follow oneDNN's switch; OV_CPU_MAX_ISA alone changes none of them."""
    root = write_tree(tmp_path, {"proc/cpuinfo": X86.format(n=0, more="amx_int8")})
    assert set(fingerprint.onednn_isa(root, environ)) & set(fingerprint.ADD_IN_32_BITS) == left
    assert "avx2" in fingerprint.onednn_isa(root, environ)


def test_isa_of_arm_reads_features(tmp_path: Path) -> None:
    """ARM writes `Features`, not `flags`."""
    root = write_tree(tmp_path, {"proc/cpuinfo": ARM.format(n=0, part="0xd0c")})
    assert fingerprint.isa(root) == ("asimd", "asimddp", "i8mm", "sve")


def test_a_machine_that_tells_nothing_is_not_guessed(tmp_path: Path) -> None:
    """Without /proc/cpuinfo there is no name and no instruction set."""
    assert fingerprint.isa(tmp_path) == ()
    assert fingerprint.cpu_model(tmp_path) is None


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("0xd0c", "0xd0c"), "Neoverse-N1"),
        (("0xd05", "0xd0b"), "Cortex-A55 + Cortex-A76"),
        (("0xfff",), "ARM implementer 0x41 part 0xfff"),
    ],
)
def test_arm_cores_get_their_names(tmp_path: Path, parts: tuple[str, ...], name: str) -> None:
    """ARM gives numbers: known ones are named, every kind of core once, an unknown one shown as it is."""
    cores = "".join(ARM.format(n=n, part=part) for n, part in enumerate(parts))
    assert fingerprint.cpu_model(write_tree(tmp_path, {"proc/cpuinfo": cores})) == name


def test_what_cannot_be_read_is_null_and_never_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without /proc and /sys gives None for every fact, and still a fingerprint that is JSON."""
    for name in fingerprint.HIDING_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    facts = fingerprint.fingerprint(tmp_path)
    unknown = {"cpu", "isa", "isa_switches", "cpu_quota", "hypervisor", "memory_bytes"}
    assert {key for key, value in facts.items() if value is None} == unknown
    assert json.loads(json.dumps(facts)) == facts
    assert fingerprint.governors(tmp_path) is None
    assert fingerprint.transparent_hugepages(tmp_path) is None
    assert fingerprint.load_average(tmp_path) is None


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"proc/self/cgroup": "0::/\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/cpu.max": "50000 100000\n",
                "sys/fs/cgroup/a/b/cpu.max": "200000 100000\n",
            },
            0.5,
        ),
        ({"proc/self/cgroup": "0::/../other\n", "sys/fs/cgroup/cpu.max": "300000 100000\n"}, 3.0),
        (
            {
                "proc/self/cgroup": "0::/../other\n",
                "sys/fs/cgroup/cpu.max": "300000 100000\n",
                "sys/fs/other/cpu.max": "50000 100000\n",
            },
            3.0,
        ),
        (
            {
                "proc/self/cgroup": "5:memory:/x\n4:cpu,cpuacct:/docker/1\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "250000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            2.5,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            None,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000\n"}, 1.5),
        ({"proc/self/cgroup": "4:cpu:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n"}, 0.5),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/a\n",
                "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "300000\n",
                "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "200000\n",
            },
            1.5,
        ),
        (
            {
                "proc/self/cgroup": "4:cpuacct:/a\n5:cpuset:/a\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "300000\n",
                "sys/fs/cgroup/cpuacct/a/cpu.cfs_quota_us": "300000\n",
                "sys/fs/cgroup/cpu.max": "150000 100000\n",
            },
            None,
        ),
        ({"proc/self/cgroup": "4:cpu:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "0\n"}, None),
    ],
    ids=[
        "no limit file",
        "max",
        "v2",
        "the tightest level",
        "outside the namespace",
        "outside, where a file of that path lies beside the mount",
        "v1 in a container",
        "v1 none",
        "v2 without a period",
        "v1 without a period",
        "v1 below cpu alone",
        "v1 of other controllers",
        "v1 none at zero",
    ],
)
def test_quota_is_the_tightest_of_all_levels(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    """A cgroup's limit holds for all below it, so the tightest of v1 or v2 counts; no limit is None."""
    assert fingerprint.cpu_quota(write_tree(tmp_path, files)) == quota


@pytest.mark.parametrize(
    ("limit", "cores"), [("150000", (4,)), ("50000", (4,)), ("200000", (4, 7)), ("max", (4, 7, 9))]
)
def test_allowed_cores_are_the_affinity_cut_to_whole_cores_of_the_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, cores: tuple[int, ...]
) -> None:
    """1.5 cores allow one busy thread, and there is always at least one."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {9, 4, 7}, raising=False)
    root = write_tree(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": f"{limit} 100000\n"})
    assert fingerprint.allowed_cores(root) == cores


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"proc/cpuinfo": "flags\t: fpu avx2\n"}, "none"),
        ({"proc/cpuinfo": "flags\t: fpu avx2 hypervisor\n"}, "unnamed"),
        ({"proc/cpuinfo": "flags\t: fpu hypervisor\n", "sys/hypervisor/type": "xen\n"}, "xen"),
        ({"proc/cpuinfo": "flags\t: fpu hypervisor\n", "sys/class/dmi/id/sys_vendor": "QEMU\n"}, "kvm"),
        ({"proc/cpuinfo": "Features\t: asimd\n", "sys/class/dmi/id/sys_vendor": "Amazon EC2\n"}, "nitro"),
        (
            {
                "proc/cpuinfo": "Features\t: asimd\n",
                "sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
                "sys/class/dmi/id/product_name": "c7g.metal\n",
            },
            "none",
        ),
        ({"proc/cpuinfo": "Features\t: asimd\n"}, None),
        ({"proc/cpuinfo": "flags\t: fpu avx2\n", "sys/class/dmi/id/sys_vendor": "QEMU\n"}, "none"),
        ({"proc/cpuinfo": "flags\t: fpu hypervisor\n", "sys/class/dmi/id/product_name": "KVM\n"}, "kvm"),
        (
            {
                "proc/cpuinfo": "flags\t: fpu hypervisor\n",
                "sys/class/dmi/id/sys_vendor": "Microsoft Corporation\n",
                "sys/class/dmi/id/product_name": "Virtual Machine\n",
            },
            "hyper-v",
        ),
    ],
)
def test_hypervisor_is_named_where_something_tells(tmp_path: Path, files: dict[str, str], name: str | None) -> None:
    """The CPU's flag says whether there is one, /sys says which; ARM without DMI tells nothing: None."""
    assert fingerprint.hypervisor(write_tree(tmp_path, files)) == name


def test_governor_hugepages_load_and_memory(tmp_path: Path) -> None:
    """The settings that decide steadiness are read as the kernel shows them; every governor once."""
    cpus = "sys/devices/system/cpu"
    root = write_tree(
        tmp_path,
        {
            f"{cpus}/cpu0/cpufreq/scaling_governor": "powersave\n",
            f"{cpus}/cpu1/cpufreq/scaling_governor": "performance\n",
            f"{cpus}/cpu10/cpufreq/scaling_governor": "powersave\n",
            f"{cpus}/cpu11/cpufreq/scaling_governor": "\n",  # a core that is off
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
            "proc/loadavg": "1.25 0.18 0.10 1/85 6130\n",
            "proc/meminfo": "MemFree: 1 kB\nMemTotal:       2048 kB\n",
        },
    )
    assert fingerprint.governors(root) == ("performance", "powersave")
    assert fingerprint.transparent_hugepages(root) == "madvise"
    assert fingerprint.load_average(root) == 1.25
    assert fingerprint.memory_bytes(root) == 2048 * 1024


@pytest.mark.parametrize(("cores", "pinned"), [({3}, 3), ({0, 1}, None)])
def test_a_process_is_pinned_where_it_may_run_on_one_core_only(
    monkeypatch: pytest.MonkeyPatch, cores: set[int], pinned: int | None
) -> None:
    """Several allowed cores are no pinning."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: cores, raising=False)
    assert fingerprint.pinned_core() == pinned


def test_without_affinity_nothing_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS tells no affinity: null, and all cores count as allowed."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert fingerprint.pinned_core() is None
    assert fingerprint.allowed_cores(Path("/no such root")) == tuple(range(os.cpu_count() or 1))


def test_comparable_names_the_first_field_that_differs() -> None:
    """Equal machines may be compared, also when something is unknown in both; else the field is named."""
    here = fingerprint.fingerprint()
    assert fingerprint.comparable(here, dict(here)) is None
    assert fingerprint.comparable(here, {**here, "kernel": "other", "python": "3.99"}) is None
    assert fingerprint.comparable(here, {**here, "isa": ["avx2"]}) == "isa"
    assert fingerprint.comparable(here, {**here, "cores_allowed": -1, "cpu": "other"}) == "cpu"
    assert fingerprint.comparable({**here, "hypervisor": None}, {**here, "hypervisor": "kvm"}) == "hypervisor"
    assert fingerprint.comparable({}, {}) is None


def test_a_fingerprint_read_back_from_json_is_comparable_with_itself() -> None:
    """What a run stored must equal what the same machine gives again."""
    assert fingerprint.comparable(fingerprint.fingerprint(), json.loads(json.dumps(fingerprint.fingerprint()))) is None


def test_versions_are_null_for_what_is_not_installed() -> None:
    """A distribution that is not there has no version, and that is no error."""
    versions = fingerprint.versions(("pytest", "no-such-distribution"))
    assert versions == {"pytest": pytest.__version__, "no-such-distribution": None}


def test_where_no_file_tells_the_load_the_system_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS has no /proc; Windows has neither. Of another machine's files nothing is asked here."""
    monkeypatch.setattr(fingerprint, "_text", lambda path: None)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.75, 0.5, 0.25), raising=False)
    assert fingerprint.load_average() == 0.75
    assert fingerprint.load_average(tmp_path) is None
    monkeypatch.delattr(os, "getloadavg")
    assert fingerprint.load_average() is None


def test_what_else_cpuinfo_tells_is_no_core(tmp_path: Path) -> None:
    """A Raspberry Pi ends it with the board, which has no instruction sets."""
    board = "Hardware\t: BCM2835\nRevision\t: c03111\n"
    root = write_tree(tmp_path, {"proc/cpuinfo": ARM.format(n=0, part="0xd08") + board})
    assert fingerprint.isa(root) == ("asimd", "asimddp", "i8mm", "sve")
    assert fingerprint.cpu_model(root) == "Cortex-A72"


def test_the_affinity_is_that_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which the system calls 0; one that tells neither it nor a number of cores has one."""
    affinities = {0: {3}, 1: {0, 1}}
    monkeypatch.setattr(os, "sched_getaffinity", affinities.__getitem__, raising=False)
    assert (fingerprint.allowed_cores(tmp_path), fingerprint.pinned_core()) == ((3,), 3)
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert fingerprint.allowed_cores(tmp_path) == (0,)
