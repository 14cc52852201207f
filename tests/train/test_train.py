"""qbench.train.train: a built-in is trained once, on the suite's data; a killed training ends with the same weights."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from qbench import network as fp32_network
from qbench import registry, suite
from qbench.cache import store
from qbench.cli import main
from qbench.data import Data, DataRequest, request_of
from qbench.data_preparation import prepare_data
from qbench.errors import DataError, ModelError, SuiteError, UsageError, WorkerError
from qbench.machine import fingerprint
from qbench.metrics.spec import MetricSpec
from qbench.models import trainer
from qbench.models.base import ModelReference
from qbench.models.trainer import TrainingOutcome
from qbench.models.weights import save_weights
from qbench.process.child_process import Limits, call
from qbench.progress.live import Silent
from qbench.suite import Suite
from qbench.train import text as train_text
from qbench.train import train
from qbench.train.train import Trained

LSTM = ModelReference(name="digits-lstm", training={"epochs": 1})
CNN = ModelReference(name="digits-cnn", training={"epochs": 1})
DIGITS = "{dataset: digits}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A cache of the test's own."""
    return store.open_cache(tmp_path / "cache")


def ignore(text: str, share: float) -> None:
    """Progress that nobody reads."""


def make_suite(data: str = DIGITS, models: str = "[digits-lstm]", folder: Path | None = None) -> Suite:
    """A suite of these models on this data, whose paths start from a folder."""
    text = f"suite: s\nmodels: {models}\ndata: {data}\nmatrix: {{}}\n"
    return suite.parse(text, file="s.yaml" if folder is None else str(folder / "s.yaml"))


def prepared(of: Suite, root: Path) -> tuple[Data, DataRequest]:
    """The examples of a suite."""
    request = request_of(of.data, of.base, train=False)
    return prepare_data(request, root, progress=ignore), request


def trained(reference: ModelReference, root: Path, of: Suite | None = None, **options: Any) -> Trained:
    """The weights of a built-in for a suite's data, in this process."""
    data, request = prepared(of or make_suite(), root)
    return train.train_builtin(reference, data, request, root, **{"progress": ignore, **options})


def npz(folder: Path, *, shape: tuple[int, ...] = (1, 8, 8), classes: int = 3, **changes: Any) -> str:
    """A data set of noise in a file, and how a suite names it; a change of None leaves an array out."""
    random = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "train_inputs": random.random((24, *shape), dtype=np.float32),
        "train_labels": np.arange(24) % classes,
        "test_inputs": random.random((12, *shape), dtype=np.float32),
        "test_labels": np.arange(12) % classes,
    }
    np.savez(folder / "d.npz", **{key: value for key, value in (arrays | changes).items() if value is not None})
    return "{dataset: {npz: d.npz}, calibrate: {samples: 8}}"


def told(function: Callable[..., Any], *arguments: Any, **options: Any) -> list[str]:
    """The texts that a training tells while it goes."""
    heard: list[str] = []
    function(*arguments, **options, progress=lambda text, share: heard.append(text))
    return heard


# --- once, by content -------------------------------------------------------------------------------------------


def test_what_was_trained_is_found_again(root: Path) -> None:
    """The same question is answered from the cache without an epoch; whoever asks is told which it was."""
    first = trained(LSTM, root)
    heard: list[tuple[str, float]] = []
    second = trained(LSTM, root, progress=lambda *step: heard.append(step))
    assert (first.fresh, second.fresh) == (True, False)
    assert replace(first, fresh=False) == second
    assert heard == [("read the training examples", 0.0)]


def test_seed_epochs_and_data_make_other_weights_and_cores_do_not(root: Path, tmp_path: Path) -> None:
    """Whatever decides the weights is in the key; the number of cores decides nothing."""
    base = trained(CNN, root, cores=1)
    assert trained(CNN, root, cores=2).file == base.file
    others = [replace(CNN, training={**CNN.training, **more}) for more in ({"seed": 1}, {"epochs": 2})]
    files = {base.file, *(trained(other, root).file for other in others)}
    files.add(trained(CNN, root, make_suite(npz(tmp_path), folder=tmp_path)).file)
    assert len({store.file_digest(file) for file in files}) == len(files) == 4


def test_a_run_uses_the_weights_that_were_trained(root: Path) -> None:
    """The suite's `train` leads to the same weights as the options of the command: nothing is trained again."""
    of = make_suite(models="[{name: digits-lstm, train: {epochs: 1, seed: 7}}]")
    (reference,) = of.references()
    assert reference.training == {"epochs": 1, "seed": 7}
    by_command = trained(replace(LSTM, training={"epochs": 1, "seed": 7}), root)
    data, _ = prepared(of, root)
    heard = told(fp32_network.prepare_model, reference, data, MetricSpec(name="top1"), root)
    model = fp32_network.prepare_model(reference, data, MetricSpec(name="top1"), root, progress=ignore)
    assert not any("epoch" in text for text in heard)
    assert model.weights is not None
    stored, used = load_file(by_command.file), load_file(model.weights)
    assert all(np.array_equal(stored[name], used[name]) for name in stored)


def test_damaged_weights_are_made_again_and_it_is_said(root: Path) -> None:
    """A changed byte in the cache is no network; the bytes that come back are those that were there."""
    first = trained(CNN, root)
    sound = first.file.read_bytes()
    first.file.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    again = trained(CNN, root)
    assert again.fresh
    assert again.file.read_bytes() == sound
    assert "damaged (model.safetensors has changed)" in again.notes[0]


# --- killed and resumed -----------------------------------------------------------------------------------------


def train_and_die(
    data: Data, request: DataRequest, root: Path, share: float, *, progress: Callable[[str, float], None]
) -> None:
    """Trains in this process, which is killed as ``kill -9`` does once the training is that far."""
    trainer.CHECKPOINT_SECONDS = 0.0

    def kill(text: str, done: float) -> None:
        if done >= share:
            os.kill(os.getpid(), signal.SIGKILL)

    train.train_builtin(LSTM, data, request, root, progress=kill)


def test_a_killed_training_goes_on_to_the_same_weights(root: Path, tmp_path: Path) -> None:
    """After SIGKILL in mid-epoch the next attempt does the rest only, ends bit-equal, and leaves no checkpoint."""
    data, request = prepared(make_suite(), root)
    with pytest.raises(WorkerError, match="SIGKILL"):
        call(train_and_die, data, request, root, 0.5, limits=Limits(seconds=120))
    assert [path.name for path in (root / train.UNFINISHED).glob("*/*")] == ["qat.pt"]
    resumed = trained(LSTM, root)
    whole = trained(LSTM, store.open_cache(tmp_path / "other"))
    assert 0.5 <= resumed.outcome.resumed < 1
    assert whole.outcome.resumed == 0
    assert resumed.file.read_bytes() == whole.file.read_bytes()
    assert (resumed.outcome.loss, resumed.outcome.accuracy) == (whole.outcome.loss, whole.outcome.accuracy)
    assert list((root / train.UNFINISHED).iterdir()) == []


def test_a_damaged_checkpoint_is_a_beginning(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be read does not stop a training: it begins anew."""
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0.0)

    def stop(text: str, share: float) -> None:
        if share > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(LSTM, root, progress=stop)
    (stored,) = (root / train.UNFINISHED).glob("*/*")
    stored.write_bytes(stored.read_bytes()[:1000])
    assert trained(LSTM, root).outcome.resumed == 0


# --- the data ---------------------------------------------------------------------------------------------------


def test_channels_and_classes_follow_the_data(root: Path, tmp_path: Path) -> None:
    """Colour images of four classes are trained and run by a network of three channels and four outputs."""
    of = make_suite(npz(tmp_path, shape=(3, 8, 8), classes=4), "[mobilenet-small]", tmp_path)
    data, _ = prepared(of, root)
    reference = ModelReference(name="mobilenet-small", training={"epochs": 1})
    model = fp32_network.prepare_model(reference, data, MetricSpec(name="top1"), root, progress=ignore)
    network = fp32_network.load_network(model.reference, model.weights)
    assert model.reference.args == {"channels": 3, "classes": 4}
    assert network.module.stem[0].weight.shape[1] == 3
    assert network.module.head.weight.shape[0] == 4


def test_without_labels_the_models_own_data_set_teaches_it(root: Path, tmp_path: Path) -> None:
    """Unlabelled examples can be evaluated; what the network knows then comes from elsewhere, and it is said."""
    of = make_suite(npz(tmp_path, train_labels=None), folder=tmp_path)
    result = trained(CNN, root, of)
    assert (result.dataset, result.split, result.reference.args) == ("digits", "train", {"classes": 10})
    assert result.file == trained(CNN, root).file
    assert result.notes == (
        "digits-cnn cannot be trained on npz:d.npz (the examples of its split 'train' have no labels): it is trained "
        "on its own data set, digits",
    )


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"train_labels": np.linspace(0, 1, 24)}, DataError, r"labels must be whole numbers from 0 on.*float64"),
        ({"train_labels": np.arange(24) - 1}, DataError, "must be whole numbers from 0 on.*from -1 to 22"),
        (
            {"train_labels": np.arange(24) + 1990},
            DataError,
            "must be whole numbers from 0 on.*from 1990 to 2013",
        ),
        ({"train_inputs": np.full((24, 1, 8, 8), np.nan)}, DataError, "have NaN or infinite inputs"),
        (
            {"train_inputs": np.zeros((24, 1, 9, 9), np.float32)},
            ModelError,
            r"does not take this data .*\[2, 1, 9, 9\]",
        ),
    ],
)
def test_data_that_teaches_nothing_is_refused(
    changes: dict[str, Any], error: type[Exception], words: str, root: Path, tmp_path: Path
) -> None:
    """Values that are no classes, no numbers, or of another shape are found before the first epoch."""
    with pytest.raises(error, match=words):
        trained(CNN, root, make_suite(npz(tmp_path, **changes), folder=tmp_path))


def test_no_network_learns_what_it_is_evaluated_on(root: Path, tmp_path: Path) -> None:
    """A training example among those of the evaluation is an error, also where calibration drew it not."""
    same = np.random.default_rng(1).random((24, 1, 8, 8), dtype=np.float32)
    inputs = np.random.default_rng(2).random((12, 1, 8, 8), dtype=np.float32)
    sample = np.random.RandomState(0).permutation(24)[:8]
    inputs[0] = same[next(i for i in range(24) if i not in sample)]
    of = make_suite(npz(tmp_path, train_inputs=same, test_inputs=inputs), folder=tmp_path)
    with pytest.raises(DataError, match="digits-cnn was trained on 1 of the 12 evaluation examples"):
        trained(CNN, root, of)


def test_a_training_that_diverges_says_what_to_lower(root: Path) -> None:
    """The rate that was too high stands in the message."""
    with pytest.raises(ModelError, match=r"diverged: the loss is (nan|inf); lower learning_rate \(it is 1e\+30\)"):
        trained(replace(LSTM, training={"epochs": 1, "learning_rate": 1e30}), root)


# --- which models -----------------------------------------------------------------------------------------------


TRAINABLE = "digits-cnn, digits-lstm, mobilenet-small, resnet20, reviews-decoder, shapes-detector, shapes-unet"
MINE = "{name: mine, source: {python: 'net.py:build'}}"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("resnet2", f"no model named 'resnet2'; did you mean 'resnet20'? available: {TRAINABLE} (those that"),
        ("magika", f"s.yaml: magika comes with its weights; qbench trains {TRAINABLE}"),
        ("mine", f"s.yaml: mine is a model of your own, with its own weights; qbench trains {TRAINABLE}"),
        ("digits-cnn", "has weights there already, {base}/w.safetensors; remove `weights` to train it"),
    ],
)
def test_what_is_not_trained_here_is_refused_by_name(name: str, words: str) -> None:
    """Typing errors, models that carry their weights, and models of the user's: each is told what can be trained."""
    of = make_suite(models=f"[{MINE}, {{name: digits-cnn, weights: w.safetensors}}]")
    with pytest.raises(UsageError) as caught:
        train.reference_of(of, name)
    assert words.format(base=of.base) in str(caught.value)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_learning_rate_that_is_none_is_refused_at_once(rate: float) -> None:
    """Before anything is read; a suite refuses it, too, by its own rules."""
    with pytest.raises(UsageError, match="--learning-rate: expected a number above 0, got"):
        train.train(make_suite(), "digits-lstm", changes={"learning_rate": rate}, cores=1, progress=Silent())


def test_a_model_that_the_suite_does_not_list_can_be_trained() -> None:
    """The suite gives the data; any built-in that learns may learn from it."""
    assert train.reference_of(make_suite(), "resnet20") == ModelReference(name="resnet20")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("name: digits-cnn, source: {python: 'net.py:build'}", "only a built-in without weights is trained"),
        ("name: digits-cnn, weights: w.safetensors", "only a built-in without weights is trained"),
        ("name: magika", "magika comes with its weights and is not trained; remove this key"),
    ],
)
def test_a_suite_trains_only_built_ins_without_weights(model: str, words: str) -> None:
    """`train` beside weights would be ignored, so it is an error of the suite with its place."""
    with pytest.raises(SuiteError, match=rf"s\.yaml:2:\d+: models\[0\]\.train: {words}"):
        make_suite(models=f"[{{{model}, train: {{epochs: 2}}}}]")


# --- the command ------------------------------------------------------------------------------------------------


def command(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> int:
    """The exit code of `qbench train`."""
    monkeypatch.setattr(sys, "argv", ["qbench", "train", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def own_cache(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command's cache is the test's."""
    monkeypatch.setenv("QBENCH_CACHE", str(root))
    return root


def test_the_command_trains_scores_and_keeps(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once trained, the second call answers from the cache with the same accuracy on held-out examples, which is that
    of the written weights; a text and JSON say so."""
    import torch

    file = tmp_path / "s.yaml"
    file.write_text("suite: s\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n", encoding="utf-8")
    out = tmp_path / "w.safetensors"
    options = (file, "digits-cnn", "--epochs", "1", "--quiet")
    assert command(monkeypatch, *options) == 0
    text = capsys.readouterr().out
    assert command(monkeypatch, *options, "--json", "--out", out) == 0
    content = json.loads(capsys.readouterr().out)
    data, _ = prepared(make_suite(), own_cache)
    reference = replace(ModelReference(name="digits-cnn", weights=out), args={"classes": 10})
    with torch.inference_mode():
        outputs = (
            fp32_network.load_network(reference, None).module(torch.from_numpy(data.evaluation(0, 450)[0])).numpy()
        )
    right = (outputs.argmax(axis=1) == data.evaluation_labels()).mean()
    assert content["cached"] is True
    assert content["held_out"]["accuracy"]["value"] == pytest.approx(right)
    assert content["held_out"]["examples"] == 450
    assert text.startswith("digits-cnn: trained in ")
    assert f"top1 {100 * right:.1f} [" in text
    assert f"write {{name: digits-cnn, train: {{epochs: 1}}}} under `models` of {file}" in text


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("w.pt", "weights are written as safetensors; give a name that ends in .safetensors"),
        ("none/w.safetensors", "there is no folder"),
        ("folder.safetensors", "a folder has this name"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_training(out: str, words: str, tmp_path: Path) -> None:
    """An hour of training must not end in a path that was wrong from the start."""
    (tmp_path / "folder.safetensors").mkdir()
    with pytest.raises(UsageError, match=words):
        train.require_writable(tmp_path / out)


def test_an_interrupt_tells_that_the_checkpoint_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C ends with 130 and says how to go on."""

    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "train", interrupted)
    file = Path(__file__).parent.parent.parent / "suites" / "quickstart.yaml"
    assert command(monkeypatch, file, "digits-cnn") == 130
    assert "interrupted; the same command goes on from the last checkpoint" in capsys.readouterr().err


def test_an_accuracy_that_was_not_measured_is_null(own_cache: Path, tmp_path: Path) -> None:
    """Held-out examples without labels give no score, in the text and in JSON; to those who wait the training is one
    step."""
    of = make_suite(npz(tmp_path, test_labels=None), "[digits-cnn]", tmp_path)
    stages, ended = [], []

    class Noted(Silent):
        def stage(self, name: str, total: int | None) -> None:
            stages.append((name, total))

        def advance(self, text: str, share: float | None = None) -> None:
            ended.extend([text] if share is None else [])

    report = train.train(of, "digits-cnn", changes={"epochs": 1}, cores=1, progress=Noted())
    assert (stages, ended) == ([("train", 1)], ["digits-cnn"])
    assert "held out: not measured" in train_text.text(report, of, changes={}, out=None)


@pytest.mark.parametrize(
    ("labels", "is_scored"),
    [
        (np.array([0, 1, 2]), True),
        (np.array([0, 1, 2], np.uint8), True),
        (np.array([True, False, True]), True),
        (np.array([0.0, 1.0, 2.0]), False),
        (np.zeros((3, 2), int), False),
        (None, False),
    ],
)
@pytest.mark.parametrize("cores", [None, 3])
def test_what_is_reported_of_a_training(
    labels: Any, is_scored: bool, cores: int | None, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A score where the labels are classes, on the cores that are there or asked for; notes of the data come first."""
    data = SimpleNamespace(evaluation_labels=lambda: labels, evaluation_count=3, notes=("of the data",))
    done, scored, heard = SimpleNamespace(notes=("of the training",)), list[Any](), list[tuple[str, float]]()

    def prepare(request: DataRequest, root: Path, progress: Callable[[str, float], None]) -> Any:
        progress("prepare", 0.7)
        return data

    monkeypatch.setattr(train, "prepare_data", prepare)
    monkeypatch.setattr(train, "train_builtin", lambda *words, cores, progress: done)
    monkeypatch.setattr(train, "_right", lambda *words: scored.append(words[-1]) or 2)
    request = request_of(make_suite().data, make_suite().base, train=False)
    report = train._report(CNN, request, root, cores, progress=lambda *step: heard.append(step))
    assert (report.trained, report.evaluated, report.held_out) == (done, 3, "digits/test")
    assert report.notes == ("of the data", "of the training")
    assert (report.accuracy is not None) == is_scored
    if report.accuracy is not None:
        assert report.accuracy.value == pytest.approx(2 / 3)
    assert scored == [cores or len(fingerprint.allowed_cores())] * is_scored
    assert heard == [("prepare", 0.0)] + [("predict the held-out examples", 1.0)] * is_scored


def test_weights_are_copied_to_the_users_file_or_it_is_said_why_not(tmp_path: Path) -> None:
    """Whole, in place of what was there."""
    (tmp_path / "cached").write_bytes(b"weights")
    report: Any = SimpleNamespace(trained=SimpleNamespace(file=tmp_path / "cached"))
    (tmp_path / "w.safetensors").write_bytes(b"older and longer")
    train.write(report, tmp_path / "w.safetensors")
    assert (tmp_path / "w.safetensors").read_bytes() == b"weights"
    train.require_writable(None)
    train.require_writable(tmp_path / "w.safetensors")
    with pytest.raises(UsageError, match="none/w.safetensors: cannot be written: No such file or directory"):
        train.write(report, tmp_path / "none/w.safetensors")


@pytest.mark.parametrize("cores", [None, 3])
def test_a_training_in_a_process_of_its_own_has_two_weeks_and_the_memory_of_the_suite(
    cores: int | None, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells how far it is, so no stage's limit ends it; what the command changes goes before the suite."""
    calls: list[Any] = []

    def answer(*arguments: Any, limits: Limits, progress: Any) -> str:
        calls.append((*arguments, limits))
        return "report"

    monkeypatch.setattr(train, "call", answer)
    models = "[{name: digits-lstm, train: {epochs: 2, seed: 3}}]"
    text = f"suite: s\nmodels: {models}\ndata: {DIGITS}\nmatrix: {{}}\nlimits: {{memory_bytes: 12345}}\n"
    of = suite.parse(text, file="s.yaml")
    changes = {"learning_rate": 0.5, "seed": 4}
    report: Any = train.train(of, "digits-lstm", changes=changes, cores=cores, progress=Silent())
    ((function, reference, request, place, given, limits),) = calls
    assert (report, function, place, given) == ("report", train._report, own_cache, cores)
    assert reference.training == {"epochs": 2, "seed": 4, "learning_rate": 0.5}
    assert request == request_of(of.data, of.base, train=False)
    assert (limits.seconds, limits.memory_bytes) == (14 * 24 * 60 * 60, 12_345)


@pytest.mark.parametrize("cores", [None, 3])
def test_as_many_cores_work_on_a_batch_as_are_asked_for_or_there(
    cores: int | None, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which changes no weight, so that nobody has to say it."""
    asked: list[int] = []

    def learn(*_: Any, cores: int, checkpoints: trainer.Checkpoints, **__: Any) -> TrainingOutcome:
        asked.append(cores)
        assert checkpoints.seconds == 10.0, "as much work is lost with a training that is killed"
        return TrainingOutcome(loss=1.0, accuracy=0.5, seconds=2.0, resumed=0.0)

    monkeypatch.setattr(trainer, "train", learn)
    assert trained(CNN, root, cores=cores).outcome.seconds == 2.0
    assert asked == [cores or len(fingerprint.allowed_cores())]


def test_held_out_examples_are_predicted_in_blocks_on_one_thread_a_core(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large split need not fit into memory as activations; those behind the last block count, too."""
    blocks, threads = list[tuple[int, int]](), list[int]()
    save_weights(trainer.fresh(registry.load("model", "digits-cnn"), classes=10), tmp_path / "w.safetensors")
    done = SimpleNamespace(
        reference=ModelReference(name="digits-cnn", args={"classes": 10}), file=tmp_path / "w.safetensors"
    )

    def evaluation(start: int, stop: int) -> tuple[np.ndarray]:
        blocks.append((start, stop))
        return (np.zeros((min(stop, 300) - start, 1, 8, 8), np.float32),)

    data: Any = SimpleNamespace(evaluation_count=300, evaluation=evaluation, evaluation_digest="e")
    monkeypatch.setattr(train, "set_torch", threads.append)
    counts = [train._right(done, data, np.full(300, label), root, 1) for label in (0, 0)]  # type: ignore[arg-type]
    assert counts[0] in (0, 300)
    assert counts[0] == counts[1]
    assert (blocks, threads) == ([(0, 256), (256, 512)], [1]), "the second time they are known"


@pytest.mark.parametrize(
    ("reference", "is_trained"),
    [
        (ModelReference(name="digits-cnn"), True),
        (ModelReference(name="digits-cnn", weights=Path("w.safetensors")), False),
        (ModelReference(name="digits-cnn", source="python"), False),
        (ModelReference(name="magika"), False),
    ],
)
def test_a_built_in_is_trained_here_unless_it_has_weights(reference: ModelReference, is_trained: bool) -> None:
    """Of its own, or given ones; a network of the user's may have any name."""
    assert train.is_trained(reference) is is_trained
