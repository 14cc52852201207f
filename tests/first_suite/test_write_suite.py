"""`qbench init`: a suite from a model and data as users have them, which plans, and runs at once."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import people_files
import pytest
import torch
import typer
from user_layouts import DATA, NET, arrays, save_arrays, save_images, save_model

import qbench
from qbench import registry, suite
from qbench.cli import main
from qbench.errors import UsageError
from qbench.first_suite.data_facts import describe_data
from qbench.first_suite.model_facts import describe_model
from qbench.first_suite.write_suite import write_first_suite
from qbench.plan import planner


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folder in which a user works."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(model, data=None, target="first.yaml"):
    """The suite that was written, as it is read, with what the planner makes of it."""
    written = write_first_suite(model, data, Path(target))
    read = suite.read(written.file)
    planned = planner.make_plan(read, planner.load_backends(read), cores=2)
    assert [entry.case for entry in planned.cases]
    return written, read


def test_an_onnx_file_and_an_image_folder_run_at_once(place):
    """With the size of the file's input, the labels of the folders, and what was assumed as a comment."""
    written, read = write(save_model(place), save_images(place / "photos"))
    assert read.data.dataset["image-folder"] == "photos"
    assert read.data.dataset["size"] == 8
    assert written.notes == ("mean and std are ImageNet's: write what training used",)
    assert "  # mean and std are ImageNet's: write what training used\n" in written.file.read_text()
    assert read.gate.accuracy.metric == "top1"
    run = qbench.run("first.yaml", overrides=["matrix.backends=[onnxruntime]", "measure.max_seconds=0.1"], quiet=True)
    statuses = qbench.load(run.folder)["status"]
    assert set(statuses) == {"ok"}


def test_a_fixed_batch_is_the_one_that_is_measured(place):
    """A case of another size would be skipped, so that nothing is decided."""
    _, read = write(save_model(place, shape=(4, 3, 8, 8)), save_images(place / "photos"))
    assert read.matrix.batch_sizes == (4,)
    _, read = write(save_model(place, "any"), "photos", "any.yaml")
    assert read.matrix.batch_sizes == (1,)


def test_without_data_inputs_are_random(place):
    """By a function that is written, too, and says so; nothing is claimed of accuracy."""
    written, read = write(save_model(place))
    assert written.code == Path("model_data.py")
    assert read.data.dataset == {"python": "model_data.py:load"}
    assert "random inputs: latency and size are real, accuracy is not" in written.file.read_text()
    assert "\nload.note = " in written.code.read_text()
    names: dict[str, object] = {}
    exec(written.code.read_text(), names)  # what was just written
    inputs, labels = names["load"]("test")  # type: ignore[operator]
    assert inputs[0].shape == (64, 3, 8, 8)
    assert labels is None


def test_a_recurrent_network_runs_at_once(place):
    """Its state has the examples behind its layers, and its rate is the same in every call: both are written; whole
    numbers are of the type that it takes."""
    values = {"frame": ("n", 6), "rate": (), "state": (2, "n", 6), "kind": ("n", 1)}
    types = {"rate": onnx.TensorProto.INT64, "kind": onnx.TensorProto.INT32}
    tensors = [
        onnx.helper.make_tensor_value_info(name, types.get(name, onnx.TensorProto.FLOAT), sizes)
        for name, sizes in (*values.items(), ("answer", ("n", 4)))
    ]
    weight = onnx.numpy_helper.from_array(np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32), "w")
    first = onnx.numpy_helper.from_array(np.array([0]), "first")
    nodes = [
        onnx.helper.make_node("ReduceSum", ["state", "first"], ["memory"], keepdims=0),
        onnx.helper.make_node("Cast", ["rate"], ["speed"], to=onnx.TensorProto.FLOAT),
        onnx.helper.make_node("Cast", ["kind"], ["kinds"], to=onnx.TensorProto.FLOAT),
        onnx.helper.make_node("Mul", ["frame", "speed"], ["faster"]),
        onnx.helper.make_node("Add", ["faster", "memory"], ["both"]),
        onnx.helper.make_node("MatMul", ["both", "w"], ["product"]),
        onnx.helper.make_node("Add", ["product", "kinds"], ["answer"]),
    ]
    graph = onnx.helper.make_graph(nodes, "g", tensors[:4], tensors[4:], [weight, first])
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), "voice.onnx"
    )
    written, read = write("voice.onnx")
    assert written.notes[-1] == "rate is 1 in every call: write what it is in yours"
    assert read.models[0].inputs["state"].axis == 1
    assert read.models[0].inputs["rate"].constant == 1
    overrides = [
        "matrix.backends=[onnxruntime]",
        "measure.max_seconds=0.1",
        "gate.accuracy={metric: sqnr, at_least: 1}",
    ]
    run = qbench.run("first.yaml", overrides=overrides, quiet=True)
    assert set(qbench.load(run.folder)["status"]) == {"ok"}


@pytest.mark.parametrize("layout", DATA)
def test_data_as_users_have_them(layout, place):
    """Two splits are named, no more examples are drawn than there are, and labels are judged where there are some."""
    written, read = write(save_model(place), DATA[layout](place))
    assert read.data.calibrate.split != read.data.evaluate.split
    assert read.data.calibrate.samples <= 60
    labelled = layout not in ("splits without classes", "images alone", "npz without labels", "fewer classes")
    assert ("accuracy: {metric: top1" in written.file.read_text()) == labelled
    if layout == "outputs by number":
        assert read.data.dataset["classes"] == 4
    if layout == "fewer classes":  # which output is which nobody knows: fp32's outputs judge, and the suite runs
        assert written.code == Path("model_classes.txt")
        assert written.code.read_text() == "cat\ndog\noutput 2\noutput 3\n"
        assert "accuracy: {metric: sqnr, at_least: 20}" in written.file.read_text()
        assert "2 folders of classes, 4 outputs: write their names into model_classes.txt" in written.file.read_text()


def test_the_form_of_images_is_the_models(place):
    """One channel, and channels that come last."""
    photos = save_images(place / "photos")
    _, read = write(save_model(place, "grey", ("batch", 1, 12, 8)), photos, "grey.yaml")
    assert {key: read.data.dataset[key] for key in ("size", "channels")} == {"size": [12, 8], "channels": 1}
    assert "mean" not in read.data.dataset
    inputs = (("x", ["n", 16, 16, 3]),)
    last = people_files.write(place / "last.onnx", [people_files.node("Relu", ["x"], "y")], {}, inputs=inputs)
    _, read = write(str(last), photos, "last.yaml")
    assert read.data.dataset["layout"] == "nhwc"


def test_what_nobody_counted_is_not_asked_for(place, monkeypatch, capsys):
    """A function's examples: its suite takes as many as it gives, so that it runs at once."""
    (place / "few.py").write_text(
        "import numpy as np\n"
        "def load(split):\n"
        "    rng = np.random.default_rng(len(split))\n"
        "    return rng.normal(size=(40, 3, 8, 8)).astype('float32'), rng.integers(0, 4, 40)\n"
    )
    written, _ = write(save_model(place), "few.py:load")
    assert "  calibrate: {split: train}\n" in written.file.read_text()
    changes = ("--set", "matrix.backends=[onnxruntime]", "--set", "measure.max_seconds=0.1")
    assert run_command(monkeypatch, capsys, "run", "first.yaml", "--quick", "--quiet", *changes)[0] == 0


def test_a_network_in_python_and_one_of_torchscript(place):
    """Each on the backends that build from it."""
    (place / "my_net.py").write_text(NET)
    data = save_arrays(place / "d.npz", inputs=arrays()[0], labels=arrays()[1])
    _, read = write("my_net.py:build", data, "python.yaml")
    assert read.models[0].name == "my_net"
    assert {"torch", "onnxruntime"} <= set(read.matrix.backends)
    from qbench.quant.artifacts import tracing

    with tracing.known_warnings():
        torch.jit.save(torch.jit.trace(torch.nn.Linear(4, 4), torch.randn(1, 4)), place / "traced.pt")
    _, read = write("traced.pt", data, "script.yaml")
    assert (read.matrix.modes, read.matrix.backends) == (("fp32",), ("torch",))
    _, read = write("digits-cnn", "digits", "built_in.yaml")
    assert read.models[0].name == "digits-cnn"


@pytest.mark.parametrize(
    ("model", "data", "words"),
    [
        ("none.onnx", None, r"none\.onnx: no such file; a model is an \.onnx or TorchScript file"),
        ("net.py", None, r"net\.py: name the function that returns the network, as in net\.py:build"),
        ("net.py:build", None, r"only an ONNX file tells their shapes: give --data"),
        ("none.py:build", None, r"none\.py: no such file"),
        ("int8.onnx", None, r"int8\.onnx: it is int8 already, and a suite starts from a float model"),
        ("state.pt", None, r"a state dict needs its network: give file\.py:function"),
        ("model.onnx", "many", r"many: 5 folders of classes, and an example has 4 output\(s\): leave folders out"),
        ("model.onnx", "none", r"none: no such file; data are an image folder"),
        ("model.onnx", "net.py", r"net\.py: no data that is known; data are an image folder"),
        ("model.onnx", "texts.csv", r"texts\.csv: texts need the model's tokenizer"),
        ("net.txt", None, r"'\.txt' is no format that a suite builds from"),
    ],
)
def test_what_it_cannot_make_a_suite_of_is_told(model, data, words, place):
    """And nothing is written."""
    save_model(place)
    save_images(place / "many", classes="abcde")
    people_files.sound(place / "int8.onnx")
    (place / "net.py").write_text(NET)
    (place / "net.txt").write_text("x")
    (place / "texts.csv").write_text("text,label\nfine,0\n")
    torch.save({"w": torch.zeros(1)}, place / "state.pt")
    with pytest.raises(UsageError, match=words):
        write_first_suite(model, data, None)
    assert not list(place.glob("*.yaml"))


def test_files_that_are_there_stay(place):
    """Unless they are to go."""
    model = save_model(place)
    (place / "model_data.py").write_text("mine")
    with pytest.raises(UsageError, match=r"^model_data\.py is there already: `qbench run model.yaml` runs the suite"):
        write_first_suite(model, None, None)
    assert (place / "model_data.py").read_text() == "mine"
    assert not (place / "model.yaml").exists()
    with pytest.raises(UsageError, match=r"model_data\.py/a\.yaml: cannot be written"):
        write_first_suite(model, None, Path("model_data.py/a.yaml"))
    both = write_first_suite(model, None, None, force=True)
    assert both.names == "model.yaml and model_data.py"
    assert "random inputs" in (place / "model.yaml").read_text()
    with pytest.raises(UsageError, match=r"^model\.yaml and model_data\.py are there already: `qbench run model.yaml`"):
        write_first_suite(model, None, None)


def test_a_suite_lies_where_it_is_to_with_its_code_beside_it(place):
    """What is not labelled asks for no margin, and says none; a folder that is missing is made."""
    asked = []
    written = write_first_suite(
        save_model(place), None, Path("inner/a.yaml"), ask=lambda question, default: asked.append(question) or default
    )
    assert (written.file, written.code) == (Path("inner/a.yaml"), Path("inner/model_data.py"))
    assert len(asked) == 1
    text = written.file.read_text()
    assert "margin" not in text
    assert write_first_suite("model.onnx", save_images(place / "photos"), Path("b.yaml")).names == "b.yaml"


def test_the_command_says_what_to_run_next(place, monkeypatch, capsys):
    """The files, what was assumed, and the next command."""
    save_model(place)
    save_images(place / "photos")
    monkeypatch.setattr(sys, "argv", ["qbench", "init", "model.onnx", "--data", "photos"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 0
    assert capsys.readouterr().out == (
        "wrote model.yaml\nassumed: mean and std are ImageNet's: write what training used\n"
        "next: qbench run model.yaml\n"
    )


ANSWERS = {"Data": "photos", "Were": "no", "Percentage": "0.5"}


def answer(question, default):
    return next(text for word, text in ANSWERS.items() if question.startswith(word))


def test_what_nothing_tells_is_asked(place):
    """Three questions at most; what was answered is no assumption."""
    save_images(place / "photos")
    asked = []

    def ask(question, default):
        asked.append(question)
        return answer(question, default)

    written = write_first_suite(save_model(place), None, Path("asked.yaml"), ask=ask)
    read = suite.read(written.file)
    assert len(asked) == 3
    assert "mean" not in read.data.dataset
    assert read.gate.accuracy.margin == 0.5
    assert written.notes == ("pixels are 0 to 1: write scale, mean and std as in training",)
    random = write_first_suite("model.onnx", None, Path("random.yaml"), ask=lambda question, default: default)
    assert random.code == Path("model_data.py")
    with pytest.raises(UsageError, match="few: expected percentage points"):
        write_first_suite("model.onnx", "photos", Path("few.yaml"), ask=lambda question, default: "few")


@pytest.mark.parametrize(
    ("options", "terminals", "count"),
    [
        ((), ("stdin", "stdout"), 3),
        (("--yes",), ("stdin", "stdout"), 0),
        (("--data", "photos"), ("stdin", "stdout"), 2),
        ((), ("stdin",), 0),
        ((), ("stdout",), 0),
    ],
)
def test_only_a_terminal_is_asked(options, terminals, count, place, monkeypatch):
    """One that is read and one that is written; and it is not with --yes."""
    save_model(place)
    save_images(place / "photos")
    asked = []

    def prompt(question, default):
        asked.append(question)
        return answer(question, default)

    monkeypatch.setattr(typer, "prompt", prompt)
    for name in ("stdin", "stdout"):
        monkeypatch.setattr(getattr(sys, name), "isatty", lambda name=name: name in terminals, raising=False)
    monkeypatch.setattr(sys, "argv", ["qbench", "init", "model.onnx", *options])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 0
    assert len(asked) == count


def run_command(monkeypatch, capsys, *arguments):
    """Exit code, standard output and error of a command."""
    monkeypatch.setattr(sys, "argv", ["qbench", *arguments])
    with pytest.raises(SystemExit) as ended:
        main.main()
    return ended.value.code, *capsys.readouterr()


def test_a_model_is_run_in_one_step(place, monkeypatch, capsys):
    """The suite is written, its place and what was assumed are said beside the JSON, and it runs; once it is there, it
    is what one runs."""
    save_model(place)
    save_images(place / "photos")
    command = ("run", "model.onnx", "--data", "photos", "--quick", "--quiet", "--json")
    code, output, errors = run_command(
        monkeypatch, capsys, *command, "--set", "matrix.backends=[onnxruntime]", "--set", "measure.max_seconds=0.1"
    )
    assert code == 0
    assert {record["status"] for record in json.loads(output)["records"]} == {"ok"}
    assert errors.splitlines()[:2] == [
        "wrote model.yaml", "assumed: mean and std are ImageNet's: write what training used",
    ]  # fmt: skip
    code, _, errors = run_command(monkeypatch, capsys, *command)
    assert code == 2
    assert "model.yaml is there already: `qbench run model.yaml` runs the suite" in errors
    code, _, errors = run_command(monkeypatch, capsys, "run", "model.yaml", "--data", "photos")
    assert code == 2
    assert "--data is that of a model" in errors


def test_what_fails_of_a_file_points_to_check(place, monkeypatch, capsys):
    """A failed case says in words what happened; what the file is, another command says."""
    save_model(place)
    write("model.onnx", save_images(place / "photos"))
    people_files.unknown_operator(place / "model.onnx")
    code, output, _ = run_command(monkeypatch, capsys, "run", "first.yaml", "--quiet")
    assert code == 1
    assert f"`qbench check {place / 'model.onnx'}` says what each runtime makes of it" in output


TABLES = {
    "images": {"image": {"_type": "Image"}, "label": {"names": ["a", "b"], "_type": "ClassLabel"}},
    "texts": {"id": {"dtype": "int32"}, "sentence": {"dtype": "string", "_type": "Value"}},
    "numbers": {"x": {"feature": {"dtype": "float32"}, "_type": "Sequence"}},
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("split", ["", "train"])
def test_a_saved_data_set_is_read_by_its_columns(table, split, place, monkeypatch):
    """Images become what the model takes, texts its tokens; the library itself opens it."""
    opened = []

    class Stored:
        splits, classes, labels = ("train", "test"), 2, ("a", "b")

        def count(self, split):
            return 20

    def load(name):
        return lambda value, *, base, options: opened.append((name, value, options)) or Stored()

    folder = place / "saved" / split
    folder.mkdir(parents=True)
    (folder / "dataset_info.json").write_text(json.dumps({"features": TABLES[table]}))
    (place / "saved" / "dataset_dict.json").write_text("{}")
    (place / "tokenizer.json").write_text("{}")
    facts = describe_model(save_model(place), Path())
    monkeypatch.setattr(registry, "load", lambda kind, name: load(name))
    data = describe_data("saved", facts, Path())
    ((name, value, options),) = opened
    assert (name, value, data.samples, data.labelled) == ("huggingface", "saved", 20, True)
    if table == "images":
        assert options["size"] == 8
    elif table == "texts":
        assert (options["text"], options["tokenizer"]) == ("sentence", "tokenizer.json")
        assert data.dataset.startswith("{huggingface: saved, text: sentence, tokenizer: tokenizer.json")
    else:
        assert options == {}


def test_what_is_wrong_in_what_was_written_is_said_at_once(place):
    """As of any suite that is read: a function that cannot be called so."""
    (place / "data.py").write_text("def load(split): ...")
    with pytest.raises(UsageError, match=r"first\.yaml:\d+:\d+: data"):
        write_first_suite(save_model(place), "data.py:no name", Path("first.yaml"))
