"""qbench.onnx: the four steps as Python calls, and all in one."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace

import numpy as np
import onnx
import onnx_networks
import onnxruntime
import pytest

import qbench.onnx as steps
from qbench.cli import onnx_options
from qbench.errors import DataError, ModelError, UsageError
from qbench.onnx import api, calibration_data, text
from qbench.onnx.api import PRESETS, Rules
from qbench.quant.onnx.export.parity import Parity
from qbench.quant.onnx.formats import config, quant_json, scale_record
from qbench.quant.onnx.graph import prepare as steps_prepare
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.settings import TensorConfig

BATCHES = [np.random.default_rng(seed).standard_normal((4, 3, 16, 16)).astype(np.float32) for seed in range(2)]


@pytest.fixture(name="model", scope="module")
def model_(tmp_path_factory):
    return onnx_networks.save(onnx_networks.residual_cnn(), tmp_path_factory.mktemp("model"))


@pytest.fixture(name="quantized")
def quantized_(model, tmp_path):
    """The folder with calibration.onnx and record.txt."""
    settings = steps.config(model, rules=Rules(batch_num=2))
    steps.quantize(model, settings, tmp_path / "calibration.onnx", tmp_path / "record.txt")
    return tmp_path


def run(file, feed):
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: feed})[0]


def test_the_four_steps_give_models_that_compute_nearly_the_same(model, quantized):
    """From a model to its int8 form; each step reads what the one before wrote."""
    calibrated = steps.calibrate(quantized / "calibration.onnx", BATCHES, quantized / "record.txt")
    assert (calibrated.batches, calibrated.examples) == (2, 8)
    saved = steps.save(
        quantized / "calibration.onnx", quantized / "record.txt", quantized / "out" / "m", targets=steps.TARGETS
    )
    assert {what: file.name for what, file in saved.files.items()} == {
        "fake_quant": "m_fake_quant_model.onnx",
        "onnxruntime": "m_deploy_model.onnx",
        "ascend": "m_ascend_model.onnx",
        "quant_json": "m.quant.json",
    }
    exact, simulated, executed = (
        run(file, BATCHES[0]) for file in (model, saved.files["fake_quant"], saved.files["onnxruntime"])
    )
    assert np.abs(simulated - exact).max() < 0.1 * np.abs(exact).max()
    assert not np.array_equal(simulated, exact)
    np.testing.assert_allclose(executed, simulated, atol=1e-5)
    assert {file.stat().st_mode & 0o777 for file in saved.files.values()} == {0o640}
    held = quant_json.read(saved.files["quant_json"])
    assert set(held["parity"]) == {"onnxruntime", "ascend"}
    assert held["parity"]["ascend"]["agreement"] == 1.0


def test_the_calibration_model_gives_what_the_model_gives(model, quantized):
    """Its own outputs come first and are equal up to rounding, although BatchNorms are fused."""
    np.testing.assert_allclose(run(quantized / "calibration.onnx", BATCHES[0]), run(model, BATCHES[0]), atol=1e-5)


def test_the_first_record_holds_the_weights(quantized):
    """After quantize every weight has its scales; activations have none yet, and saving says which step is missing."""
    held = scale_record.read(quantized / "record.txt")
    assert {key: (len(scales.scale_w), scales.scale_d) for key, scales in held.items()} == {
        "conv1": (8, None), "conv2": (8, None), "conv3": (8, None), "fc": (1, None),
    }  # fmt: skip
    with pytest.raises(
        UsageError, match=r"'conv1' and 7 more: no scale_d: calibration saw fewer than batch_num batches"
    ):
        steps.save(quantized / "calibration.onnx", quantized / "record.txt", quantized / "m")
    assert not list(quantized.glob("m_*"))


def test_the_user_s_own_loop_calibrates(quantized):
    """An ONNX Runtime session of the class gives the same record as the calibrate step."""
    from_steps = quantized / "steps.txt"
    steps.calibrate(quantized / "calibration.onnx", BATCHES, from_steps)
    with steps.CalibrationSession(quantized / "calibration.onnx", record=quantized / "record.txt") as session:
        for batch in BATCHES:
            (logits,) = session.run(None, {"image": batch})
            assert logits.shape == (4, 10)
    assert scale_record.read(quantized / "record.txt") == scale_record.read(from_steps)


def test_an_amct_config_and_record_are_used_as_they_are(model, tmp_path):
    """Files written by hand in AMCT's form go through all steps; nothing is quantized beside what they name. What ONNX
    Runtime then runs in float is called so, with what to name beside it."""
    (tmp_path / "config.json").write_text(
        """{"version":1, "batch_num":1, "activation_offset":true, "do_fusion":true, "skip_fusion_layers":[],
        "tensor_quantize":[{"layer_name":"maxpool","input_index":0,"activation_quant_params":{"act_algo":"hfmg"}}],
        "conv2":{"quant_enable":true,"activation_quant_params":{"act_algo":"ifmr","asymmetric":false},
                 "weight_quant_params":{"wts_algo":"arq_quantize","channel_wise":false}}}"""
    )
    (tmp_path / "amct.txt").write_text(
        'record { key: "conv2" value { scale_d: 0.02 offset_d: 0 scale_w: 0.01 offset_w: 0 shift_bit: 1 } }\n'
        'record { key: "maxpool:0" value { scale_d: 0.05 offset_d: -128 dst_type: "INT8" } }\n'
    )
    steps.quantize(model, tmp_path / "config.json", tmp_path / "calibration.onnx", tmp_path / "record.txt")
    saved = steps.save(tmp_path / "calibration.onnx", tmp_path / "amct.txt", tmp_path / "m")
    held = quant_json.read(saved.files["quant_json"])
    assert held["layers"] == []
    assert [(entry["node"], entry["index"]) for entry in held["tensors"]] == [("maxpool", 0)]
    assert held["float"]["conv1"] == "not in the configuration"
    assert "ONNX Runtime runs it in float" in held["float"]["conv2"]
    assert set(saved.floats) == {"conv2"}, "what the configuration does not name was not to be int8"
    assert "tensor_quantize" in held["float"]["conv2"]
    ascend = steps.save(tmp_path / "calibration.onnx", tmp_path / "amct.txt", tmp_path / "a", targets=["ascend"])
    held = quant_json.read(ascend.files["quant_json"])
    assert [(entry["name"], entry["scale_d"], entry["offset_d"]) for entry in held["layers"]] == [
        ("conv2", pytest.approx(0.02), 0)
    ]


def test_all_in_one_call_writes_what_the_steps_write(model, quantized, tmp_path):
    """The same record and models as step by step, with config and record beside them, and nothing else."""
    steps.calibrate(quantized / "calibration.onnx", BATCHES, quantized / "record.txt")
    saved = steps.all(model, BATCHES, tmp_path / "new" / "m", rules=Rules(batch_num=2))
    assert sorted(file.name for file in (tmp_path / "new").iterdir()) == [
        "m.config.json", "m.quant.json", "m.record.txt", "m_deploy_model.onnx", "m_fake_quant_model.onnx",
    ]  # fmt: skip
    assert scale_record.read(saved.files["record"]) == scale_record.read(quantized / "record.txt")
    assert config.read(saved.files["config"]) == steps.config(model, rules=Rules(batch_num=2))
    assert saved.real
    assert saved.parity["onnxruntime"].agreement == 1.0


def test_without_rules_the_default_ones_hold(model, tmp_path):
    """The same configuration as that of the first step alone."""
    saved = steps.all(model, 2 * BATCHES, tmp_path / "m")
    assert config.read(saved.files["config"]) == steps.config(model) == steps.config(model, rules=Rules())


def test_no_data_is_too_few(model, tmp_path):
    """The message is that of a calibration that saw too little."""
    with pytest.raises(DataError, match="calibration saw fewer than batch_num batches: 0 of 1"):
        steps.all(model, [], tmp_path / "m", rules=Rules(batch_num=1))


def test_as_many_threads_as_asked_for_calibrate(model, quantized, tmp_path, monkeypatch):
    """0, the runtime's own number, where nobody asks."""
    from qbench.quant.onnx.formats import calibration_file

    asked, calibrating = [], calibration_file.run

    def run(*given, threads, progress):
        asked.append(threads)
        return calibrating(*given, threads=threads, progress=progress)

    monkeypatch.setattr(calibration_file, "run", run)
    for options in ({}, {"threads": 1}):
        steps.calibrate(quantized / "calibration.onnx", BATCHES, quantized / "record.txt", **options)
        steps.all(model, BATCHES, tmp_path / "m", rules=Rules(batch_num=2), **options)
    assert asked == [0, 0, 1, 1]


def test_an_example_judges_what_is_fused(model, tmp_path, monkeypatch):
    """The first one of a batch; without it nothing is given."""
    settings, given, prepare = steps.config(model), [], steps_prepare.prepare

    def prepared(file, **options):
        given.append(options.get("example"))
        return prepare(file, **options)

    monkeypatch.setattr(steps_prepare, "prepare", prepared)
    for example in (None, BATCHES[0]):
        steps.quantize(model, settings, tmp_path / "c.onnx", tmp_path / "r.txt", example=example)
    assert given[0] is None
    np.testing.assert_array_equal(given[1][0], BATCHES[0][:1])


def test_layers_are_ranked_on_the_first_few_batches(quantized):
    """No further one is made; data that a function makes will do, and what does not fit is told."""
    steps.calibrate(quantized / "calibration.onnx", BATCHES, quantized / "record.txt")
    where, numbers = (quantized / "calibration.onnx", quantized / "record.txt"), []

    def batches():
        for number in range(9):
            numbers.append(number)
            yield BATCHES[0]

    steps.accuracy(*where, lambda path: 1.0, batches, quantized / "out", loss=0.5)
    assert numbers == [0, 1, 2, 3]
    with pytest.raises(DataError, match="calibration data: .*image"):
        steps.accuracy(*where, lambda path: 1.0, [{"other": BATCHES[0]}], quantized / "other", loss=0.5)


def test_a_small_model_is_saved_in_this_process(quantized, tmp_path, monkeypatch):
    """Its data is not copied to the disk; a large one's is, where there is any."""
    from qbench.quant.onnx import graph_process

    steps.calibrate(quantized / "calibration.onnx", BATCHES, quantized / "record.txt")
    where, kept, keep = (quantized / "calibration.onnx", quantized / "record.txt"), [], api.keep
    monkeypatch.setattr(api, "keep", lambda *given: kept.append(given[2]) or keep(*given))
    assert steps.save(*where, tmp_path / "here", data=BATCHES).real
    assert kept == []
    monkeypatch.setattr(graph_process, "LARGE", 0)
    assert not steps.save(*where, tmp_path / "random").real
    assert kept == []
    assert steps.save(*where, tmp_path / "apart", data=BATCHES).real
    assert kept == [api.EXAMPLES]


def test_a_model_that_no_random_inputs_fit_is_not_compared(quantized, monkeypatch):
    """Its document says so."""
    from qbench.onnx import save_models

    steps.calibrate(quantized / "calibration.onnx", BATCHES, quantized / "record.txt")
    monkeypatch.setattr(save_models, "compared", lambda *_: None)
    saved = steps.save(quantized / "calibration.onnx", quantized / "record.txt", quantized / "m")
    assert saved.parity == {"onnxruntime": None}
    assert quant_json.read(saved.files["quant_json"])["parity"] == {"onnxruntime": None}


def test_the_package_has_no_other_names():
    """But those of its steps and the session."""
    assert steps.CalibrationSession.__name__ == "CalibrationSession"
    with pytest.raises(AttributeError, match="module 'qbench.onnx' has no attribute 'nonsense'"):
        steps.nonsense  # noqa: B018


def test_a_calibration_that_fails_leaves_nothing(model, tmp_path):
    """Too few batches end all in one call before the first file is written."""
    with pytest.raises(DataError, match="calibration saw fewer than batch_num batches: 2 of 3"):
        steps.all(model, BATCHES, tmp_path / "m", rules=Rules(batch_num=3))
    assert not list(tmp_path.iterdir())


def test_data_that_can_be_had_once_is_enough(model, tmp_path):
    """A generator gives every batch to calibration; its first one also judges the graph and compares the models."""
    saved = steps.all(model, iter(BATCHES), tmp_path / "m", rules=Rules(batch_num=2))
    assert saved.real
    assert saved.parity["onnxruntime"].examples == 4
    again = steps.all(model, BATCHES, tmp_path / "n", rules=Rules(batch_num=2))
    assert scale_record.read(saved.files["record"]) == scale_record.read(again.files["record"])


@pytest.mark.parametrize("fixed", [False, True])
def test_the_data_judges_what_is_fused(tmp_path, monkeypatch, fixed):
    """The first example of the data goes through the model where graphs are compared; a batch that is demanded is
    whole. The models are compared on as many batches as it takes."""
    model = onnx_networks.save(onnx_networks.residual_cnn(batch=2 if fixed else "batch"), tmp_path)
    given_examples, prepare = [], steps_prepare.prepare
    monkeypatch.setattr(
        steps_prepare,
        "prepare",
        lambda file, **given: (given_examples.append(given["example"]), prepare(file, **given))[1],
    )
    data = [BATCHES[0][:2], BATCHES[1][:2]]
    saved = steps.all(model, lambda: iter(data), tmp_path / "out" / "m", rules=Rules(batch_num=2))
    np.testing.assert_array_equal(given_examples[0][0], data[0] if fixed else data[0][:1])
    assert len(given_examples) == 1
    assert saved.parity["onnxruntime"].examples == 4


def test_data_that_does_not_fit_is_told_at_once(model, tmp_path):
    """Before anything is prepared, with the batch and the way out."""
    with pytest.raises(DataError, match="calibration data, batch 1: input image takes float32, got float64"):
        steps.all(model, [BATCHES[0].astype(np.float64)], tmp_path / "m", rules=Rules(batch_num=1))
    assert not list(tmp_path.iterdir())


def test_a_form_is_asked_for(quantized):
    """The deploy model has its bytes, the document its name; what is narrowed is so in every model, and told."""
    steps.calibrate(quantized / "calibration.onnx", BATCHES, quantized / "record.txt")
    scales, words = {}, {}
    for form in ("U8U8", "U8S8-narrow", "U8S8"):
        saved = steps.save(quantized / "calibration.onnx", quantized / "record.txt", quantized / form, form=form)
        held = quant_json.read(saved.files["quant_json"])
        assert held["form"] == saved.form == form
        scales[form] = held["layers"][1]["scale_w"]
        words[form] = [line for line in text.saved(saved) if "16 bits" in line]
        graph = Graph.load(saved.files["onnxruntime"])
        assert graph.constant("conv2.weight_quantized").dtype == (np.uint8 if form == "U8U8" else np.int8)
    assert scales["U8S8"] == scales["U8U8"]
    assert scales["U8S8-narrow"][0] > scales["U8S8"][0]
    assert not words["U8S8"]
    assert not words["U8U8"]
    assert "--form U8U8" in words["U8S8-narrow"][0]
    assert min(scale_record.read(quantized / "record.txt")["conv2"].scale_w) == scales["U8S8"][0], "it stays as it is"
    with pytest.raises(UsageError, match="no form named 'S8U8'"):
        steps.save(quantized / "calibration.onnx", quantized / "record.txt", quantized / "m", form="S8U8")


def test_accuracy_scores_what_save_writes(quantized):
    """The model that the evaluator sees is the fake-quant model of the form for this machine, narrowed or not."""
    steps.calibrate(quantized / "calibration.onnx", BATCHES, quantized / "record.txt")
    outputs = []

    def evaluate(path):
        outputs.append(run(path, BATCHES[0]))
        return 1.0

    where = quantized / "calibration.onnx", quantized / "record.txt"
    steps.accuracy(*where, evaluate, BATCHES, quantized / "tuned", loss=0.5)
    saved = steps.save(*where, quantized / "m")
    np.testing.assert_array_equal(outputs[1], run(saved.files["fake_quant"], BATCHES[0]))
    other = steps.save(*where, quantized / "n", form="U8U8" if saved.form == "U8S8-narrow" else "U8S8-narrow")
    assert np.abs(outputs[1] - run(other.files["fake_quant"], BATCHES[0])).max() > 0


def test_where_no_layer_may_be_int8_nothing_is_left_to_calibrate(quantized):
    """The search then ends at the float model; a calibration model is written beside a configuration that has some."""
    steps.calibrate(quantized / "calibration.onnx", BATCHES, quantized / "record.txt")
    where = quantized / "calibration.onnx", quantized / "record.txt"
    steps.accuracy(*where, lambda path: 1.0, BATCHES, quantized / "some", loss=0.5)
    assert (quantized / "some" / "calibration.onnx").exists()
    scores = iter([1.0])
    outcome = steps.accuracy(*where, lambda path: next(scores, 0.0), BATCHES, quantized / "none", loss=0.5)
    assert not any(layer.quant_enable for layer in outcome.config.layers.values())
    assert not (quantized / "none" / "calibration.onnx").exists()


def test_the_model_is_never_changed(model, tmp_path):
    """Writing a step's result over the model is refused, and the steps leave the file as it was."""
    before = model.read_bytes()
    with pytest.raises(UsageError, match="is the model itself"):
        steps.quantize(model, steps.config(model), model, tmp_path / "record.txt")
    assert model.read_bytes() == before


def test_what_is_read_is_not_overwritten(quantized):
    """A prefix under which an output would replace the calibration model is refused."""
    steps.calibrate(quantized / "calibration.onnx", BATCHES, quantized / "record.txt")
    (quantized / "calibration.onnx").rename(quantized / "m_deploy_model.onnx")
    with pytest.raises(UsageError, match="would be overwritten while it is read"):
        steps.save(quantized / "m_deploy_model.onnx", quantized / "record.txt", quantized / "m")


def test_an_unknown_target_is_named(quantized):
    """The targets that exist are listed."""
    with pytest.raises(UsageError, match="no target named 'tensorrt'; available: onnxruntime, ascend"):
        steps.save(quantized / "calibration.onnx", quantized / "record.txt", quantized / "m", targets=["tensorrt"])


def test_a_quantized_model_is_not_quantized_again(model, tmp_path):
    """A deploy model as input is refused."""
    saved = steps.all(model, BATCHES, tmp_path / "m", rules=Rules(batch_num=2))
    with pytest.raises(ModelError, match="quantized"):
        steps.config(saved.files["onnxruntime"])


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_runs(model, tmp_path, name):
    """All steps with the rules of each preset give a model near the fp32 one."""
    saved = steps.all(model, BATCHES, tmp_path / "m", rules=replace(PRESETS[name], batch_num=2))
    exact, quantized = run(model, BATCHES[0]), run(saved.files["onnxruntime"], BATCHES[0])
    assert np.abs(quantized - exact).max() < 0.1 * np.abs(exact).max()


def wanted(network):
    return calibration_data.inputs(Graph(network))


@pytest.fixture(name="images", scope="module")
def images_(tmp_path_factory):
    """Six grey squares of growing brightness, in train, one in test."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("images")
    for split, count in (("train/a", 6), ("test/a", 1)):
        (folder / split).mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", (40, 20), (number * 50, 0, 255)).save(folder / split / f"{number}.png")
    return folder


def test_images_come_as_the_model_takes_them(images):
    """Of the input's size and layout, scaled to 0..1, then mean and std; the split train before the whole folder."""
    source = calibration_data.open_source(str(images), wanted(onnx_networks.residual_cnn()), {"mean": [0.0, 0.0, 0.5]})
    assert source.examples == 6
    (first, second) = [batch[0] for batch in source.batches(2, 3)()]
    assert first.shape == second.shape == (3, 3, 16, 16)
    assert first.dtype == np.float32
    assert sorted({*first[:, 0].ravel(), *second[:, 0].ravel()}) == pytest.approx([n * 50 / 255 for n in range(6)])
    assert np.all(first[:, 2] == 0.5)


def test_channels_come_in_the_order_that_is_asked_for(images):
    """`order: bgr` puts blue first, for a model that takes floats and for one that takes bytes."""
    taken = wanted(onnx_networks.residual_cnn())
    for declared, full in ((taken, 1.0), ((replace(taken[0], dtype=np.dtype(np.uint8)),), 255)):
        source = calibration_data.open_source(str(images), declared, {"order": "bgr"})
        ((batch,),) = source.batches(1, 6)()
        assert batch.dtype == declared[0].dtype
        assert np.all(batch[:, 0] == full)
        assert sorted({*batch[:, 2].ravel()}) == pytest.approx([n * 50 * full / 255 for n in range(6)])


@pytest.mark.parametrize(("split", "count"), [("test", 1), ("test/a", 1), (None, 6)])
def test_a_split_is_a_folder(images, split, count):
    """Without one the folder train is taken."""
    source = calibration_data.open_source(str(images), wanted(onnx_networks.residual_cnn()), {}, split)
    assert source.examples == count


def test_examples_are_drawn_by_seed(images):
    """The same seed draws the same images, and each pass gives the same batches."""
    source = calibration_data.open_source(str(images), wanted(onnx_networks.residual_cnn()), {})
    batches = source.batches(1, 3, seed=1)
    first, again, other = (
        next(iter(batches()))[0],
        next(iter(batches()))[0],
        next(iter(source.batches(1, 3, seed=2)()))[0],
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_arrays_named_like_the_inputs_are_taken_as_they_are(tmp_path):
    """An .npz with the model's own names feeds several inputs; no preprocessing is applied."""
    held = {"image": np.ones((5, 1, 8, 8), np.float32), "features": np.ones((5, 6), np.float32), "labels": np.ones(5)}
    names = [tensor.name for tensor in wanted(onnx_networks.two_inputs())]
    np.savez(tmp_path / "d.npz", **dict(zip([*names, "labels"], held.values(), strict=True)))
    source = calibration_data.open_source(str(tmp_path / "d.npz"), wanted(onnx_networks.two_inputs()), {})
    (batch,) = source.batches(1, 4)()
    assert {name: array.shape for name, array in batch.items()} == {names[0]: (4, 1, 8, 8), names[1]: (4, 6)}


def test_other_arrays_are_the_data_set(tmp_path):
    """An .npz with splits is qbench's data set, with its preprocessing."""
    np.savez(
        tmp_path / "d.npz", train_inputs=np.full((5, 3, 16, 16), 255, np.uint8), test_inputs=np.zeros((1, 3, 16, 16))
    )
    source = calibration_data.open_source(
        str(tmp_path / "d.npz"), wanted(onnx_networks.residual_cnn()), {"scale": "1/255"}
    )
    ((batch,),) = source.batches(1, 2)()
    assert batch.dtype == np.float32
    assert np.all(batch == 1)


def test_a_function_makes_the_batches(tmp_path):
    """Without parameters it is called for each pass; with a split it is a data set."""
    (tmp_path / "d.py").write_text(
        "import numpy as np\n"
        "def batches():\n    for n in range(3):\n        yield np.full((50, 3, 16, 16), n, np.float32)\n"
        "def load(split):\n    return np.zeros((7, 3, 16, 16), np.float32), None\n"
    )
    taken = wanted(onnx_networks.residual_cnn())
    source = calibration_data.open_source(f"{tmp_path}/d.py:batches", taken, {})
    batches = source.batches(3, 1)
    assert [[batch[0, 0, 0, 0] for batch in batches()] for _ in range(2)] == [[0, 1, 2]] * 2
    assert calibration_data.shaped(source, None, None, None) == (3, 1), "three batches hold the first 128 examples"
    assert calibration_data.open_source(f"{tmp_path}/d.py:load", taken, {}).examples == 7


@pytest.mark.parametrize(
    ("examples", "number", "size", "fixed", "expected"),
    [
        (1000, None, None, None, (4, 32)),
        (1000, None, None, 1, (128, 1)),
        (1000, None, 64, None, (2, 64)),
        (20, None, None, None, (1, 20)),
        (20, 4, None, None, (4, 5)),
        (20, 4, 8, None, (4, 8)),
        (20, None, None, 8, (2, 8)),
        (3, 8, None, None, (8, 1)),
    ],
)
def test_batches_follow_from_what_there_is(examples, number, size, fixed, expected):
    """128 examples where nothing is asked for; what is asked for stays, and what the model demands goes first."""
    source = calibration_data.Source(name="x", examples=examples, read=lambda index: ())
    assert calibration_data.shaped(source, number, size, fixed) == expected


@pytest.mark.parametrize(
    ("where", "options", "message"),
    [
        ("nowhere", {}, r"--data nowhere: no such folder; give a folder of images, an .npz file, .* \(.*digits"),
        ("nowhere.npz", {}, "no such file"),
        ("{images}/test/b", {}, "no such folder"),
        ("~nobody-of-that-name/x", {}, "--data ~nobody-of-that-name/x: no such folder"),
        ("{images}", {"sizes": 3}, "no option 'sizes'; did you mean 'size'?"),
        ("{images}", {"size": [1, 2, 3]}, "size: expected a whole number or \\[height, width\\]"),
    ],
)
def test_data_that_is_not_there_is_named(images, where, options, message):
    """What was looked for and what could be given."""
    with pytest.raises(DataError, match=message):
        calibration_data.open_source(where.format(images=images), wanted(onnx_networks.residual_cnn()), options)


def test_an_empty_folder_and_a_model_of_other_inputs_are_refused(images, tmp_path):
    """No image, and images for a model that takes none."""
    with pytest.raises(DataError, match="no images; read are .png"):
        calibration_data.open_source(str(tmp_path), wanted(onnx_networks.residual_cnn()), {})
    with pytest.raises(DataError, match="images are for a model with one input of 4 dimensions"):
        calibration_data.open_source(str(images), wanted(onnx_networks.mlp()), {})


def test_a_model_of_any_size_needs_the_size(images):
    """Height and width that the model leaves open must be given."""
    network = onnx_networks.residual_cnn()
    for axis in (2, 3):
        network.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = "any"
    with pytest.raises(DataError, match="input image of the model takes any size; say which: --set size=224"):
        calibration_data.open_source(str(images), wanted(network), {})
    source = calibration_data.open_source(str(images), wanted(network), {"size": 8})
    assert next(iter(source.batches(1, 1)()))[0].shape == (1, 3, 8, 8)


@pytest.mark.parametrize(
    ("size", "fixed", "remedy"),
    [
        (8, None, "give more data or lower --batch-size"),
        (8, 8, "the model takes 8 at once: give at least 8 examples, or export it with a dynamic batch axis"),
        (8, 2, "the model takes 2 at once: leave --batch-size out"),
    ],
)
def test_fewer_examples_than_a_batch_are_refused(images, size, fixed, remedy):
    """The advice is one that can be followed: a size that the model's file fixes cannot be lowered."""
    source = calibration_data.open_source(str(images), wanted(onnx_networks.residual_cnn()), {})
    with pytest.raises(DataError) as raised:
        source.batches(1, size, fixed=fixed)
    assert str(raised.value).endswith(f": 6 examples, a batch has {size}; {remedy}")


def test_the_batch_that_a_model_demands_reaches_the_advice(images):
    """What the command line calibrates on says so for a model file that fixes its batch."""
    chosen = onnx_options.Chosen(where=str(images), options=None, split=None, batch_size=None)
    taken = calibration_data.Wanted(inputs=wanted(onnx_networks.residual_cnn(batch=8)), batch_size=8)
    for ask in (lambda: chosen.batches(taken, None), lambda: chosen.first(taken, 16)):
        with pytest.raises(DataError, match="the model takes 8 at once: give at least 8 examples"):
            ask()


def test_a_skipped_layer_is_told_where_models_are_written(model, tmp_path):
    """``qbench onnx all`` prints no other list of what stays float."""
    (tmp_path / "config.json").write_text(
        """{"version":1, "batch_num":1, "activation_offset":true, "do_fusion":true, "skip_fusion_layers":[],
        "conv1":{"quant_enable":false},
        "conv2":{"quant_enable":true, "weight_quant_params":{"channel_wise":false}}}"""
    )
    (tmp_path / "record.txt").write_text(
        'record { key: "conv2" value { scale_d: 0.02 offset_d: 0 scale_w: 0.01 offset_w: 0 } }\n'
    )
    steps.quantize(model, tmp_path / "config.json", tmp_path / "calibration.onnx", tmp_path / "empty.txt")
    saved = steps.save(tmp_path / "calibration.onnx", tmp_path / "record.txt", tmp_path / "m", targets=["ascend"])
    assert "float: conv1: skipped by the configuration" in list(text.saved(saved))


def test_data_without_an_example_is_refused(tmp_path):
    """A function of the user's may give nothing."""
    (tmp_path / "none.py").write_text("def batches():\n    return iter(())\n")
    chosen = onnx_options.Chosen(where=f"{tmp_path}/none.py:batches", options=None, split=None, batch_size=None)
    taken = calibration_data.Wanted(inputs=wanted(onnx_networks.residual_cnn()), batch_size=None)
    with pytest.raises(DataError, match="none.py:batches: it gives no batch; give data that has examples"):
        chosen.example(taken)


def test_the_words_name_what_is_int8_and_what_is_not(tmp_path):
    """Layers by operator; each reason once, with its layers; operators that become part of others are not listed."""
    file = onnx_networks.save(onnx_networks.tokens(), tmp_path)
    lines = list(text.quantized(api.configured(file, Rules(skip_layers=("fc",)))))
    assert lines[0] == "int8: MatMul 1"
    assert "float: scores, mix: its weight is not constant" in lines
    assert "float: fc: skipped by the configuration" in lines
    assert any(line.startswith("float operators: ") and "LSTM 1" in line for line in lines)


def test_a_deploy_model_that_differs_is_a_warning():
    """On data of the user's, more other predictions than rounding explains are told."""
    parity = Parity(examples=64, agreement=60 / 64, largest_difference=0.5, relative_difference=0.1)
    lines = list(text.saved(steps.Saved(files={}, parity={"onnxruntime": parity}, real=True)))
    assert lines == [
        "onnxruntime against fake_quant on 64 given examples: 93.8% of the predictions as simulated, largest "
        "difference 0.5 (0.1 of the largest output)",
        "warning: onnxruntime: fewer than 99.5% agree, more than rounding explains: compare the accuracy "
        "of both models before you ship this one",
    ]


@pytest.mark.parametrize(
    ("equal", "examples", "told"),
    [(32, 32, False), (31, 32, False), (29, 32, True), (995, 1000, False), (987, 1000, True)],
)
def test_a_few_other_predictions_of_a_few_are_no_warning(equal, examples, told):
    """One of 32 may be chance where 99.5 % of all agree; thirteen of 1,000 are not."""
    assert text.surprising(equal / examples, examples) is told


def test_the_onnx_package_is_not_shadowed():
    """qbench.onnx is qbench's module, and onnx stays the format's."""
    assert steps.__name__ == "qbench.onnx"
    assert hasattr(onnx, "ModelProto")


def written(model, folder):
    file = folder / "net.onnx"
    onnx.save(model, file)
    return file


def through(file, batches, folder, **rules):
    """config, quantize, calibrate, save; what calibrate and save found."""
    settings = steps.config(file, rules=Rules(batch_num=len(batches), **rules))
    steps.quantize(file, settings, folder / "c.onnx", folder / "r.txt")
    calibrated = steps.calibrate(folder / "c.onnx", batches, folder / "r.txt")
    return calibrated, steps.save(folder / "c.onnx", folder / "r.txt", folder / "m", data=batches)


def test_a_network_without_weights_is_calibrated(tmp_path):
    """Only an AveragePool, or only inputs named under tensor_quantize: the record is empty until calibrate fills it."""
    draft = onnx_networks.Draft()
    x = draft.add("AveragePool", ["image"], "pool", kernel_shape=[2, 2], strides=[2, 2])
    draft.add("MaxPool", [x], "max", kernel_shape=[2, 2], strides=[2, 2], outputs=["y"])
    file = written(draft.model({"image": ["batch", 3, 16, 16]}, {"y": ["batch", 3, 4, 4]}), tmp_path)
    assert "pool" in through(file, BATCHES, tmp_path)[0].record
    tensors = (TensorConfig(layer_name="max", input_index=0),)
    held = steps.Config(batch_num=2, tensor_quantize=tensors)
    steps.quantize(file, held, tmp_path / "c.onnx", tmp_path / "r.txt")
    assert list(steps.calibrate(tmp_path / "c.onnx", BATCHES, tmp_path / "r.txt").record) == ["max:0"]


def test_values_that_become_zero_are_a_warning(model, tmp_path):
    """An input below 3e-5 has no scale of its own: all of it is quantized to zero, and so are the outputs behind it."""
    draft = onnx_networks.Draft()
    draft.conv("image", "conv", 3, 4, bias=False)
    draft.nodes[-1].output[0] = "y"
    file = written(draft.model({"image": ["batch", 3, 16, 16]}, {"y": ["batch", 4, 16, 16]}), tmp_path)
    calibrated, saved = through(file, [batch * 1e-6 for batch in BATCHES], tmp_path)
    assert any("conv: its input reaches" in line and "below 3e-5" in line for line in calibrated.warnings)
    assert any("every output of the quantized model is zero" in line for line in text.saved(saved))
    calibrated, saved = through(file, BATCHES, tmp_path)
    assert not any("3e-5" in line for line in calibrated.warnings)
    assert not any("is zero" in line for line in text.saved(saved))


def test_a_convolution_along_one_axis_runs_in_int8(tmp_path):
    """ONNX Runtime has the kernel; the Ascend compiler has not, so that model keeps it float."""
    draft = onnx_networks.Draft()
    x = draft.add("Relu", [draft.conv("signal", "first", 2, 8, dims=1)], "relu")
    draft.conv(x, "second", 8, 4, dims=1)
    draft.nodes[-1].output[0] = "y"
    file = written(draft.model({"signal": ["batch", 2, 32]}, {"y": ["batch", 4, 32]}), tmp_path)
    rng = np.random.default_rng(0)
    batches = [rng.standard_normal((8, 2, 32)).astype(np.float32) for _ in range(2)]
    settings = steps.config(file, rules=Rules(batch_num=2))
    steps.quantize(file, settings, tmp_path / "c.onnx", tmp_path / "r.txt")
    steps.calibrate(tmp_path / "c.onnx", batches, tmp_path / "r.txt")
    alone = steps.save(tmp_path / "c.onnx", tmp_path / "r.txt", tmp_path / "n")
    assert alone.floats == {}
    saved = steps.save(tmp_path / "c.onnx", tmp_path / "r.txt", tmp_path / "m", targets=steps.TARGETS, data=batches)
    assert list(saved.floats) == ["first", "second"]
    assert all("whose compiler quantizes no convolution along one axis" in why for why in saved.floats.values())
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(str(saved.files["onnxruntime"]), options, providers=["CPUExecutionProvider"])
    kinds = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
    assert "QLinearConv" in kinds
    assert "Conv" not in kinds
    ascend = Graph.load(saved.files["ascend"], valid=False)
    assert ascend.constant(ascend.node("first").input[1]).dtype == np.float32


def test_what_a_file_asks_of_a_layer_is_what_amct_documents(model, tmp_path):
    """``channel_wise`` belongs to convolutions, a balance to what has weights; the message names config.json."""
    file = tmp_path / "config.json"
    steps.config(model, file, rules=Rules(batch_num=2))
    held = config.read(file)
    wise = replace(held.layers["fc"], weight=replace(held.layers["fc"].weight, channel_wise=True))
    config.write(replace(held, layers={**held.layers, "fc": wise}), file)
    with pytest.raises(UsageError) as told:
        steps.quantize(model, file, tmp_path / "c.onnx", tmp_path / "r.txt")
    assert str(told.value) == (
        f"{file}: fc.weight_quant_params.channel_wise: only Conv and ConvTranspose take true; a Gemm has one scale"
    )
    config.write(replace(held, layers={**held.layers, "conv77": wise}), file)
    with pytest.raises(UsageError, match=r"config.json: no layer named 'conv77'"):
        steps.quantize(model, file, tmp_path / "c.onnx", tmp_path / "r.txt")


def test_scales_are_rounded_to_float16_where_a_file_asks_for_it(model, tmp_path):
    """AMCT's FORCE_FP16_QUANT: scale_d of every record entry is a float16."""
    settings = steps.config(model, rules=Rules(batch_num=2, fp16_scales=True))
    steps.quantize(model, settings, tmp_path / "c.onnx", tmp_path / "r.txt")
    calibrated = steps.calibrate(tmp_path / "c.onnx", BATCHES, tmp_path / "r.txt")
    scales = [entry.scale_d for entry in calibrated.record.values() if entry.scale_d is not None]
    assert scales
    assert all(float(np.float16(scale)) == scale for scale in scales)


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ("scale_d: 1e-30", "scale_d 1e-30 is outside"),
        ("scale_d: 0.1 shift_bit: 40", "shift_bit 40 is outside [1, 16]"),
        ("scale_d: 0.1 scale_w: 1e-20", "scale_w[0] 1e-20 is outside"),
    ],
)
def test_a_record_has_scales_as_documented(entry, what):
    """What no calibration writes is refused by its key."""
    with pytest.raises(UsageError) as told:
        scale_record.loads(f'record {{ key: "conv" value {{ {entry} }} }}', name="r.txt")
    assert str(told.value).startswith(f"r.txt: 'conv': {what}")


def test_the_graph_of_a_large_model_is_worked_on_apart(model, tmp_path, monkeypatch):
    """Its memory ends with a process; errors come back as they are, and what is written is the same."""
    from qbench.quant.onnx import graph_process

    settings = steps.config(model, rules=Rules(batch_num=2))
    monkeypatch.setattr(graph_process, "LARGE", 0)
    assert steps.config(model, rules=Rules(batch_num=2)) == settings
    for name in ("here", "apart"):
        monkeypatch.setattr(graph_process, "LARGE", 0 if name == "apart" else 2**40)
        steps.quantize(model, settings, tmp_path / f"{name}.onnx", tmp_path / f"{name}.txt")
        steps.calibrate(tmp_path / f"{name}.onnx", BATCHES, tmp_path / f"{name}.txt")
    assert (tmp_path / "here.onnx").read_bytes() == (tmp_path / "apart.onnx").read_bytes()
    assert (tmp_path / "here.txt").read_text() == (tmp_path / "apart.txt").read_text()
    with pytest.raises(UsageError, match=r"no layer named 'conv77'"):
        steps.config(model, rules=Rules(skip_layers=("conv77",)))


def test_the_models_of_a_large_network_are_saved_apart(model, tmp_path, monkeypatch):
    """The same files and the same comparison as in this process; data is drawn here, from whatever object gives it."""
    from qbench.quant.onnx import graph_process

    steps.quantize(model, steps.config(model, rules=Rules(batch_num=2)), tmp_path / "c.onnx", tmp_path / "r.txt")
    steps.calibrate(tmp_path / "c.onnx", BATCHES, tmp_path / "r.txt")
    saved = {}
    for name, large in (("here", 2**40), ("apart", 0)):
        monkeypatch.setattr(graph_process, "LARGE", large)
        (tmp_path / name).mkdir()
        prefix = tmp_path / name / "m"
        told = steps.save(tmp_path / "c.onnx", tmp_path / "r.txt", prefix, data=lambda: (batch for batch in BATCHES))
        saved[name] = told.parity, told.real, {file.name: file.read_bytes() for file in prefix.parent.iterdir()}
    assert saved["here"] == saved["apart"]
    with pytest.raises(UsageError, match="no target named 'tpu'"):
        steps.save(tmp_path / "c.onnx", tmp_path / "r.txt", tmp_path / "m", targets=("tpu",))
    with pytest.raises(DataError, match="calibration data, batch 1: "):
        steps.save(tmp_path / "c.onnx", tmp_path / "r.txt", tmp_path / "m", data=[np.zeros((1, 2), np.float32)])


def test_ctrl_c_while_a_process_writes_leaves_nothing(model, tmp_path, monkeypatch):
    """Neither its half-written files nor its temporary ones stay; what stood there before does."""
    from qbench.process import child_process as process_worker
    from qbench.quant.onnx import graph_process

    monkeypatch.setattr(graph_process, "LARGE", 0)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", None)
    target = tmp_path / "made.onnx"
    target.write_text("before")
    begun = tmp_path / "begun"

    def interrupted(worker, method, *args, **kwargs):
        worker._send((method, args))
        while not begun.exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(process_worker.Worker, "ask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        graph_process.run(model, onnx_networks.write_for_ever, target, begun, written=(target,))
    begun.unlink()
    assert target.read_text() == "before"
    assert not list((tmp_path / "temporary").iterdir())
    assert {path.name for path in tmp_path.iterdir()} <= {"temporary", "made.onnx", model.name}
