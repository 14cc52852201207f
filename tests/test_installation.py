"""How this qbench was installed, and what installs it again: never the package of that name on the package index."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import qbench
from qbench import installation
from qbench.machine import fingerprint

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# `pip install qbench`, with options before it and an extra or a version after it.
FOREIGN = re.compile(r"pip3? (?:install|download|wheel)(?: +-\S+)* +['\"]?qbench(?![\w./-])")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """qbench as an installed package, whose metadata lie in this folder."""
    folder = tmp_path / f"qbench_int8-{qbench.__version__}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {installation.NAME}\nVersion: 0.2\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(qbench, "__file__", str(tmp_path / "qbench" / "__init__.py"))
    return folder


def test_no_file_installs_the_package_of_that_name() -> None:
    """On the index `qbench` is another project's: no page, workflow, message or comment may bring it onto a machine."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    texts = [ROOT / name for name in listed.stdout.split("\0") if Path(name).suffix not in (".npz", ".png")]
    wrong = []
    for file in texts:
        if file.is_file() and file != Path(__file__):
            text = file.read_bytes().decode("utf-8", errors="replace")
            wrong += [f"{file.relative_to(ROOT)}: {match[0]}" for match in FOREIGN.finditer(text)]
    assert wrong == []


@pytest.mark.parametrize(
    ("command", "foreign"),
    [
        ("pip install qbench", True),
        ("pip install --quiet qbench   # and more", True),
        ("pip install 'qbench[zoo]'", True),
        ("pip install qbench==0.2", True),
        ("pip install qbench-int8", False),
        ("pip install -e '.[zoo]'", False),
        ("pip install ./qbench", False),
        ("pip install qbench/", False),
    ],
)
def test_the_name_of_the_other_project_is_recognized(command: str, foreign: bool) -> None:
    """Whatever follows it; a longer name and a path are others."""
    assert bool(FOREIGN.search(command)) == foreign


def test_the_distribution_has_a_name_of_its_own() -> None:
    """The one that qbench asks its metadata by; the import and the command stay `qbench`."""
    assert PROJECT["name"] == installation.NAME != "qbench"
    assert PROJECT["scripts"] == {"qbench": "qbench.__main__:main"}


def test_the_version_stands_once() -> None:
    """In the package, from where the build reads it; it is that of the newest heading of the changelog, and one under
    development as long as that has no date."""
    assert "version" in PROJECT["dynamic"]
    newest = re.search(r"^## (\S+) \((.*)\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest
    assert qbench.__version__ == newest[1] + (".dev0" if newest[2] == "unreleased" else "")


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_a_package_holds_every_file_of_qbench(kind: str, tmp_path: Path) -> None:
    """Templates, pages and traces, too; and no test, which could not run there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    files = {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}
    for name in files & {"pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"} | qbench_files(files):
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "source" / name)
    build = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(tmp_path)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", build], cwd=tmp_path / "source", capture_output=True, text=True, check=True
    )
    packed = tmp_path / done.stdout.splitlines()[-1]
    if kind == "wheel":
        names = set(zipfile.ZipFile(packed).namelist())
    else:
        with tarfile.open(packed) as archive:
            names = {name.partition("/")[2] for name in archive.getnames()}
    assert qbench_files(files) - names == set()
    assert [name for name in names if name.startswith("tests")] == []


def qbench_files(files: set[str]) -> set[str]:
    """Those of the package."""
    return {name for name in files if name.startswith("qbench/")}


def test_a_source_is_installed_from_its_folder() -> None:
    """Where qbench runs from its repository, that is what a message and the gate name."""
    assert installation.find_requirement() == str(ROOT)
    assert installation.install(["tokenizers"], "zoo") == f"pip install -e '{ROOT}[zoo]'"


@pytest.mark.parametrize(
    ("noted", "url"),
    [
        (
            {"url": "https://git.example/q.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}},
            "git+https://git.example/q.git@c0ffee",
        ),
        (
            {"url": "https://git.example/q", "vcs_info": {"vcs": "git", "commit_id": "1"}, "subdirectory": "tools"},
            "git+https://git.example/q@1#subdirectory=tools",
        ),
        ({"url": "file:///w/qbench_int8-0.2-py3-none-any.whl", "archive_info": {}},
         "file:///w/qbench_int8-0.2-py3-none-any.whl"),
    ],
)  # fmt: skip
def test_a_package_is_installed_from_where_pip_had_it(package: Path, noted: dict[str, object], url: str) -> None:
    """What pip wrote beside it (PEP 610): a commit of a repository, or a file."""
    (package / "direct_url.json").write_text(json.dumps(noted))
    assert installation.find_requirement("openvino") == f"qbench-int8[openvino] @ {url}"
    assert installation.install(["nncf"], "openvino") == f"pip install 'qbench-int8[openvino] @ {url}'"


def test_a_package_of_an_index_is_named_with_its_version(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip notes nothing then; it is the same where there are no metadata at all."""
    expected = f"qbench-int8=={qbench.__version__}"
    assert installation.find_requirement() == expected
    monkeypatch.setattr(sys, "path", [])
    assert installation.find_requirement("zoo") == expected.replace("==", "[zoo]==")


def test_packages_without_an_extra_are_named_themselves() -> None:
    """They are qbench's own requirements, or those of a plug-in."""
    assert installation.install(["onnx", "onnxruntime"], None) == "pip install onnx onnxruntime"


def test_the_version_of_another_projects_package_is_not_taken(package: Path) -> None:
    """A record says which qbench ran, also where the other `qbench` is installed."""
    other = package.parent / "qbench-1.0.2.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.4\nName: qbench\nVersion: 1.0.2\n")
    assert importlib.metadata.version("qbench") == "1.0.2"
    assert fingerprint.versions(["qbench"]) == {"qbench": qbench.__version__}
