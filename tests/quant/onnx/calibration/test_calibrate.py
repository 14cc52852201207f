"""Calibration: the scales are those of the data, in bounded memory, and whatever goes wrong is named."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from calibration_models import CNN, CNN_CONSTANTS, cnn, config, graph, images, values, written

from qbench import registry
from qbench.errors import BuildError, DataError, ModelError, UsageError
from qbench.quant import scale_rules
from qbench.quant.onnx import onnxruntime_session
from qbench.quant.onnx.calibration import batches as calibration_batches
from qbench.quant.onnx.calibration import calibrate, chunks, parts
from qbench.quant.onnx.calibration.calibration_model import with_activations
from qbench.quant.onnx.formats import calibration_file
from qbench.quant.onnx.formats import scale_record as record_file
from qbench.quant.onnx.settings import ADA
from qbench.quant.onnx.sites import Scales, find

SITES = {"stem": "x", "deep": "b", "point": "d", "sum:0": "e", "sum:1": "b", "head": "h"}
TENSORS = [("sum", 0), ("sum", 1)]
TWO_INPUTS = """
<ir_version: 8, opset_import: ["" : 17]>
two (float[n,4] a, int64[n,2] tokens) => (float[n,3] y) {
  [embed] e = Gather <axis: int = 0> (table, tokens)
  [total] t = ReduceSum <keepdims: int = 0> (e, axis)
  [sum] s = Add (a, t)
  [head] y = Gemm (s, w, b)
}
"""
TWO_CONSTANTS = {"table": (6, 4), "axis": np.array([1]), "w": (4, 3), "b": (3,)}
# Each example less the mean of its batch, as an axis that is time would mix its steps.
MIXING = """
<ir_version: 8, opset_import: ["" : 17]>
mixing (float[n,4] x) => (float[n,3] y) {
  [mean] m = ReduceMean <axes: ints = [0], keepdims: int = 1> (x)
  [less] d = Sub (x, m)
  [head] y = Gemm (d, w, b)
}
"""
FIXED = CNN.replace("[n,3,8,8]", "[2,3,8,8]").replace("[n,5]", "[2,5]")
LOGARITHM = """
<ir_version: 8, opset_import: ["" : 17]>
logarithm (float[n,4] x) => (float[n,3] y) {
  [first] a = MatMul (x, v)
  [log] b = Log (x)
  [second] c = MatMul (b, v)
  [sum] s = Add (a, c)
  [third] y = MatMul (s, w)
}
"""


def write_model(folder: Path, *, batch_num: int = 4, algorithm: str = "minmax", **others: Any) -> Path:
    """The calibration model of the residual network."""
    network = cnn()
    settings = config(network, tensors=TENSORS, batch_num=batch_num, algorithm=algorithm, **others)
    return written(folder / "calibration.onnx", network, settings)


def batches(count: int = 4, size: int = 3) -> list[Any]:
    """Batches of random images."""
    return [images(size, seed=number) for number in range(count)]


def test_calibration_model_shows_the_activations_behind_its_own_outputs() -> None:
    """The model's outputs come first, then every quantized activation once; the graph given is not changed."""
    network = cnn()
    before = network.model.SerializeToString()
    shown = with_activations(network, find(network, config(network, tensors=TENSORS)))
    assert shown.outputs == ("y", "x", "b", "d", "e", "h")
    assert network.model.SerializeToString() == before


def test_calibration_model_knows_its_configuration(tmp_path: Path) -> None:
    """A calibration model that is read gives the configuration, the sites and the graph that it was made from."""
    network = cnn()
    settings = config(network, tensors=TENSORS, batch_num=7, balance=0.5)
    model = calibration_file.read(written(tmp_path / "c.onnx", network, settings))
    assert model.config == settings
    assert model.sites == find(network, settings)
    assert (model.inputs, model.outputs, model.done) == (("x",), ("y",), ())
    assert model.graph().outputs == ("y",)


def test_an_ordinary_model_is_no_calibration_model(tmp_path: Path) -> None:
    """Calibrating a model that quantize did not write says so."""
    cnn().save(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=r"m\.onnx: not a calibration model .* qbench onnx quantize"):
        calibration_file.run(tmp_path / "m.onnx", batches(), tmp_path / "record.txt")


@pytest.mark.parametrize("asymmetric", [True, False])
def test_scales_are_those_of_the_activations(tmp_path: Path, asymmetric: bool) -> None:
    """Every key gets the scale and offset of the values that its tensor takes over all batches."""
    file = write_model(tmp_path, asymmetric=asymmetric)
    result = calibration_file.run(file, batches(), tmp_path / "record.txt")
    every = values(cnn(), {"x": np.concatenate(batches())}, *SITES.values())
    for (key, _), tensor in zip(SITES.items(), every, strict=True):
        expected = scale_rules.amct_qparams(float(tensor.min()), float(tensor.max()), symmetric=not asymmetric)
        assert result.record[key].scale_d == pytest.approx(expected.scale, rel=1e-5), key
        assert result.record[key].offset_d == expected.zero_point, key
    assert (result.batches, result.examples, result.warnings) == (4, 12, ())
    assert record_file.read(tmp_path / "record.txt") == result.record


def test_scales_of_weights_are_found_where_the_record_has_none(tmp_path: Path) -> None:
    """Without a record the weights' scales are the largest value of each channel over 127; those in a record stay."""
    file, record = write_model(tmp_path, batch_num=1), tmp_path / "record.txt"
    actual = calibration_file.run(file, batches(1), record).record
    weight = cnn().constant("stem_w")
    assert weight is not None
    largest = np.maximum(weight.max(axis=(1, 2, 3)) / 127, -weight.min(axis=(1, 2, 3)) / 128)
    assert actual["stem"].scale_w == pytest.approx(tuple(largest), rel=1e-6)
    head = Scales(scale_d=1.0, offset_d=0, scale_w=(0.25,), offset_w=(0,))
    record_file.write({**actual, "head": head}, record)
    again = calibration_file.run(file, batches(1), record).record
    assert again["head"].scale_w == (0.25,)
    assert again["head"].scale_d == actual["head"].scale_d


def test_how_the_data_is_cut_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch of twelve, fed whole or in chunks, and twelve batches of one give the same ranges."""
    every = np.concatenate(batches())
    whole = calibration_file.run(write_model(tmp_path, batch_num=1), [every], tmp_path / "whole.txt").record
    single = calibration_file.run(
        write_model(tmp_path, batch_num=12), list(every[:, None]), tmp_path / "single.txt"
    ).record
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 20_000)
    calls = []
    monkeypatch.setattr(
        parts, "infer", lambda *args: calls.append(len(args[2]["x"])) or calibration_batches.infer(*args)
    )
    cut = calibration_file.run(write_model(tmp_path, batch_num=1), [every], tmp_path / "cut.txt").record
    assert calls[:3] == [1, 1, 2]  # whether two are apart; how large an example is the model says
    assert 1 < max(calls[3:]) < 12
    assert sum(calls[3:]) == 12
    for key, entry in whole.items():
        for other in (single, cut):
            assert other[key].scale_d == pytest.approx(entry.scale_d, rel=1e-6), key
            assert other[key].offset_d == entry.offset_d


@pytest.mark.parametrize(
    "steps",
    [{}, {"balance": 0.5}, {"bias_correction": True}, {"weight": {"algorithm": ADA}}, {"algorithm": "entropy"}],
    ids=["ranges", "balance", "biases", "adaround", "entropy"],
)
@pytest.mark.parametrize("fixed", [False, True])
def test_a_model_whose_activations_do_not_fit_together_is_run_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: Any, fixed: bool
) -> None:
    """That gives the scales, the weights and what layers are given on average that the whole gives, in one pass over
    the data, and counts each example once."""
    network = graph(FIXED, CNN_CONSTANTS) if fixed else cnn()
    settings = config(network, tensors=TENSORS, batch_num=4, **steps)
    sessions = []
    real = onnxruntime_session.open_session

    def open_session(model: Any, **settings: Any) -> Any:
        sessions.append(model)
        return real(model, **settings)

    def run(limit: int) -> tuple[Any, Any, list[tuple[str, int, int]]]:
        monkeypatch.setattr(chunks, "CHUNK_BYTES", limit)
        model = calibration_file.read(written(tmp_path / f"{limit}.onnx", network, settings))
        told: list[tuple[str, int, int]] = []
        tell = lambda *progress: told.append(progress)  # noqa: E731
        data = batches(4, 2)
        data = data if {"balance", "bias_correction"} & steps.keys() else iter(data)
        return *calibrate.calibrate(model, data, mean_inputs=True, threads=1, progress=tell), told

    whole, once, whole_told = run(12 * 2**20)
    monkeypatch.setattr(onnxruntime_session, "open_session", open_session)
    parted, in_parts, told = run(100)
    assert sum(isinstance(model, bytes) for model in sessions) >= 3
    assert told == whole_told
    assert (in_parts.examples, in_parts.batches, in_parts.warnings) == (8, 4, once.warnings)
    for key, entry in once.record.items():
        assert in_parts.record[key].scale_d == pytest.approx(entry.scale_d, rel=1e-5), key
        assert in_parts.record[key].scale_w == pytest.approx(entry.scale_w, rel=1e-5), key
    assert in_parts.mean_inputs.keys() == once.mean_inputs.keys()
    for layer, means in once.mean_inputs.items():
        np.testing.assert_allclose(in_parts.mean_inputs[layer], means, rtol=1e-4, atol=1e-6)
    for name in network.constants:
        first, second = (model.graph().constant(name) for model in (whole, parted))
        assert np.mean(np.isclose(first, second, rtol=1e-4, atol=1e-5)) > 0.99, name


def test_a_batch_stays_whole_where_its_examples_depend_on_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that mixes its first axis is fed what the user gave: its chunks would have other activations."""
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 1)
    network = graph(MIXING, {"w": (4, 3), "b": (3,)})
    file = written(tmp_path / "c.onnx", network, config(network, batch_num=1))
    x = images(6, shape=(4,))
    record = calibration_file.run(file, [x], tmp_path / "record.txt").record
    less = x - x.mean(axis=0)
    assert record["head"].scale_d == pytest.approx((less.max() - less.min()) / 255, rel=1e-5)


def test_whether_examples_depend_on_each_other_is_found_where_all_are_nan(tmp_path: Path) -> None:
    """The first batch of a network that gives NaN everywhere ends in the message that names the layer, without a
    warning of numpy's."""
    network = graph(LOGARITHM, {"v": (4, 4), "w": (4, 3)})
    file = written(tmp_path / "c.onnx", network, config(network, batch_num=1))
    with pytest.raises(BuildError, match=r"^second: its input b in batch 1: 12 values are NaN or inf; check"):
        calibration_file.run(file, [np.full((3, 4), -1, np.float32)], tmp_path / "record.txt")


def test_a_model_with_a_fixed_batch_is_fed_that_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of the size that the model demands are not cut; another size is an error that names both shapes."""
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 1)
    network = graph(FIXED, CNN_CONSTANTS)
    file = written(tmp_path / "c.onnx", network, config(network, batch_num=2))
    assert calibration_file.run(file, batches(2, 2), tmp_path / "record.txt").examples == 4
    with pytest.raises(DataError, match=r"batch 1: input x has shape \[3, 3, 8, 8\], the model takes \[2, 3, 8, 8\]"):
        calibration_file.run(file, batches(2, 3), tmp_path / "record.txt")


@pytest.mark.parametrize("form", ["names", "order"])
def test_several_inputs(tmp_path: Path, form: str) -> None:
    """A model with several inputs takes its arrays by name, or in the order of its inputs."""
    network = graph(TWO_INPUTS, TWO_CONSTANTS)
    file = written(tmp_path / "c.onnx", network, config(network, batch_num=1))
    a, tokens = images(3, shape=(4,)), np.array([[0, 1], [5, 2], [3, 3]])
    batch: Any = {"tokens": tokens, "a": a} if form == "names" else (a, tokens)
    record = calibration_file.run(file, [batch], tmp_path / "record.txt").record
    (s,) = values(network, {"a": a, "tokens": tokens}, "s")
    expected = scale_rules.amct_qparams(float(s.min()), float(s.max()))
    assert record["head"].scale_d == pytest.approx(expected.scale, rel=1e-5)


def test_a_tensor_of_another_library_is_one_array(tmp_path: Path) -> None:
    """What converts itself to an array (a torch tensor) is the input of a model with one input, not a list of them."""

    class Tensor:
        def __array__(self, *_: Any, **__: Any) -> Any:
            return images(2)

    result = calibration_file.run(write_model(tmp_path, batch_num=1), [Tensor()], tmp_path / "a.txt")
    assert (
        result.record
        == calibration_file.run(write_model(tmp_path, batch_num=1), [images(2)], tmp_path / "b.txt").record
    )


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ((images(2, shape=(4,)),), r"batch 1: 1 arrays, the model has 2 inputs: a, tokens"),
        ({"a": images(2, shape=(4,)), "b": 1}, r"batch 1: inputs named a, b, the model has a, tokens"),
        ((images(2, shape=(4,)), np.zeros((3, 2), np.int64)), r"batch 1: n is 2 in input a and 3 in input tokens"),
        ((images(2, shape=(4,)), np.zeros((2, 2), np.int32)), r"input tokens takes int64, got int32; convert it"),
        ((images(2, shape=(4,)).astype(float), np.zeros((2, 2), int)), r"input a takes float32, got float64; convert"),
        ((images(2, shape=(5,)), np.zeros((2, 2), np.int64)), r"input a has shape \[2, 5\], the model takes \[n, 4\]"),
        ((images(2, shape=(4, 1)), np.zeros((2, 2), np.int64)), r"input a has shape \[2, 4, 1\], the model takes"),
        ((images(0, shape=(4,)), np.zeros((0, 2), np.int64)), r"input a has shape \[0, 4\]: there is nothing in it"),
        ((images(1, shape=(4,)), np.full((1, 2), 6)), r"batch 1: ONNX Runtime cannot run the model on it: .*idx=6"),
        ((np.float32([[1, np.nan, 2, np.inf]]), np.zeros((1, 2), np.int64)), r"batch 1: input a: 2 values are NaN"),
    ],
)
def test_data_that_does_not_fit_is_named(tmp_path: Path, batch: Any, message: str) -> None:
    """Another number, name, type, rank, shape or value than the model takes: batch and input are named, and no record
    is written."""
    network = graph(TWO_INPUTS, TWO_CONSTANTS)
    file = written(tmp_path / "c.onnx", network, config(network, batch_num=1))
    with pytest.raises(DataError, match=message):
        calibration_file.run(file, [batch], tmp_path / "record.txt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.onnx"]


def test_an_activation_that_is_not_finite_names_layer_and_batch(tmp_path: Path) -> None:
    """The first layer in the order of the graph that reads NaN is named, with its tensor and the batch."""
    network = graph(LOGARITHM, {"v": (4, 4), "w": (4, 3)})
    file = written(tmp_path / "c.onnx", network, config(network, batch_num=3))
    data = [np.abs(images(2, seed=seed, shape=(4,))) + 1 for seed in range(3)]
    data[1][0, 0] = -1
    with pytest.raises(BuildError, match=r"^second: its input b in batch 2: 1 values? (is|are) NaN or inf; check"):
        calibration_file.run(file, data, tmp_path / "record.txt")
    assert not (tmp_path / "record.txt").exists()


@pytest.mark.parametrize("algorithm", ["minmax", "hfmg"])
def test_fewer_batches_than_batch_num(tmp_path: Path, algorithm: str) -> None:
    """Data that ends early is an error that counts, and an existing record stays as it was."""
    file, record = write_model(tmp_path, algorithm=algorithm), tmp_path / "record.txt"
    calibration_file.run(file, batches(), record)
    before = record.read_bytes()
    with pytest.raises(DataError, match="calibration saw fewer than batch_num batches: 1 of 4; give more data, or"):
        calibration_file.run(file, batches(1), record)
    assert record.read_bytes() == before


def test_only_batch_num_batches_are_asked_for(tmp_path: Path) -> None:
    """Data beyond batch_num is left alone, so that an endless generator will do."""
    sample = []

    def endless() -> Iterator[Any]:
        while True:
            sample.append(None)
            yield images(1, seed=len(sample))

    assert calibration_file.run(write_model(tmp_path), endless(), tmp_path / "record.txt").examples == 4
    assert len(sample) == 4


def test_an_error_in_the_data_leaves_nothing_behind(tmp_path: Path) -> None:
    """What the user's own loader raises passes through, and neither record nor temporary file is left."""

    def broken() -> Iterator[Any]:
        yield images(2)
        raise OSError("disk gone")

    file = write_model(tmp_path)
    with pytest.raises(OSError, match="disk gone"):
        calibration_file.run(file, broken, tmp_path / "record.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["calibration.onnx"]


def test_a_killed_calibration_is_run_again(tmp_path: Path) -> None:
    """A calibration that is killed leaves no record, and run again it gives what an undisturbed one gives."""
    file, record = write_model(tmp_path), tmp_path / "record.txt"
    code = (
        "import os, signal; import numpy as np; from pathlib import Path\n"
        "from qbench.quant.onnx.formats import calibration_file\n"
        "die = lambda step, number, count: number == 3 and os.kill(os.getpid(), signal.SIGKILL)\n"
        f"data = [np.random.default_rng(n).standard_normal((3, 3, 8, 8)).astype('f') for n in range(4)]\n"
        f"calibration_file.run(Path({str(file)!r}), data, Path({str(record)!r}), progress=die)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert [path.name for path in tmp_path.iterdir()] == ["calibration.onnx"]
    calibration_file.run(file, batches(), record)
    calibration_file.run(file, batches(), tmp_path / "undisturbed.txt")
    assert record.read_bytes() == (tmp_path / "undisturbed.txt").read_bytes()


@pytest.mark.parametrize("algorithm", sorted(registry.entries("calibrator")))
def test_every_calibrator_gives_the_same_on_any_number_of_threads(tmp_path: Path, algorithm: str) -> None:
    """Each registered calibrator completes a record, and the number of threads does not change a byte of it."""
    file = write_model(tmp_path, algorithm=algorithm)
    for threads in (1, 3):
        calibration_file.run(file, batches(), tmp_path / f"{threads}.txt", threads=threads)
    assert (tmp_path / "1.txt").read_bytes() == (tmp_path / "3.txt").read_bytes()


@pytest.mark.parametrize(("limit", "bound"), [(12 * 2**20, 2 * 4), (1, 3)])
def test_values_are_freed_as_they_are_seen(
    limit: int, bound: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all the activations of a run at most two chunks are in memory at a time; of a model in parts a single one, and
    what its part is given."""
    monkeypatch.setattr(chunks, "CHUNK_BYTES", limit)
    alive: list[weakref.ref[Any]] = []
    most = 0
    original = calibration_batches.infer

    def watched(*args: Any) -> Any:
        nonlocal most
        result = original(*args)
        alive.extend(weakref.ref(array) for array in result.values())
        most = max(most, sum(entry() is not None for entry in alive))
        return result

    monkeypatch.setattr(parts, "infer", watched)
    gc.disable()  # what is freed must not wait for the collector
    try:
        calibration_file.run(write_model(tmp_path, batch_num=12), list(images(12)[:, None]), tmp_path / "record.txt")
    finally:
        gc.enable()
    assert len(alive) == 12 * 4
    assert most <= bound


def test_the_session_keeps_no_memory_between_its_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibration runs without the arena of ONNX Runtime and without its block for all activations: both would hold
    what one call needs until the last."""
    opened: list[Any] = []
    original = onnxruntime_session.open_session

    def open_session(path: Path, *, options: Any) -> Any:
        opened.append(options)
        return original(path, options=options)

    monkeypatch.setattr(onnxruntime_session, "open_session", open_session)
    calibration_file.run(write_model(tmp_path), batches(), tmp_path / "record.txt")
    assert [(options.enable_cpu_mem_arena, options.enable_mem_pattern) for options in opened] == [(False, False)]


@pytest.mark.parametrize(
    ("batch", "warning"),
    [
        (np.random.default_rng(0).integers(0, 256, (2, 3, 8, 8)).astype(np.float32), "look like raw pixels"),
        (np.full((2, 3, 8, 8), 0.5, np.float32), "every value of the first examples is 0.5"),
    ],
)
def test_doubtful_values_are_warned_of(tmp_path: Path, batch: Any, warning: str) -> None:
    """Raw pixels and constant data are calibrated, with a warning."""
    result = calibration_file.run(write_model(tmp_path, batch_num=1), [batch], tmp_path / "record.txt")
    assert len(result.warnings) == 1
    assert warning in result.warnings[0]


def test_an_activation_that_is_always_zero_is_warned_of(tmp_path: Path) -> None:
    """A layer that only ever read zeros has a scale that means nothing: it is named."""
    network = cnn()
    network.set_constant("deep_b", np.full(8, -1e6, np.float32))
    file = written(tmp_path / "c.onnx", network, config(network, batch_num=1))
    result = calibration_file.run(file, batches(1), tmp_path / "record.txt")
    assert result.warnings == ("point: its input was zero in every batch",)


def test_a_record_of_another_model_is_refused(tmp_path: Path) -> None:
    """A record with a key that the model does not have is not completed; near names are shown."""
    file, record = write_model(tmp_path, batch_num=1), tmp_path / "record.txt"
    actual = calibration_file.run(file, batches(1), record).record
    record_file.write({"steam": actual["stem"]}, record)
    with pytest.raises(UsageError, match=r"record\.txt: 'steam' is nothing .* did you mean 'stem'"):
        calibration_file.run(file, batches(1), record)


def test_several_passes_need_data_that_can_be_read_again(tmp_path: Path) -> None:
    """A generator gives one pass: balance asks for a list or a function, which then works."""
    file = write_model(tmp_path, balance=0.5)
    with pytest.raises(UsageError, match="balance need several passes .* pass a list, or the function that makes"):
        calibration_file.run(file, iter(batches()), tmp_path / "record.txt")

    def generator() -> Iterator[Any]:
        yield from batches()

    assert calibration_file.run(write_model(tmp_path, balance=0.5), generator, tmp_path / "record.txt").batches == 4


def test_adaround_rounds_the_weights_in_the_same_pass(tmp_path: Path) -> None:
    """AdaRound needs no second pass: afterwards the model's weights are multiples of their scales, at most one step
    from what they were, and a second calibration leaves the model alone."""
    weight = {"algorithm": "ada_quantize", "options": {"num_iteration": 20}}
    file = write_model(tmp_path, weight=weight)
    result = calibration_file.run(file, iter(batches()), tmp_path / "record.txt")
    model = calibration_file.read(file)
    assert model.done == ("adaround",)
    for layer in ("stem", "deep", "point", "head"):
        before, after = cnn().constant(f"{layer}_w"), model.graph().constant(f"{layer}_w")
        assert before is not None
        assert after is not None
        scales = np.float32(result.record[layer].scale_w)
        scales = scales.reshape([-1, *[1] * (before.ndim - 1)]) if len(scales) > 1 else scales
        np.testing.assert_allclose(after / scales, np.rint(after / scales), atol=1e-3)
        assert np.abs(after - before).max() <= 1.001 * scales.max()
        assert not np.array_equal(after, before)
    content = file.read_bytes()
    calibration_file.run(file, batches(), tmp_path / "record.txt")
    assert file.read_bytes() == content


def test_progress_tells_step_and_batch(tmp_path: Path) -> None:
    """Progress is told once per batch and step."""
    message: list[tuple[Any, ...]] = []
    note: Callable[..., None] = lambda *args: message.append(args)  # noqa: E731  # a callback of any arguments
    file = write_model(tmp_path, batch_num=2, bias_correction=True)
    calibration_file.run(file, batches(2), tmp_path / "r.txt", progress=note)
    assert message == [(step, number, 2) for step in ("calibrate", "bias_correction") for number in (1, 2)]


def test_the_model_runs_in_plain_onnxruntime(tmp_path: Path) -> None:
    """The file is an ordinary ONNX model that the user's own session runs, metadata and all."""
    import onnxruntime

    file = write_model(tmp_path)
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    outputs = session.run(None, {"x": images(2)})
    for mine, theirs in zip(outputs, values(cnn(), {"x": images(2)}, "y", "x", "b", "d", "e", "h"), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)
    assert {prop.key for prop in onnx.load(str(file)).metadata_props} >= {"qbench.config", "qbench.outputs"}
