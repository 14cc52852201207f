"""What all tests share: a cache of their own, and tiny networks."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from qbench.process import usage_reports
from qbench.process.start import CHILD_VARIABLES

# Two workers on two cores: a library that starts a thread a core makes its threads wait for each other's (13 s of CPU
# in place of 0.9 for one test). Set before a library reads it, and here as in qbench's own children.
os.environ.update(CHILD_VARIABLES)
usage_reports.turn_off()

# CI has all extras, who has run the README's second command none: packages that this names are as if missing.
sys.modules.update(dict.fromkeys(os.environ.get("QBENCH_TESTS_WITHOUT", "").split()))

# A test takes the same examples in every clone, whatever ran before it: hypothesis also draws constants of the modules
# that happen to be loaded by then, unless their path holds a folder named test or tests.
providers._get_local_constants = Constants
# Both limits are timed assertions: on a busy machine they fail for no reason of the code's.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", UNTIMED, derandomize=True, database=None)
settings.register_profile("explore", UNTIMED, derandomize=False, print_blob=True)
settings.load_profile("same")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """No test reads or writes the user's cache, or the list of suites that ran; trained
    weights are shared within one session."""
    patch = pytest.MonkeyPatch()
    patch.setenv("QBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
    patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    yield
    patch.undo()


@pytest.fixture
def engine_put_back():
    """torch's quantized engine is of the process: after the test it is what it was."""
    import torch

    before = torch.backends.quantized.engine
    yield
    torch.backends.quantized.engine = before


@pytest.fixture
def clean_imports(monkeypatch):
    """Users' files put folders on the import path; no test sees another's."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = dict(sys.modules)
    yield
    for name in {name for name in set(sys.modules) - set(before) if name.startswith("qbench_user_")}:
        del sys.modules[name]


@pytest.fixture
def two_threads():
    """torch has two threads, as a user's process may have."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


# Files that take longest, in core-seconds with those of their children, first: two workers take a file each, and one
# that began last would run on alone.
LONGEST = (
    "running/test_run.py",
    "backends/test_inductor.py",
    "check/test_check_file.py",
    "backends/test_executorch.py",
    "test_readme.py",
    "cli/test_planted_runs.py",
    "ship/test_folder.py",
    "upgrade/test_upgrade.py",
    "pytest_plugin/test_items.py",
    "backends/test_torch_ao.py",
    "test_build.py",
    "backends/test_torchscript.py",
    "architectures/test_zoo.py",
    "environments/test_making.py",
    "report/test_browser.py",
    "bisect/test_start.py",
    "quant/calibrators/test_calibrators.py",
    "quant/pytorch/test_narrow_weights.py",
    "quant/pytorch/test_fx.py",
    "process/test_child_process.py",
    "check/test_threads.py",
    "running/test_saturation_stage.py",
    "models/test_models.py",
    "fleet/test_fleet.py",
    "cli/test_streams.py",
    "train/test_train.py",
    "evaluate/test_emulated.py",
    "quant/onnx/test_onnxruntime_session.py",
    "datasets/test_datasets.py",
    "report/test_page.py",
    "gating/test_against.py",
    "bisect/test_layers.py",
    "test_architecture.py",
    "evaluate/test_emulated_process.py",
    "onnx/test_api.py",
    "quant/pytorch/test_pt2e_kinds.py",
    "quant/canonical/test_canonicalize.py",
    "fuzz/test_fuzz.py",
    "quant/onnx/calibration/test_calibrate.py",
)


def pytest_configure(config):
    """Compiled modules are kept beside their text, also where the environment forbids it, as images of containers do:
    each worker rewrote the asserts of 600 files anew, and each child compiled qbench. With ``-p no:cacheprovider``
    nothing is kept."""
    if config.pluginmanager.has_plugin("cacheprovider"):
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.dont_write_bytecode = False


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Nothing that collecting makes is garbage: searching for some took half of its time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.set_threshold(10_000, 20, 20)  # Python's (700, 10, 10) took up to a quarter of a file's time


def pytest_collection_modifyitems(items):
    """Puts the longest files in front, everything else in the order it has."""
    rank = {Path(__file__).parent / name: position for position, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(LONGEST)))


def pytest_collection_finish():
    """What collecting made lasts to the end: freed from every later search for garbage, of which ONNX makes many."""
    gc.freeze()
