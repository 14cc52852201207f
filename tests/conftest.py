"""What all tests share: a cache of their own, and tiny networks."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from hypothesis import settings

# A deadline is a timed assertion: on a busy machine it fails for no reason of the code's.
settings.register_profile("qbench", deadline=None)
settings.load_profile("qbench")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """No test reads or writes the user's cache; trained weights are shared within one session."""
    patch = pytest.MonkeyPatch()
    patch.setenv("QBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


# Files that take longest, first: two workers take a file each, and one that began last would run on alone.
LONGEST = (
    "test_readme.py",
    "backends/test_torch_ao.py",
    "run/test_run.py",
    "backends/test_inductor.py",
    "quant/pytorch/test_pt2e_kinds.py",
    "test_build.py",
)


def pytest_collection_modifyitems(items):
    """Puts the longest files in front, everything else in the order it has."""
    rank = {Path(__file__).parent / name: position for position, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(LONGEST)))


def pytest_collection_finish():
    """What collecting made lasts to the end: freed from every later search for garbage, of which ONNX makes many."""
    gc.freeze()
