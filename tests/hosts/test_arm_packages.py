"""Debian's packages and wheels for ARM: what is asked of apt-get and pip, and what is kept of what they give."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from qbench.errors import UsageError
from qbench.hosts import arm_packages
from qbench.hosts.arm_packages import fetch, list_constraints, list_platforms

VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
LIBC = "libc6_2.36-9+deb12u14_arm64.deb"


class Programs:
    """apt-get, dpkg-deb and pip as they behave; ``failing`` is a word of the command that fails, ``words`` what it
    then says."""

    def __init__(self):
        self.commands, self.options, self.configuration = [], [], ""
        self.failing, self.words, self.libc = "", "", LIBC

    def run(self, command, **options):
        """Does what the command asks, in its folders alone."""
        self.commands.append(command)
        self.options.append(options)
        if self.failing == "nowhere":
            raise FileNotFoundError(command[0])
        if self.failing == "late":
            raise subprocess.TimeoutExpired(command, options["timeout"])
        if self.failing and self.failing in command:
            return subprocess.CompletedProcess(command, 100, stdout=self.words)
        if "--download-only" in command:
            self.download(Path(command[command.index("-c") + 1]))
        elif command[0] == "dpkg-deb":
            self.unpack(Path(command[-1]))
        elif "pip" in command:
            target = Path(command[command.index("--target") + 1])
            target.mkdir()
            (target / "numpy.py").write_text("")
        return subprocess.CompletedProcess(command, 0, stdout="")

    def download(self, configuration):
        """Puts a package where the configuration says."""
        self.configuration = configuration.read_text()
        folder = next(line for line in self.configuration.splitlines() if line.startswith("Dir::Cache"))
        (Path(folder.split('"')[1]) / "archives" / self.libc).touch()
        status = next(line for line in self.configuration.splitlines() if line.startswith("Dir::State::status"))
        assert Path(status.split('"')[1]).read_text() == "", "nothing is installed there"

    def unpack(self, root):
        """A system of Debian's: links are absolute, or lead out of it, or to nothing."""
        libraries, python = root / "lib" / "aarch64-linux-gnu", root / "usr" / "lib" / VERSION
        for folder in (libraries, root / "usr" / "bin", python / "json"):
            folder.mkdir(parents=True, exist_ok=True)
        (libraries / "libc.so.6").write_text("libc")
        (libraries / "ld-linux-aarch64.so.1").write_text("loader")
        (root / "lib" / "ld-linux-aarch64.so.1").symlink_to("/lib/aarch64-linux-gnu/ld-linux-aarch64.so.1")
        (libraries / "libm.so").symlink_to("libc.so.6")
        (libraries / "libout.so").symlink_to("/../../../../../../../../../../etc/passwd")
        (libraries / "libgone.so").symlink_to("gone")
        (root / "usr" / "bin" / VERSION).write_text("interpreter")
        (python / "json" / "decoder.py").write_text("")
        (python / "LICENSE.txt").write_text("")


@pytest.fixture
def programs(monkeypatch):
    """They are run in place of the real ones."""
    programs = Programs()
    monkeypatch.setattr(arm_packages.subprocess, "run", programs.run)
    return programs


def test_what_python_opens_is_kept_as_plain_files(tmp_path, programs):
    """Links are those of the unpacked system: one that leads out of it, or to nothing, is not followed."""
    steps = []
    facts = fetch(tmp_path, {"numpy": "2.4.6"}, steps.append)
    files = {path.relative_to(tmp_path).as_posix(): path for path in tmp_path.rglob("*") if not path.is_dir()}
    libraries = "system/lib/aarch64-linux-gnu"
    assert set(files) == {
        *(f"{libraries}/{name}" for name in ("libc.so.6", "libm.so", "ld-linux-aarch64.so.1")),
        *("system/lib/ld-linux-aarch64.so.1", "system/usr/bin/python3", "packages/numpy.py"),
        f"system/usr/lib/{VERSION}/json/decoder.py",
    }
    assert not any(path.is_symlink() for path in files.values())
    assert files["system/lib/ld-linux-aarch64.so.1"].read_text() == "loader"
    assert facts == {"libc6": "2.36-9+deb12u14", "numpy": "2.4.6"}
    assert steps == [f"Debian's packages of {VERSION} for arm64", "the wheels for aarch64 of numpy 2.4.6", "bytecode"]
    assert programs.commands[-1][-4:] == ["compileall", "-q", "-q", str(tmp_path)]
    assert not any(options["check"] for options in programs.options), "an exit code is told in words, or not at all"


def test_this_system_stays_as_it_is(tmp_path, programs):
    """apt-get has lists, a state and a cache of its own and runs no hook; nothing is installed."""
    fetch(tmp_path / "folder", {"numpy": "2.4.6"}, lambda step: None)
    asked = [command for command in programs.commands if command[0] == "apt-get"]
    assert all(command[1] == "-c" for command in asked)
    assert ["update" in command for command in asked] == [True, False]
    places = [line.split('"')[1] for line in programs.configuration.splitlines() if line.startswith("Dir::")]
    assert len(places) == 3
    assert not any(place.startswith(("/var", "/etc")) for place in places)
    assert "#clear APT::Update::Post-Invoke;" in programs.configuration


def test_wheels_have_the_versions_of_here_and_run_with_debians_glibc(tmp_path, programs):
    """Packages that others require, too; no wheel for a newer glibc is asked for, and none is built from source."""
    fetch(tmp_path, {"numpy": "2.4.6"}, lambda step: None)
    pip = next(command for command in programs.commands if "pip" in command)
    assert "numpy==2.4.6" in pip
    assert pip[pip.index("--only-binary") + 1] == ":all:"
    tags = [value for option, value in itertools.pairwise(pip) if option == "--platform"]
    assert tags == list_platforms(36)
    assert (tags[0], tags[-1]) == ("manylinux_2_36_aarch64", "manylinux2014_aarch64")
    constraints = list(list_constraints())
    assert any(line.startswith("protobuf==") for line in constraints)
    assert len({line.split("==")[0] for line in constraints}) == len(constraints)


@pytest.mark.parametrize(
    ("failing", "words", "message"),
    [
        (
            "update",
            "E: no network",
            "lists of Debian's packages for arm64 cannot be fetched by apt-get: E: no network",
        ),
        (
            "install",
            f"Reading\nE: Unable to locate package {VERSION}-minimal",
            "which must be of the version of Python",
        ),
        ("-x", "dpkg-deb: error: no space", "libc6.*by dpkg-deb: dpkg-deb: error: no space"),
        ("pip", "WARNING: odd\nERROR: No matching distribution", r"wheels for aarch64 .*: ERROR: No matching"),
        ("nowhere", "", "apt-get is not installed here; it takes Debian's apt-get and dpkg"),
        ("late", "", "apt-get took more than 3600 s and was stopped"),
        ("update", "", "by apt-get: exit code 100$"),
        ("update", "\n \nodd\n\nend\n", "by apt-get: odd; end$"),
        ("update", "\n".join(f"E: {number}" for number in range(4)), "by apt-get: E: 0; E: 1; E: 2$"),
    ],
)
def test_what_cannot_be_had_is_told_in_the_words_of_the_program(tmp_path, programs, failing, words, message):
    """Which step it was, and which program says what."""
    programs.failing, programs.words = failing, words
    with pytest.raises(UsageError, match=message):
        fetch(tmp_path, {"numpy": "2.4.6"}, lambda step: None)


def test_wheels_for_older_glibcs_down_to_that_of_manylinux2014_are_taken():
    """The newest first."""
    tags = ["manylinux_2_18_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"]
    assert list_platforms(18) == tags
    assert list_platforms(17) == tags[1:]


def test_a_glibc_of_another_name_is_not_guessed(tmp_path, programs):
    """Which wheels run with it is not known."""
    programs.libc = "libc6_3.1-1_arm64.deb"
    with pytest.raises(UsageError, match="has the version 3.1-1, which is none of glibc 2"):
        fetch(tmp_path, {"numpy": "2.4.6"}, lambda step: None)


@pytest.mark.parametrize(("links", "is_copied"), [(20, True), (21, False)])
def test_a_chain_of_twenty_links_is_followed(tmp_path, links, is_copied):
    """None is longer, and a link to itself must end."""
    (tmp_path / "0").write_text("file")
    for number in range(links):
        (tmp_path / f"{number + 1}").symlink_to(f"{number}")
    arm_packages._copy(tmp_path, tmp_path / f"{links}", tmp_path / "folder" / "copy")
    assert (tmp_path / "folder" / "copy").exists() is is_copied
