"""Emulated ARM CPUs: which engines answer there, what their Python is given, what stands in the way."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from qbench import registry
from qbench.cache import store
from qbench.errors import CaseSkipped, UsageError
from qbench.hosts import arm_environment
from qbench.hosts.arm_environment import ArmEnvironment, list_versions
from qbench.hosts.emulated_arm import EmulatedArm

IDENTITY = json.dumps({"cpu": "MIDR_EL1 0x410fd034", "isa": ["asimd"], "cpuinfo": "processor\t: 0\n"})
# Lists CPUs, says what the CPU is, says which versions there are; else it shows the command that it is to run.
QEMU = f"""#!/bin/sh
case "$*" in
  "-cpu help") printf 'Available CPUs:\\n  cortex-a53\\n  max\\n' ;;
  --version) echo "qemu-aarch64 version 7.2.22 (Debian)" ;;
  *arm_identity.py) printf '%s' '{IDENTITY}' ;;
  *importlib.metadata*) while read line; do echo "$line"; done < "$VERSIONS" ;;
esac
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """qemu-aarch64 is installed, and an environment of one file lies in a cache, which is this session's."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "qemu-aarch64"
    program.write_text(QEMU)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setenv("VERSIONS", str(tmp_path / "versions"))
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")

    def fetch(folder, versions, tell):
        (folder / "system" / "usr" / "bin").mkdir(parents=True)
        (folder / "system" / "usr" / "bin" / "python3").write_text("")
        (folder / "packages").mkdir()
        return {"libc6": "2.36-9"}

    monkeypatch.setattr(arm_environment.arm_packages, "fetch", fetch)
    write_versions(tmp_path, {})
    return tmp_path


def write_versions(folder: Path, other: dict[str, str]) -> None:
    """What the emulated Python says: the versions of here, but for some."""
    versions = {"Python": "3.11.2", **list_versions(), **other}
    (folder / "versions").write_text("".join(f"{name} {version}\n" for name, version in versions.items()))


def make() -> ArmEnvironment:
    """The environment, in the cache of the test."""
    return arm_environment.make_environment(store.open_cache(), lambda step: None)


def test_only_engines_with_a_wheel_for_arm_answer():
    """Those of torch say why not, and so does a backend of a package."""
    host = EmulatedArm("max")
    assert [host.why_not(backend) for backend in ("onnxruntime", "openvino", "fake")] == [None] * 3
    for backend in ("torch", "fbgemm", "x86", "onednn", "qnnpack", "inductor"):
        assert "torch's wheel for ARM is a build for CUDA" in str(host.why_not(backend))
    assert "not mine" in str(host.why_not("mine"))


def test_without_the_environment_its_cases_are_skipped_with_the_command(installed):
    """A run fetches nothing: the reason names what does."""
    host = EmulatedArm("max")
    assert "`qbench doctor --prepare qemu:arm64-max` fetches them" in str(host.missing())
    with pytest.raises(CaseSkipped, match="--prepare qemu:arm64-max"):
        host.start_python(installed)
    make()
    assert host.missing() is None
    assert "did you mean qemu:arm64-cortex-a53?" in str(EmulatedArm("cortex-a52").missing())


def test_python_there_finds_qbench_and_no_other_package_of_this_machine(installed):
    """Packages of x86 would be imported in place of what is missing; /proc/cpuinfo is that of the CPU."""
    environment = make()
    folder = installed / "folder"
    folder.mkdir()
    python = EmulatedArm("max").start_python(folder)
    packages, modules = python.variables["PYTHONPATH"].split(os.pathsep)
    assert packages == str(environment.packages)
    assert [path.name for path in Path(modules).iterdir()] == ["qbench"]
    assert (Path(modules) / "qbench" / "registry.py").is_file()
    assert python.command[1:3] == ("-cpu", "max,sme=off")
    root = Path(python.command[python.command.index("-L") + 1])
    assert (root / "proc" / "cpuinfo").read_text() == "processor\t: 0\n"
    assert (root / "usr" / "bin" / "python3").is_file()
    assert python.command[-2:] == (str(environment.python), "-S")


def test_it_says_what_it_is(installed):
    """The CPU as qemu was asked for it and as it says itself, and what the answers may hang on besides."""
    make()
    said = EmulatedArm("cortex-a53").describe()
    assert said == "cortex-a53 (MIDR_EL1 0x410fd034), asimd; qemu 7.2.22, libc6 2.36-9"
    assert EmulatedArm("max").describe().startswith("max,sme=off (")


def test_versions_are_read_back_and_must_be_those_of_here(installed):
    """By the emulated Python; another version is refused, and so is a CPU that is not there, before anything is
    fetched."""
    host: EmulatedArm = registry.load("host", "qemu:arm64-max")
    with pytest.raises(UsageError, match="knows no CPU"):
        EmulatedArm("z80").prepare(store.open_cache(), pytest.fail)
    steps = []
    told = host.prepare(store.open_cache(), steps.append)
    assert steps == ["versions, as read on qemu:arm64-max"]
    assert told.startswith("qemu:arm64-max: Python 3.11.2, numpy ")
    assert f"onnxruntime {list_versions()['onnxruntime']}" in told
    with (installed / "versions").open("a") as said:
        said.write("what a package prints\nwhile\n")
    assert host.prepare(store.open_cache(), lambda step: None) == told
    write_versions(installed, {"onnxruntime": "0.1"})
    with pytest.raises(UsageError, match="has onnxruntime 0.1 and this machine"):
        host.prepare(store.open_cache(), lambda step: None)


def test_what_does_not_import_there_is_told(installed):
    """With the last words of the emulated Python, or its exit code where it has none."""
    program = installed / "bin" / "qemu-aarch64"
    program.write_text(QEMU.replace('while read line; do echo "$line"; done < "$VERSIONS"', "echo oh >&2; exit 1"))
    with pytest.raises(UsageError, match="qemu:arm64-max does not import numpy, .*: oh"):
        EmulatedArm("max").prepare(store.open_cache(), lambda step: None)
    program.write_text(QEMU.replace('while read line; do echo "$line"; done < "$VERSIONS"', "exit 3"))
    with pytest.raises(UsageError, match="does not import numpy, .*: exit code 3$"):
        EmulatedArm("max").prepare(store.open_cache(), lambda step: None)


def test_imports_have_ten_minutes(installed, monkeypatch):
    """An emulated CPU takes a while; one that hangs is told."""
    run = subprocess.run

    def hang(command, **options):
        if "-c" in command:
            raise subprocess.TimeoutExpired(command, options["timeout"])
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", hang)
    with pytest.raises(UsageError, match="qemu:arm64-max does not import numpy, .*: it took more than 600 s$"):
        EmulatedArm("max").prepare(store.open_cache(), lambda step: None)
