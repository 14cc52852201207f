"""What a run starts from: examples and networks, checked once, the same for every variant."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from qbench import network as fp32_network
from qbench import registry
from qbench.cache import store
from qbench.data import DataRequest
from qbench.data_preparation import prepare_data
from qbench.errors import DataError, EvaluateError, ModelError
from qbench.metrics.spec import MetricSpec
from qbench.models import dry_run, trainer
from qbench.models import weights as weights_file
from qbench.models.base import InputForm, ModelReference, Network, OwnInt8
from qbench.models.postprocess import Postprocess

NETWORKS = Path(__file__).parent / "fixtures" / "networks.py"

TOP1 = MetricSpec(name="top1")


@pytest.fixture
def root(tmp_path):
    return store.open_cache(tmp_path / "cache")


def ignore(text, share):
    pass


def request(**changes):
    values = {
        "loader": "digits",
        "value": None,
        "options": {},
        "base": Path(),
        "calibrate_split": "train",
        "calibrate_samples": 32,
        "calibrate_seed": 0,
        "evaluate_split": "test",
        "evaluate_samples": 20,
        "evaluate_seed": 0,
        "train": False,
    }
    return DataRequest(**values | changes)


def prepare(root, **changes):
    return prepare_data(request(**changes), root, progress=ignore)


def network(name, **changes):
    return ModelReference(**{"name": "mine", "source": "python", "path": NETWORKS, "attribute": name} | changes)


def npz(folder, **changes):
    rng = np.random.default_rng(0)
    arrays = {
        "train_inputs": rng.random((40, 1, 8, 8), dtype=np.float32),
        "train_labels": np.arange(40) % 10,
        "test_inputs": rng.random((20, 1, 8, 8), dtype=np.float32),
        "test_labels": np.arange(20) % 10,
    }
    np.savez(folder / "d.npz", **arrays | changes)
    return {"loader": "npz", "value": "d.npz", "base": folder}


def test_examples_are_preprocessed_by_one_object(root):
    """Calibration, training and evaluation come through the same preprocessing, one float32 array per input."""
    data = prepare(root, train=True)
    assert data.calibration()[0].shape == (32, 1, 8, 8)
    assert data.evaluation(0, 5)[0].dtype == np.float32
    (images,), labels = data.training()
    assert len(images) == len(labels) > 1000
    assert abs(images.mean()) < 0.05
    assert len(data.evaluation_ids()) == len(data.evaluation_labels()) == data.evaluation_count == 20


def test_the_digests_follow_the_examples(root):
    """The same request gives the same digests and the same folder; another seed or size others."""
    first, same, seed, size = (
        prepare(root),
        prepare(root),
        prepare(root, calibrate_seed=1),
        prepare(root, evaluate_samples=19),
    )
    assert first == same
    assert first.calibration_digest != seed.calibration_digest
    assert first.evaluation_digest == seed.evaluation_digest != size.evaluation_digest


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"calibrate_split": "validation"}, r"no split 'validation'; there are: train, test"),
        ({"calibrate_samples": 5000}, r"5000 were asked for, there are 1347"),
        ({"evaluate_samples": 451}, r"451 were asked for, there are 450"),
    ],
)
def test_a_request_that_cannot_be_met_says_what_there_is(root, changes, words):
    """A missing split and too many samples name what exists."""
    with pytest.raises(DataError, match=words):
        prepare(root, **changes)


def test_nan_inputs_are_refused_by_example(root, tmp_path):
    """NaN in the data is found before anything is built."""
    bad = np.zeros((20, 1, 8, 8), np.float32)
    bad[7, 0, 0, 0] = np.nan
    with pytest.raises(DataError, match=r"1 of 20 examples have NaN.*test\[7\]"):
        prepare(root, **npz(tmp_path, test_inputs=bad), evaluate_samples=None)


def test_a_factory_with_random_weights_gives_one_network(root):
    """Its weights are drawn once and cached: every later load has the very same."""
    data = prepare(root)
    model = fp32_network.prepare_model(network("unseeded"), data, TOP1, root, progress=ignore)
    first, second = (fp32_network.load_network(model.reference, model.weights).module for _ in range(2))
    for own, again in zip(first.parameters(), second.parameters(), strict=True):
        assert np.array_equal(own.detach().numpy(), again.detach().numpy())


def test_inputs_in_another_order_are_another_file(root, tmp_path):
    """Their order is that of the arrays: what the cache holds of one is not the other's."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in ("a", "b", "y")]
    graph = helper.make_graph([helper.make_node("Sub", ["a", "b"], ["y"])], "g", ports[:2], ports[2:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "n.onnx")
    file = Network(kind="onnx", path=tmp_path / "n.onnx")
    example = (np.full((1, 3), 5, np.float32), np.full((1, 3), 3, np.float32))

    def answer(*order):
        reference = ModelReference(name="mine", inputs={name: InputForm(axis=0) for name in order})
        path, _ = fp32_network._adapt_file(file, reference, example, root)
        return float(dry_run.try_outputs(Network(kind="onnx", path=path), example)[0, 0])

    assert (answer("a", "b"), answer("b", "a")) == (2.0, -2.0)


def test_the_model_digests_follow_weights_and_arguments(root, tmp_path):
    """Another weight or another argument of the factory is another model."""
    source = tmp_path / "mine.py"
    source.write_text(
        "import torch\n"
        "def build(value=0.5, flag=1):\n"
        "    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))\n"
        "    torch.nn.init.constant_(model[1].weight, value)\n"
        "    return model\n"
    )
    data = prepare(root)

    def digests(**args):
        reference = network("build", path=source, args=args)
        model = fp32_network.prepare_model(reference, data, TOP1, root, progress=ignore)
        return model.weights_digest, model.code_digest

    base, weight, flag = digests(), digests(value=0.25), digests(flag=2)
    assert base[0] != weight[0]
    assert base[0] == flag[0]
    assert base[1] != flag[1]


def test_a_network_that_does_not_take_the_data_says_so(root, tmp_path):
    """Shapes are named; nothing is built first."""
    wide = np.random.default_rng(0).random((60, 7), dtype=np.float32)
    data = prepare(root, **npz(tmp_path, train_inputs=wide[:40], test_inputs=wide[40:]), evaluate_samples=None)
    with pytest.raises(ModelError, match=r"mine does not take this data \(float32\[4, 7\]\)"):
        fp32_network.prepare_model(network("residual_cnn"), data, TOP1, root, progress=ignore)


def test_outputs_that_do_not_fit_the_metric_are_refused(root, tmp_path):
    """A model of 10 outputs cannot be judged on labels up to 15."""
    labels = np.arange(20) % 16
    data = prepare(root, **npz(tmp_path, test_labels=labels[::-1].copy()), evaluate_samples=None)
    with pytest.raises(ModelError, match="mine: .*15"):
        fp32_network.prepare_model(network("residual_cnn"), data, TOP1, root, progress=ignore)


def test_one_hot_labels_are_told_as_such(root, tmp_path):
    """With the line that makes them classes, before anything is built."""
    one_hot = {f"{split}_labels": np.eye(10)[np.arange(count) % 10] for split, count in (("train", 40), ("test", 20))}
    data = prepare(root, **npz(tmp_path, **one_hot), evaluate_samples=None)
    with pytest.raises(ModelError, match=r"mine: labels are one-hot, .* `labels.argmax\(axis=1\)`"):
        fp32_network.prepare_model(network("residual_cnn"), data, TOP1, root, progress=ignore)


@pytest.mark.parametrize(("output", "outputs"), [(None, ("0", "1")), (0, ("0", "1")), (1, ("1", "0"))])
def test_outputs_that_no_label_judges_are_told(root, tmp_path, output, outputs):
    """In a note, where the suite does not say which of several counts; that one comes first, and none is lost."""
    source = tmp_path / "mine.py"
    source.write_text(
        "import torch\n"
        "class Two(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.head = torch.nn.Linear(64, 10)\n"
        "    def forward(self, x):\n"
        "        y = self.head(torch.flatten(x, 1))\n"
        "        return y, y + 1\n"
    )
    reference = network("Two", path=source, output=output)
    model = fp32_network.prepare_model(reference, prepare(root), TOP1, root, progress=ignore)
    assert model.outputs == outputs
    said = "mine: it returns 2 outputs (0, 1, counted from 0), and the labels judge only the first"
    assert [note.startswith(said) for note in model.notes] == [True] * (output is None)


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        (("logits",), None),
        (("logits", "boxes"), "m: it returns 2 outputs (logits, boxes), and the labels judge only the first; "),
        (("0", "1"), "m: it returns 2 outputs (0, 1, counted from 0), and the labels judge only the first; "),
    ],
)
def test_outputs_are_told_by_name_or_counted(outputs, words):
    """Where there are several; the next one is what to write."""
    notes = fp32_network._say_first("m", outputs)
    assert len(notes) == (words is not None)
    assert all(note.startswith(words) and f"`output: {outputs[1]}` beside" in note for note in notes)


@pytest.mark.parametrize(
    ("output", "outputs", "names"),
    [(None, ("a",), ()), (None, ("a", "b"), ("a", "b")), ("b", ("b", "a"), ())],
)
def test_a_postprocess_is_given_outputs_by_name_where_the_suite_names_none(output, outputs, names):
    """One alone is given as it is."""
    own = Postprocess(attribute="fn", file=Path("mine.py"))
    named = fp32_network._name_outputs(ModelReference(name="m", output=output, own_postprocess=own), outputs)
    assert named == replace(own, names=names)
    assert fp32_network._name_outputs(ModelReference(name="m", source="onnx"), outputs) is None


def test_an_axis_without_a_name_does_not_hide_the_other_outputs(root, tmp_path):
    """`output: {axis: 1}` takes the first output, and the rest is told as where nothing is said."""
    source = tmp_path / "mine.py"
    source.write_text(
        "import torch\n"
        "class Two(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.head = torch.nn.Linear(64, 10)\n"
        "    def forward(self, x):\n"
        "        y = self.head(torch.flatten(x, 1)).transpose(0, 1)\n"
        "        return y, y + 1\n"
    )
    reference = network("Two", path=source, output_axis=1)
    model = fp32_network.prepare_model(reference, prepare(root), TOP1, root, progress=ignore)
    assert model.outputs == ("0", "1")
    assert any(note.startswith("mine: it returns 2 outputs (0, 1, counted from 0)") for note in model.notes)


def test_a_built_in_is_trained_once(root):
    """The second preparation finds the weights and reports no training."""
    data = prepare(root)
    heard: list[str] = []
    told = []
    for _ in range(2):
        heard.clear()
        quick = ModelReference(name="digits-cnn", training={"epochs": 1})
        fp32_network.prepare_model(quick, data, TOP1, root, progress=lambda text, share: heard.append(text))
        told.append(any("epoch" in text for text in heard))
    assert told == [True, False]


def test_what_a_package_s_weights_were_fitted_on_is_not_evaluated(root, tmp_path, monkeypatch):
    """A built-in whose weights were fitted on evaluation examples is refused, not scored."""
    builtin = registry.load("model", "digits-cnn")
    file = tmp_path / "fitted.safetensors"
    weights_file.save_weights(trainer.fresh(builtin), file)
    digits = registry.load("dataset", "digits")(None, base=tmp_path, options={})
    for split, refused in (("train", False), ("test", True)):
        fitted = replace(builtin, training=None, weights=lambda: file, fitted_on=lambda split=split: digits.load(split))
        monkeypatch.setattr("qbench.models.digits_cnn.MODEL", fitted)
        reference, said = (
            ModelReference(name="digits-cnn"),
            "digits-cnn was trained on 20 of the 20 evaluation examples",
        )
        with pytest.raises(DataError, match=said) if refused else nullcontext():
            fp32_network.prepare_model(reference, prepare(root), TOP1, root, progress=ignore)
        allowed = prepare(root, allow_overlap=True)
        notes = fp32_network.prepare_model(reference, allowed, TOP1, root, progress=ignore).notes
        assert [note == said for note in notes] == [True] * refused


def test_int8_files_beside_a_network_are_adapted_as_it_is(monkeypatch):
    """Each by the kind that it is; one that needs nothing stays, and one of OpenVINO is taken as it is."""
    asked = []

    def adapt_file(network, reference, example, root):
        asked.append((network.kind, network.path and network.path.name))
        return None if network.path == Path("b.onnx") else (Path(f"adapted {len(asked)}"), "a note")

    monkeypatch.setattr(fp32_network, "_adapt_file", adapt_file)
    scripted = lambda reference: Network(kind="torchscript", path=reference.path)  # noqa: E731
    monkeypatch.setattr(
        fp32_network.registry, "load", lambda kind, name: {("source", "torchscript"): scripted}[kind, name]
    )
    monkeypatch.setattr(
        fp32_network, "load_network", lambda reference, weights: Network(kind="onnx", path=reference.path)
    )
    files = ("a.onnx", "d.xml", "b.onnx", "c.pt")
    own = tuple(OwnInt8(recipe=file, path=Path(file), file=file, mode="static") for file in files)
    reference = ModelReference(
        name="mine", path=Path("m.onnx"), int8=own, inputs={"x": InputForm(axis=1)}, output="y", output_axis=1
    )
    data = SimpleNamespace(one_shape=False)
    plain, network, note = fp32_network._adapt_network(reference, Network(kind="onnx", path=Path("m.onnx")), data, None)
    assert asked == [("onnx", "m.onnx"), ("onnx", "a.onnx"), ("onnx", "b.onnx"), ("torchscript", "c.pt")]
    assert [file.path for file in plain.int8] == [Path("adapted 2"), Path("d.xml"), Path("b.onnx"), Path("adapted 4")]
    assert (network.path, note, plain.adapted) == (Path("adapted 1"), "a note", False)
    untouched = fp32_network._adapt_network(reference, Network(kind="onnx", path=Path("b.onnx")), data, None)
    assert untouched == (reference, Network(kind="onnx", path=Path("b.onnx")), None)


def metric_that(problem):
    """A metric with this problem, and the labels that it is shown."""
    shown = []

    def look(outputs, labels, classes):
        shown.append(None if labels is None else labels.tolist())
        return problem

    return SimpleNamespace(load=lambda: SimpleNamespace(problem=look)), shown


@pytest.mark.parametrize(
    ("labels", "tried"),
    [
        (None, None),
        (np.array([3, 1, 2, 9, 0]), [0, 9, 3]),
        (np.array([[3], [1], [2], [9]]), [[3], [1], [2]]),
    ],
)
def test_a_metric_is_tried_with_the_extremes_of_all_labels(labels, tried):
    """A class that the network lacks is found at once; where the metric judges, no other is asked."""
    data = SimpleNamespace(evaluation_labels=lambda: labels, classes=None)
    metric, shown = metric_that(None)
    other, never = metric_that("no")
    assert fp32_network._require_judged(np.zeros((3, 4)), data, metric, other, "mine") is None
    assert (shown, never) == ([tried], [])


def test_what_no_metric_judges_is_refused():
    """With the first one's reason; what another judges is told."""
    data = SimpleNamespace(evaluation_labels=lambda: None, classes=None)
    wrong, fine = metric_that("no classes")[0], metric_that(None)[0]
    assert fp32_network._require_judged(np.zeros((3, 4)), data, wrong, fine, "mine") == "no classes"
    for otherwise in (None, wrong):
        with pytest.raises(ModelError, match="^mine: no classes$"):
            fp32_network._require_judged(np.zeros((3, 4)), data, wrong, otherwise, "mine")


@pytest.mark.parametrize(
    ("outputs", "begins"),
    [
        (("logits",), ()),
        (("logits", "boxes"), ("m: it returns 2 outputs (logits, boxes), and the labels judge only the first; ",)),
        (
            ("0", "1", "2"),
            ("m: it returns 3 outputs (0, 1, 2, counted from 0), and the labels judge only the first; ",),
        ),
    ],
)
def test_of_several_outputs_it_is_said_that_the_first_is_judged(outputs, begins):
    """And what to write for the second."""
    notes = fp32_network._say_first("m", outputs)
    assert [note.partition("the rest is")[0] for note in notes] == [*begins]
    assert all(f"`output: {outputs[1]}` beside the model's name judges that one instead" in note for note in notes)


QUANTIZED = """
import torch
from qbench.quant.pytorch import torch_ao

class Float(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(64, 10)

    def forward(self, x):
        return self.head(torch.flatten(x, 1))

class Calls(Float):
    def forward(self, x):
        return super().forward(torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize())

def layers():
    with torch_ao.known_warnings():
        return torch_ao.quantize_dynamic(Float(), {torch.nn.Linear})
"""


@pytest.mark.parametrize(("attribute", "is_refused"), [("Float", False), ("Calls", True), ("layers", True)])
def test_a_network_that_is_quantized_already_is_no_fp32(root, tmp_path, attribute, is_refused):
    """By its layers, or by what it does as it is called."""
    (tmp_path / "mine.py").write_text(QUANTIZED)
    reference, told = network(attribute, path=tmp_path / "mine.py"), []
    with pytest.raises(ModelError, match="mine: already quantized") if is_refused else nullcontext():
        fp32_network.prepare_model(
            reference, prepare(root), TOP1, root, progress=lambda text, share: told.append((text.split()[0], share))
        )
    assert told == [("try", 0.9)] * (attribute != "layers")


@pytest.mark.parametrize(
    ("error", "is_raised"),
    [(RuntimeError("std::bad_alloc"), True), (RuntimeError("no such index"), False), (ModelError("misfit"), False)],
)
def test_a_network_that_takes_no_made_up_inputs_is_named_by_the_rest(monkeypatch, error, is_raised):
    """Unless memory ran out: that says nothing of it."""

    def fail(*_):
        raise error

    monkeypatch.setattr(fp32_network, "_try", fail)
    data = SimpleNamespace(probe=lambda batch: (np.zeros((batch, 3)),))
    with pytest.raises(RuntimeError, match="bad_alloc") if is_raised else nullcontext():
        assert fp32_network._digest_outputs(None, data) is None


@pytest.mark.parametrize(("to_float", "hint"), [(True, "; write to_float: false"), (False, "")])
@pytest.mark.parametrize(("available", "probes"), [(20, 4), (3, 3)])
def test_what_to_write_is_looked_for_where_bytes_became_floats(monkeypatch, to_float, hint, available, probes):
    """With the raw examples that it was tried on: four, or all where there are fewer."""
    looked = []

    def refuse(network, inputs):
        raise dry_run.Misfit("it looks tokens up")

    monkeypatch.setattr(fp32_network, "_try", refuse)
    monkeypatch.setattr(
        dry_run, "find_hint", lambda network, raw: looked.append(raw[0].shape) or "; write to_float: false"
    )
    data = SimpleNamespace(
        evaluation_count=available, preprocessing=SimpleNamespace(to_float=to_float),
        evaluation=lambda start, stop: (np.zeros((stop - start, 7), np.float32),),
        _raw=lambda part: (np.zeros((available, 7), np.uint8),),
    )  # fmt: skip
    with pytest.raises(ModelError) as refused:
        fp32_network._try_network(None, data, "mine")
    assert str(refused.value) == f"mine does not take this data (float32[{probes}, 7]): it looks tokens up{hint}"
    assert looked == [(probes, 7)] * to_float


@pytest.mark.parametrize("labels", [None, np.arange(9)])
@pytest.mark.parametrize(("of_metric", "where"), [(True, "mine"), (False, "mine: postprocess")])
def test_a_postprocess_is_tried_on_the_labels_of_its_examples(monkeypatch, labels, of_metric, where):
    """Four of them; what it cannot do is told as its own, or as the metric's."""
    given = []

    def answer(outputs, labels):
        given.append((outputs, labels if labels is None else labels.tolist()))
        if len(given) > 1:
            raise EvaluateError("no text")
        return "answers"

    monkeypatch.setattr(dry_run, "try_all_outputs", lambda network, inputs: inputs)
    own = SimpleNamespace(load=lambda: answer, of_metric=of_metric)
    data = SimpleNamespace(
        evaluation_count=9, evaluation_labels=lambda: labels, evaluation=lambda start, stop: (start, stop)
    )
    assert fp32_network._try_postprocess(own, None, data, "mine") == "answers"
    assert given == [((0, 4), None if labels is None else [0, 1, 2, 3])]
    with pytest.raises(ModelError, match=f"^{where}: no text$"):
        fp32_network._try_postprocess(own, None, data, "mine")


@pytest.mark.parametrize(
    ("alphabet", "problem", "notes"),
    [(("a",), "2 letters", ("mine: 2 letters",)), (("a",), None, ()), (None, "never asked", ()), ((), "never", ())],
)
def test_letters_that_nobody_can_write_are_told(monkeypatch, alphabet, problem, notes):
    """Where the postprocess says which it has."""
    monkeypatch.setattr(fp32_network, "describe_unknown_letters", lambda *_: problem)
    own = SimpleNamespace(read_alphabet=lambda: alphabet)
    data = SimpleNamespace(evaluation_labels=lambda: None, evaluation_ids=list)
    assert fp32_network._say_unknown_letters(own, data, "mine") == notes


@pytest.mark.parametrize(
    ("counted", "axis", "is_kept"), [(None, 0, False), ("y", 0, True), (0, 0, True), (None, 1, True)]
)
def test_a_network_is_kept_as_it_returns_its_outputs_where_the_suite_says_more(monkeypatch, counted, axis, is_kept):
    """Which one counts, or along which axis its examples lie; the whole one says neither."""
    asked = []
    monkeypatch.setattr(fp32_network, "_load", lambda reference, trained: (f"loaded by {trained}", None))
    monkeypatch.setattr(
        fp32_network,
        "_adapt_network",
        lambda reference, network, data, root: asked.append((reference, network)) or (reference, "whole", None),
    )
    reference = ModelReference(name="m", output=counted, output_axis=axis)
    assert fp32_network._keep_outputs(reference, "weights", None, None) == ("whole" if is_kept else None)
    assert asked == [(ModelReference(name="m"), "loaded by weights")] * is_kept


def test_a_metric_that_sums_outputs_up_takes_no_postprocess():
    """It reads them itself; one that takes them as they are sums nothing up."""
    metric = SimpleNamespace(name="nll", load=lambda: SimpleNamespace(summary=True))
    summary = fp32_network._find_summary(ModelReference(name="m", source="onnx"), metric)
    assert (summary.attribute, summary.of_metric) == ("nll", True)
    own = Postprocess(attribute="fn", file=Path("mine.py"))
    with pytest.raises(ModelError, match="m: nll reads the logits of all tokens, not what a postprocess makes of them"):
        fp32_network._find_summary(ModelReference(name="m", own_postprocess=own), metric)
    assert fp32_network._find_summary(ModelReference(name="m", own_postprocess=own), TOP1) is None


def test_each_note_on_a_network_stands_beside_the_others(root, tmp_path):
    """A configuration that its author gave it, and outputs that no label judges."""
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "class Two(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.head = torch.nn.Linear(64, 10)\n"
        "        self.head.qconfig = 'own'\n"
        "    def forward(self, x):\n"
        "        y = self.head(torch.flatten(x, 1))\n"
        "        return y, y + 1\n"
        "def first(outputs):\n"
        "    return outputs['0']\n"
    )
    reference, data = network("Two", path=tmp_path / "mine.py"), prepare(root)
    first, second = fp32_network.prepare_model(reference, data, TOP1, root, progress=ignore).notes
    answers = replace(reference, own_postprocess=Postprocess(attribute="first", file=tmp_path / "mine.py"))
    assert fp32_network.prepare_model(answers, data, TOP1, root, progress=ignore).notes == (first,)
    assert first.startswith("the qconfig that the code gives head is used by")
    assert second.startswith("mine: it returns 2 outputs")
