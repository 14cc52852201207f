"""Python and the engines for ARM in the cache: which versions, and what is told where they are not there."""

from __future__ import annotations

import pytest

from qbench.cache import store
from qbench.errors import CaseSkipped
from qbench.hosts import arm_environment, arm_packages
from qbench.hosts.arm_environment import explain_missing, find_folder, list_versions, make_environment, open_environment

HOST = "qemu:arm64-max"


@pytest.fixture
def root(tmp_path, monkeypatch):
    """An open cache, for which a file of one line is all that is fetched."""

    def fetch(folder, versions, tell):
        tell("fetched")
        (folder / "system").mkdir()
        (folder / "system" / "file").write_text("1")
        return {"libc6": "2.36-9", **versions}

    monkeypatch.setattr(arm_packages, "fetch", fetch)
    return store.open_cache(tmp_path / "cache")


def test_it_has_the_versions_that_are_installed_here():
    """Those of the engines and what they answer with; answers of other versions would be no comparison."""
    import numpy
    import onnxruntime

    versions = list_versions()
    assert (versions["numpy"], versions["onnxruntime"]) == (numpy.__version__, onnxruntime.__version__)
    assert all(versions.values())


def test_what_is_not_there_is_told_with_the_command_that_fetches_it(root):
    """For the versions of here; nothing is fetched for a run that only asks."""
    reason = explain_missing(root, HOST)
    assert f"onnxruntime {list_versions()['onnxruntime']}" in str(reason)
    assert f"`qbench doctor --prepare {HOST}`" in str(reason)
    assert "numpy" not in str(reason), "it is no engine"
    with pytest.raises(CaseSkipped, match="--prepare"):
        open_environment(root, HOST)
    assert not find_folder(root).exists()


def test_it_is_fetched_once_and_other_versions_are_another(root, monkeypatch):
    """A second time nothing is fetched; after an upgrade what is there is not taken for it."""
    steps = []
    environment = make_environment(root, steps.append)
    assert make_environment(root, steps.append) == environment
    assert steps == ["fetched"]
    assert open_environment(root, HOST) == environment
    assert (environment.system / "file").read_text() == "1"
    assert environment.python == environment.system / "usr" / "bin" / "python3"
    assert environment.facts["libc6"] == "2.36-9"
    monkeypatch.setattr(arm_environment, "list_versions", lambda: {"numpy": "0.1"})
    assert explain_missing(root, HOST) is not None


def test_damaged_files_are_not_run_and_are_fetched_again(root):
    """Each file is native code: what differs from the manifest is refused, with what to do."""
    steps = []
    environment = make_environment(root, steps.append)
    (environment.system / "file").write_text("2")
    with pytest.raises(CaseSkipped, match=r"damaged \(system/file has changed\).*--prepare"):
        open_environment(root, HOST)
    make_environment(root, steps.append)
    assert steps == ["fetched", "fetched"]
    assert (environment.system / "file").read_text() == "1"


def test_what_is_not_installed_here_is_not_there_either(monkeypatch):
    """Neither a version nor a name of it is asked for."""
    monkeypatch.setattr(arm_environment.fingerprint, "versions", lambda names: {"numpy": "2.4.6", "openvino": None})
    assert arm_environment.list_versions.__wrapped__() == {"numpy": "2.4.6"}


def test_a_patch_of_python_is_no_other_environment(root, monkeypatch):
    """Its wheels are those of 3.12; they are not those of 3.13."""
    folders = []
    for version in ((3, 12, 0), (3, 12, 1), (3, 13, 0)):
        monkeypatch.setattr(arm_environment.sys, "version_info", version)
        folders.append(find_folder(root))
    assert folders[0] == folders[1] != folders[2]
