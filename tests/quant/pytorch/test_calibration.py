"""Ranges found once serve every build with the same graph, observers, network and data."""

from __future__ import annotations

import pytest
import torch
from networks import residual_cnn

from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import fx, torch_ao
from qbench.quant.recipe import Recipe

RECIPE = Recipe(flow="fx", calibrator="histogram", per_channel=True, symmetric=False, reduce_range=True)


@pytest.fixture(autouse=True)
def _engine(engine_put_back):
    """Each test leaves it as it was."""


class Store:
    """Keeps one file for the same parts, and counts who had to calibrate."""

    def __init__(self, folder):
        self.folder, self.files, self.made = folder, {}, 0

    def __call__(self, parts, make):
        key = repr(sorted(parts.items()))
        if key not in self.files:
            self.files[key] = self.folder / f"{len(self.files)}.pt"
            make(self.files[key])
            self.made += 1
        return self.files[key]


def batches():
    yield from torch.rand(32, 1, 8, 8, generator=torch.Generator().manual_seed(0)).split(8)


def static(engine, store, recipe=RECIPE):
    """The outputs of the int8 network on one batch, and how many batches its calibration saw."""
    calls = []

    def passes():
        for batch in batches():
            calls.append(1)
            yield (batch,)

    torch_ao.set_engine(engine)
    module = residual_cnn().eval()
    network = fx.static(QuantizeJob(module, engine, recipe, (torch.zeros(1, 1, 8, 8),), shared=store), passes)
    with torch.inference_mode():
        return network.module(next(batches())), len(calls)


@pytest.mark.parametrize("calibrator", ["minmax", "moving_average", "histogram", "percentile", "mse"])
@pytest.mark.parametrize("clip", [True, False])
def test_the_second_build_calibrates_nothing_and_is_the_same(tmp_path, calibrator, clip):
    """Outputs with ranges that were taken over are bit-equal to those with ranges of its own; each build looks at one
    batch more, on which it holds its int8 layers against exact sums."""
    recipe = Recipe(**{**vars(RECIPE), "calibrator": calibrator, "clip_ranges": clip})
    store = Store(tmp_path)
    (own, first), (used, second), (alone, _) = (static("onednn", entry, recipe) for entry in (store, store, None))
    assert (first, second, store.made) == (4 + 1, 0 + 1, 1)
    assert torch.equal(own, used)
    assert torch.equal(own, alone)


def test_engines_with_the_same_recipe_share(tmp_path):
    """What an engine watches is the same on each; the int8 network is each one's own."""
    store = Store(tmp_path)
    for engine in ("onednn", "x86", "fbgemm"):
        shared, _ = static(engine, store)
        own, _ = static(engine, None)
        assert torch.equal(shared, own)
    assert store.made == 1


@pytest.mark.parametrize("change", [{"calibrator": "minmax"}, {"reduce_range": False}, {"skip_layers": ("stem",)}])
def test_another_recipe_calibrates_for_itself(tmp_path, change):
    """Another calibrator, range or skipped layer watches something else."""
    store = Store(tmp_path)
    static("onednn", store)
    static("onednn", store, Recipe(**{**vars(RECIPE), **change}))
    assert store.made == 2
