"""Ranges found once serve every build with the same graph, observers, network and data."""

from __future__ import annotations

import pytest
import torch
from networks import residual_cnn

from qbench.errors import BuildError
from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import calibration, fx, torch_ao
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
    batch more, on which it holds its int8 layers against exact sums, and at all four for what its biases give back."""
    recipe = Recipe(**{**vars(RECIPE), "calibrator": calibrator, "clip_ranges": clip})
    store = Store(tmp_path)
    (own, first), (used, second), (alone, _) = (static("onednn", entry, recipe) for entry in (store, store, None))
    assert (first, second, store.made) == (4 + 1 + 4, 0 + 1 + 4, 1)
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


def test_progress_tells_how_many_examples_were_shown():
    """The share grows from a fifth towards three fifths, a hundred examples half-way."""
    said, network = [], torch.nn.Identity()
    sizes = (100, 100, 100)
    shown = [(torch.ones(size, 2),) for size in sizes]
    assert calibration.run_batches(network, shown, lambda text, share: said.append((text, share)))
    assert [text for text, _ in said] == [f"calibrate, {count} examples" for count in (100, 200, 300)]
    assert [share for _, share in said] == pytest.approx([0.4, 0.2 + 0.8 / 3, 0.5])
    shown[1][0][3, 1] = float("nan")
    assert not calibration.run_batches(network, shown, lambda *_: None)
    assert calibration.run_batches(network, [], lambda *_: None)
    assert not torch.is_inference_mode_enabled()


class Range:
    """An observer with these ends."""

    def __init__(self, low, high):
        self.min_val, self.max_val = torch.tensor(low), torch.tensor(high)


@pytest.mark.parametrize(
    ("observers", "said"),
    [
        ([("a", Range([0.0], [1.0])), ("b", object())], None),
        ([("a", Range([1.0], [1.0]))], None),
        ([("a", Range([], []))], "calibration observed nothing at a: is that part"),
        ([("a", Range([1.0], [0.0])), ("a", Range([1.0], [0.0]))], "calibration observed nothing at a: is that part"),
        ([("a", Range([0.0, 1.0], [1.0, 0.0])), ("b", Range([0.0], [1.0]))], "observed nothing at a: is"),
        ([("a", Range([float("-inf")], [1.0]))], "infinite values or NaN at a: the fp32 network gives"),
        ([("a", Range([0.0, 0.0], [1.0, float("inf")]))], "infinite values or NaN at a: the fp32 network gives"),
        ([("b", Range([0.0], [float("inf")])), ("a", Range([1.0], [0.0]))], "observed nothing at a: is"),
    ],
)
def test_an_observer_must_have_seen_numbers(observers, said):
    """Something, in every channel, and nothing endless, unless that passes; what keeps no ends is not asked."""
    if said is None:
        calibration.require_observed(iter(observers))
        return
    with pytest.raises(BuildError, match=said):
        calibration.require_observed(iter(observers))
    if "infinite" in said:
        calibration.require_observed(iter(observers), passes=lambda observer: True)


def test_the_first_examples_are_of_the_first_batch():
    """At most so many, of each input."""
    batches_read = []

    def passes():
        for start in (0, 10):
            batches_read.append(start)
            yield torch.arange(start, start + 10), torch.arange(start, start + 10) * 2

    first, second = calibration.first_examples(passes, 3)
    assert (first.tolist(), second.tolist()) == ([0, 1, 2], [0, 2, 4])
    assert batches_read == [0]
    assert len(calibration.first_examples(passes, 30)[0]) == 10


def test_layers_with_a_wrong_kernel_are_left_out_until_none_is_new():
    """Each conversion knows of all that were found wrong before."""
    asked = []
    wrong = iter([{"a": "wrong"}, {"a": "wrong", "b": "worse"}, {"b": "worse"}])

    def convert(floats):
        asked.append(dict(floats))
        return f"converted {len(asked)}", next(wrong)

    floats = {"c": "skipped"}
    assert calibration.leave_out_wrong(convert, floats) == "converted 3"
    assert asked == [
        {"c": "skipped"}, {"c": "skipped", "a": "wrong"}, {"c": "skipped", "a": "wrong", "b": "worse"},
    ]  # fmt: skip
    assert floats == asked[-1]
