"""Models: one contract for all built-ins and sources, training, and weights from files."""

from __future__ import annotations

import copy
import os
import pickle
import re
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from qbench import installation, registry, suite
from qbench import network as fp32_network
from qbench.cache import store
from qbench.data import request_of
from qbench.data_preparation import prepare_data
from qbench.errors import ModelError
from qbench.metrics.topk import TOP1
from qbench.models import magika, sharded_gradients, trainer
from qbench.models import onnx as onnx_source
from qbench.models.base import KIND_OF_SOURCE, BuiltIn, ModelReference, Network, Training
from qbench.models.sharded_gradients import Shards
from qbench.models.weights import code_digest, load_weights, read_state, save_weights, weights_digest
from qbench.train import train

USER = Path(__file__).parent.parent / "data" / "user"
BUILT_INS = registry.names("model")
# Those with a module, those that qbench trains, and those that it trains on data that is always there.
SIBLINGS = ("efficientnet-lite1", "efficientnet-lite2")  # the same code as lite0, with other numbers
OWN_FILE = ("minilm", "minilm-sentiment")  # takes token ids, and its weights are fitted: tests/models/test_minilm.py
MODULES = [
    name for name in BUILT_INS if registry.load("model", name).kind == "torch" and name not in SIBLINGS + OWN_FILE
]
TRAINED = [name for name in BUILT_INS if registry.load("model", name).training]
AT_HAND = [name for name in TRAINED if registry.load("model", name).dataset == "digits"]
CARRIED = [name for name in BUILT_INS if registry.load("model", name).weights and name not in OWN_FILE]
# One example of what a network takes, where its data set may not be there.
SHAPES = {
    "efficientnet-lite0": (3, 64, 64),
    "resnet20": (1, 28, 28),
    "mobilenet-small": (1, 28, 28),
    "digits-cnn": (1, 8, 8),
    "digits-lstm": (1, 8, 8),
    "shapes-detector": (3, 96, 96),
    "shapes-unet": (3, 96, 96),
    "reviews-decoder": (128,),
}
TOKENS = {"reviews-decoder": 2048}  # those that take numbers of tokens, and how many there are
# What of one example a network gives, where these are not scores of ten classes.
OUTPUTS = {
    "efficientnet-lite0": (1000,),
    "shapes-detector": (4 + 3, 12 * 12 + 6 * 6),
    "shapes-unet": (4, 96, 96),
    "reviews-decoder": (128, 2048),
}
SOURCES = registry.names("source")


@pytest.fixture(autouse=True)
def _clean_imports(clean_imports: None) -> None:
    """Each test has its own."""


def built_in(name: str) -> BuiltIn:
    """The registered built-in."""
    model = registry.load("model", name)
    assert isinstance(model, BuiltIn)
    return model


def small() -> nn.Module:
    """A network with a convolution, BatchNorm's buffers and a linear layer."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 6 * 6, 3))
    return net.eval()


def saved_onnx(module: nn.Module, path: Path) -> Path:
    """The module's linear layer as an ONNX file, written with onnx itself: y = x W^T + b."""
    from onnx import TensorProto, helper, numpy_helper, save

    linear = module[-1]
    assert isinstance(linear, nn.Linear)
    weights = [numpy_helper.from_array(linear.weight.detach().numpy(), "w")]
    weights.append(numpy_helper.from_array(linear.bias.detach().numpy(), "b"))
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", linear.in_features])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", linear.out_features])],
        weights,
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


def saved_torchscript(module: nn.Module, path: Path) -> Path:
    """The module traced and saved."""
    with warnings.catch_warnings():
        # torch 2.13 announces the end of TorchScript; these files are what the loader is for.
        warnings.filterwarnings("ignore", message=r"`torch\.jit\.", category=DeprecationWarning)
        torch.jit.trace(module, torch.zeros(1, 1, 8, 8)).save(str(path))
    return path


def reference_of(source: str, folder: Path, **changes: Any) -> ModelReference:
    """A small valid model of every registered source; a new source is added here with its first commit."""
    known: dict[str, dict[str, Any]] = {
        "python": {"path": USER / "my_model.py", "attribute": "build", "args": {"width": 4}},
        "onnx": {"path": folder / "net.onnx"},
        "torchscript": {"path": folder / "net.pt"},
    }
    assert source in known, f"add a small example of the source '{source}'"
    saved_onnx(small(), folder / "net.onnx")
    saved_torchscript(small(), folder / "net.pt")
    return ModelReference(**{"name": "mine", "source": source, **known[source], **changes})


def load(reference: ModelReference) -> Network:
    """The network of a reference with a source."""
    assert reference.source is not None
    network = registry.load("source", reference.source)(reference)
    assert isinstance(network, Network)
    return network


# --- the contract of built-ins ------------------------------------------------------------------------------------


def usable(name: str) -> BuiltIn:
    """The built-in, or the test is skipped with what is missing."""
    model = built_in(name)
    if reason := model.missing():
        pytest.skip(reason)
    return model


def example(name: str, n: int = 3) -> torch.Tensor:
    """Seeded noise of the shape that the network takes."""
    seed = torch.Generator().manual_seed(0)
    if name in TOKENS:
        return torch.randint(TOKENS[name], (n, *SHAPES[name]), generator=seed)
    return torch.randn(n, *SHAPES[name], generator=seed)


@pytest.mark.parametrize("name", BUILT_INS)
class TestBuiltIns:
    """What every registered model keeps."""

    def test_it_has_the_name_it_is_registered_under(self, name: str) -> None:
        """A record names the model by the name in the suite; its data set exists."""
        model = built_in(name)
        assert model.name == name
        assert model.dataset is None or model.dataset in registry.names("dataset")

    def test_its_weights_come_from_one_place(self, name: str) -> None:
        """They are trained here on a data set, or a package carries them; an ONNX model is always carried."""
        model = built_in(name)
        assert (model.training is None) == (model.dataset is None) == (model.weights is not None)
        assert (model.build is None) == (model.kind == "onnx")
        assert bool(model.packages) == bool(model.extra)

    def test_a_missing_package_is_named_with_the_extra(self, name: str) -> None:
        """Whoever lacks a package is told which, and what installs it."""
        absent = replace(built_in(name), packages=("no_such_package",), extra="zoo")
        assert absent.missing() == f"{name} needs no_such_package; {installation.install([], 'zoo')}"


@pytest.mark.parametrize("name", MODULES)
class TestModules:
    """What every built-in torch network keeps."""

    def test_it_gives_one_output_per_class(self, name: str) -> None:
        """The fresh network takes its inputs and gives (n, classes), or what its task asks for."""
        module = trainer.fresh(usable(name)).eval()
        with torch.no_grad():
            assert module(example(name)).shape == (3, *OUTPUTS.get(name, (10,)))

    def test_fx_can_trace_it_to_the_same_numbers(self, name: str) -> None:
        """FX quantization needs a symbolic trace, which must be equal to the bit."""
        module = trainer.fresh(usable(name)).eval()
        x = example(name)
        with torch.no_grad():
            assert torch.equal(torch.fx.symbolic_trace(module)(x), module(x))

    def test_fresh_weights_follow_from_the_seed_alone(self, name: str) -> None:
        """Two fresh networks are equal, and making one leaves the process's random state alone."""
        before = torch.random.get_rng_state()
        digests = {weights_digest(Network(kind="torch", module=trainer.fresh(usable(name)))) for _ in range(2)}
        assert len(digests) == 1
        assert torch.equal(torch.random.get_rng_state(), before)

    def test_saved_weights_come_back_to_the_bit(self, name: str, tmp_path: Path) -> None:
        """Parameters and buffers survive a file; the digest proves it."""
        module, other = trainer.fresh(usable(name)), usable(name).build()
        save_weights(module, tmp_path / "w.safetensors")
        load_weights(other, tmp_path / "w.safetensors")
        assert digest(other) == digest(module)


@pytest.mark.parametrize("name", TRAINED)
def test_no_activation_module_is_used_twice(name: str) -> None:
    """FX does not fuse a shared activation, so each use has its own."""
    traced = torch.fx.symbolic_trace(trainer.fresh(built_in(name)))
    called = [node.target for node in traced.graph.nodes if node.op == "call_module"]
    assert len(called) == len(set(called))


@pytest.mark.parametrize("name", CARRIED)
def test_carried_weights_fit_the_network(name: str) -> None:
    """The package's weights load into the package's network, or its ONNX file opens: that is the fp32 model."""
    usable(name)
    network = fp32_network.load_network(ModelReference(name=name), None)
    assert network.kind == built_in(name).kind == ModelReference(name=name).kind
    if network.kind == "onnx":
        assert network.path is not None
        assert network.path.is_file()
        return
    fresh = trainer.fresh(built_in(name))
    assert digest(network.module) != digest(fresh)
    assert not network.module.training


@pytest.mark.parametrize("name", AT_HAND)
def test_trained_as_shipped_it_reaches_its_accuracy(name: str) -> None:
    """The built-in training gives the top-1 that the documentation claims, on data it did not see."""
    root = store.open_cache()  # the tests' own: others use these weights, too
    of = suite.parse(f"suite: s\nmodels: [{name}]\ndata: {{dataset: digits}}\nmatrix: {{}}\n")
    request = request_of(of.data, of.base, train=False)
    data = prepare_data(request, root, progress=lambda *_: None)
    trained = train.train_builtin(ModelReference(name=name), data, request, root, progress=lambda *_: None)
    module = fp32_network.load_network(trained.reference, trained.file).module
    with torch.no_grad():
        outputs = module(*map(torch.from_numpy, data.evaluation(0, data.evaluation_count))).numpy()
    assert not module.training
    assert TOP1.value(outputs, data.evaluation_labels()) >= {"digits-cnn": 0.975, "digits-lstm": 0.96}[name]


def test_fresh_weights_are_of_the_seed_of_the_training() -> None:
    """Of 0 where a network is not trained."""
    cnn = built_in("digits-cnn")
    assert cnn.training is not None
    other = replace(cnn, training=replace(cnn.training, seed=1))
    untrained, first, second = (digest(trainer.fresh(each)) for each in (replace(cnn, training=None), cnn, other))
    assert untrained == first != second


def digest(module: nn.Module) -> str:
    """The weights digest of a torch module."""
    return weights_digest(Network(kind="torch", module=module))


def test_the_network_for_sizes_has_more_than_a_megabyte() -> None:
    """digits-cnn is large enough that the size of an int8 file means something."""
    module = trainer.fresh(built_in("digits-cnn"))
    assert 1_000_000 < sum(p.numel() * p.element_size() for p in module.parameters()) < 2_000_000
    kinds = {type(part) for part in module.modules()}
    assert {nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.Linear} <= kinds
    assert any("add" in str(node.target) for node in torch.fx.symbolic_trace(module).graph.nodes)


# --- training ---------------------------------------------------------------------------------------------------


class Stop(Exception):
    """Ends a training from within."""


def lesson() -> tuple[np.ndarray, np.ndarray]:
    """65 noisy images of three classes (a last batch of 32 would hold a single one)."""
    random = np.random.default_rng(0)
    labels = np.arange(65) % 3
    return (random.normal(size=(65, 1, 8, 8)) + labels[:, None, None, None]).astype(np.float32), labels


def trained_small(**options: Any) -> nn.Module:
    """A small network after a training of three epochs; ``options`` are those of the schedule and of ``train``."""
    images, labels = lesson()
    known = {name: options.pop(name) for name in ("seed", "shards", "channels_last", "batch_size") if name in options}
    schedule = Training(**{"epochs": 3, "batch_size": 32, "learning_rate": 0.01, **known})
    module, progress = small(), options.pop("progress", lambda text, share: None)
    trainer.train(module, (images,), labels, schedule, progress, **{"cores": 1, **options})
    return module


def test_training_repeats_with_its_seed_and_differs_with_another() -> None:
    """Same seed, same weights to the bit; another seed shuffles otherwise."""
    assert digest(trained_small(seed=0)) == digest(trained_small(seed=0)) != digest(trained_small(seed=1))


@pytest.mark.parametrize("shards", [1, 4])
def test_the_number_of_cores_changes_no_bit(shards: int) -> None:
    """The parts of a batch belong to the arithmetic, those who compute them do not."""
    first, three = (digest(trained_small(shards=shards, channels_last=True, cores=cores)) for cores in (1, 3))
    assert first == three


def test_parts_of_a_batch_add_up_to_its_gradient() -> None:
    """Without BatchNorm the gradients, the loss and the right predictions are those of the batch as a whole."""
    images, labels = (torch.from_numpy(array) for array in lesson())
    torch.manual_seed(0)
    whole = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Tanh(), nn.Linear(5, 3))
    parts = copy.deepcopy(whole)
    loss = nn.functional.cross_entropy(whole(images), labels)
    loss.backward()
    with Shards(parts, 4, 1) as shards:
        message, right = shards.gradients([images], labels)
    assert message == pytest.approx(float(loss.detach()), rel=1e-6)
    assert right == int((whole(images).argmax(1) == labels).sum())
    for first, other in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(other.grad, first.grad, rtol=1e-5, atol=1e-7)


def test_batch_norm_learns_from_all_parts() -> None:
    """Its running statistics are the means over the parts, so none of the batch is forgotten."""
    images = torch.from_numpy(lesson()[0][:64])
    norm = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(64, 3)).train()
    with Shards(norm, 4, 1) as shards:
        shards.gradients([images], torch.zeros(64, dtype=torch.long))
    expected = 0.1 * torch.stack([part.mean() for part in images.tensor_split(4)]).mean()
    torch.testing.assert_close(norm[0].running_mean[0], expected)
    assert int(norm[0].num_batches_tracked) == 1


@pytest.mark.parametrize("shards", [1, 2])
def test_a_training_that_was_stopped_goes_on_to_the_same_weights(shards: int, tmp_path: Path) -> None:
    """Whatever step it ended after, in mid-epoch or between two: the next attempt ends with the very same bits."""
    whole = digest(trained_small(shards=shards))
    for last in range(1, 6):  # of 3 epochs of 2 steps
        kept = trainer.Checkpoints(folder=tmp_path / str(last), key="k", seconds=0)
        saved = 0

        def save(state: dict[str, Any], kept: trainer.Checkpoints = kept, last: int = last) -> None:
            nonlocal saved
            saved += 1
            trainer.Checkpoints.save(kept, state)
            if saved == last:
                raise Stop

        stopping = replace(kept)
        object.__setattr__(stopping, "save", save)
        with pytest.raises(Stop):
            trained_small(shards=shards, checkpoints=stopping)
        assert kept.load()["counts"][:2] == [last // 2, last % 2]
        assert digest(trained_small(shards=shards, checkpoints=kept)) == whole


def test_a_state_is_kept_no_more_often_than_asked(tmp_path: Path) -> None:
    """What is lost with a training that is killed is less than writing all the time would take."""
    kept = trainer.Checkpoints(folder=tmp_path, key="k", seconds=1e9)
    trained_small(checkpoints=kept)
    assert kept.load() is None


def test_examples_are_preprocessed_a_batch_at_a_time() -> None:
    """Raw examples are turned into what the network takes as they are needed: never the whole split at once."""
    sizes: list[int] = []

    def halved(arrays: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        sizes.append(len(arrays[0]))
        return tuple((array * np.float32(0.5)).astype(np.float32) for array in arrays)

    by_batch = digest(trained_small(preprocess=halved))
    images, labels = lesson()
    module = small()
    schedule = Training(epochs=3, batch_size=32, learning_rate=0.01)
    trainer.train(module, (images * np.float32(0.5),), labels, schedule, lambda *_: None, cores=1)
    assert sizes == [32, 32] * 3
    assert by_batch == digest(module)


def test_progress_rises_to_the_end_and_tells_loss_accuracy_and_time() -> None:
    """A reader sees epoch, loss, accuracy and the time that is left; the last line has nothing left."""
    calls: list[tuple[str, float]] = []
    trained_small(progress=lambda text, share: calls.append((text, share)))
    assert [share for _, share in calls] == sorted(share for _, share in calls)
    assert re.fullmatch(r"epoch 1/3: loss \d\.\d{4}, accuracy \d+\.\d%, \d+ s left", calls[0][0])
    assert re.fullmatch(r"epoch 3/3: loss \d\.\d{4}, accuracy \d+\.\d%", calls[-1][0])
    assert calls[-1][1] == 1.0
    assert len(calls) == 3
    calls.clear()
    trained_small(progress=lambda text, share: calls.append((text, share)), batch_size=4)
    assert [share for _, share in calls] == pytest.approx([step / 6 for step in range(1, 7)])
    assert [text[:9] for text, _ in calls] == [f"epoch {epoch}/3" for epoch in (1, 1, 2, 2, 3, 3)]


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (119.4, "119 s"), (120, "2 min"), (5400, "90 min")])
def test_two_minutes_and_more_are_told_in_minutes(seconds: float, text: str) -> None:
    """What is left changes each time it is told."""
    assert trainer._duration_text(seconds) == text


@pytest.mark.parametrize(
    ("count", "sizes"), [(1, [1]), (2, [2]), (32, [32]), (33, [32]), (34, [32, 2]), (65, [32, 32])]
)
def test_a_batch_of_one_example_is_none(count: int, sizes: list[int]) -> None:
    """Unless there are no others."""
    assert [len(batch) for batch in trainer._split_batches(torch.arange(count), 32)] == sizes


@pytest.mark.parametrize(("count", "sizes"), [(1, [1]), (3, [3]), (4, [2, 2]), (9, [3, 2, 2, 2]), (12, [3, 3, 3, 3])])
def test_no_part_of_a_batch_is_a_single_example(count: int, sizes: list[int]) -> None:
    """There are fewer parts then, since BatchNorm cannot train on one."""
    counts: list[int] = []
    network = nn.Linear(2, 3)
    with Shards(network, 4, 1, loss=lambda outputs, labels: counts.append(len(labels)) or outputs.sum()) as shards:
        assert shards.gradients([torch.ones(count, 2)], torch.zeros(count))[1] is None
    assert counts == sizes


@pytest.mark.usefixtures("two_threads")
def test_training_leaves_threads_and_random_state_as_they_were() -> None:
    """Process-global settings are put back."""
    small()  # seeds the process, as the one that is trained does
    state = torch.random.get_rng_state()
    trained_small(shards=2, cores=2)
    assert torch.get_num_threads() == 2
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time as trainings read it: a step that ``timed`` sees takes a second, and nothing else takes any."""
    now = [0.0]
    monkeypatch.setattr(trainer, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def timed(clock: list[float], losses: list[float]) -> Any:
    """A loss that takes a second and is noted."""

    def loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        clock[0] += 1
        value = nn.functional.cross_entropy(outputs, labels)
        losses.append(float(value.detach()))
        return value

    return loss


def test_the_outcome_is_of_the_last_epoch_and_of_all_the_time(clock: list[float]) -> None:
    """Its mean loss; what is left is told by the time that the share before it took."""
    images, labels = lesson()
    losses, left = list[float](), list[str]()
    schedule = Training(epochs=3, batch_size=4, learning_rate=0.01)
    outcome = trainer.train(
        small(), (images,), labels, schedule, lambda text, _: left.append(text.rpartition(", ")[2]), cores=1,
        loss=timed(clock, losses),
    )  # fmt: skip
    assert (outcome.seconds, outcome.resumed, outcome.accuracy, len(losses)) == (48.0, 0.0, None, 3 * 16)
    assert outcome.loss == pytest.approx(np.mean(losses[-16:]), rel=1e-5)
    assert left[:5] == ["40 s left", "32 s left", "24 s left", "16 s left", "8 s left"]
    assert left[5].startswith("epoch 3/3: loss ")
    assert len(left) == 6


def test_a_state_is_kept_as_soon_as_its_time_has_come(clock: list[float], tmp_path: Path) -> None:
    """Two seconds after the one before."""
    kept, counts = trainer.Checkpoints(folder=tmp_path, key="k", seconds=2), list[list[int]]()
    watching = replace(kept)

    def save(state: dict[str, Any]) -> None:
        counts.append(state["counts"][:2])
        kept.save(state)

    object.__setattr__(watching, "save", save)
    trained_small(checkpoints=watching, loss=timed(clock, []))
    assert counts == [[1, 0], [2, 0], [3, 0]]


def test_the_time_of_a_training_is_that_of_all_its_attempts(clock: list[float], tmp_path: Path) -> None:
    """One that was stopped after two of eight steps had done a quarter."""
    kept = trainer.Checkpoints(folder=tmp_path, key="k", seconds=2)
    stopping = replace(kept)

    def stop(state: dict[str, Any]) -> None:
        kept.save(state)
        raise Stop

    object.__setattr__(stopping, "save", stop)
    images, labels = lesson()
    schedule = Training(epochs=4, batch_size=32, learning_rate=0.01)
    options: dict[str, Any] = {"cores": 1, "loss": timed(clock, [])}
    with pytest.raises(Stop):
        trainer.train(small(), (images,), labels, schedule, lambda *_: None, checkpoints=stopping, **options)
    outcome = trainer.train(small(), (images,), labels, schedule, lambda *_: None, checkpoints=kept, **options)
    assert (outcome.seconds, outcome.resumed) == (8.0, 0.25)


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_network_is_trained_in_its_memory_format_and_left_as_it_is_used(channels_last: bool) -> None:
    """In train mode, images and weights as channels last where that is asked for; then in eval mode, contiguous."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 6 * 6, 3)).eval()
    formats = list[tuple[bool, bool, bool]]()

    def watch(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        arrays = (inputs[0], module[0].weight)  # type: ignore[index]
        formats.append((module.training, *(x.is_contiguous(memory_format=torch.channels_last) for x in arrays)))

    network.register_forward_pre_hook(watch)
    schedule = Training(epochs=2, batch_size=4, learning_rate=0.01, channels_last=channels_last)
    images = np.random.default_rng(0).normal(size=(8, 2, 8, 8)).astype(np.float32)
    labels = (np.arange(8) % 3).astype(np.int32)
    trainer.train(network, (images,), labels, schedule, lambda *_: None, cores=1)
    assert formats == [(True, channels_last, channels_last)] * 4
    assert not any(part.training for part in network.modules())
    assert all(weight.is_contiguous() for weight in network.parameters())
    assert network[1].running_mean.abs().sum() > 0


def test_inputs_that_are_no_images_have_no_memory_format() -> None:
    """They stand beside images, or alone."""
    feed = trainer._Feed((np.ones((3, 4, 2, 2)), np.ones((3, 4))), lambda arrays: arrays, channels_last=True)
    images, values = feed(torch.tensor([0, 2]))
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert values.shape == (2, 4)


def test_a_loss_of_its_own_is_given_labels_as_they_are() -> None:
    """Boxes are no class numbers."""
    kinds = set[torch.dtype]()

    def loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        kinds.add(labels.dtype)
        return outputs.sum() * 0

    images, _ = lesson()
    schedule = Training(epochs=1, batch_size=32, learning_rate=0.01)
    labels = np.full(65, 0.5, np.float32)
    trainer.train(small(), (images,), labels, schedule, lambda *_: None, cores=1, loss=loss)
    assert kinds == {torch.float32}


def test_each_part_of_a_batch_is_computed_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever computes it, and nobody does behind the training."""
    threads: list[int] = []
    monkeypatch.setattr(sharded_gradients, "set_torch", threads.append)
    with Shards(nn.Linear(2, 3), 2, 2) as shards:
        shards.gradients([torch.ones(4, 2)], torch.zeros(4, dtype=torch.long))
    assert set(threads) == {1}
    with pytest.raises(RuntimeError, match="after shutdown"):
        shards._pool.submit(int)


def test_training_that_diverges_is_an_error() -> None:
    """A loss that is not finite stops training with what to change."""
    images = np.ones((4, 1, 8, 8), dtype=np.float32)
    schedule = Training(epochs=9, batch_size=4, learning_rate=1e38)
    with pytest.raises(ModelError, match=r"training diverged: the loss is (nan|inf); lower learning_rate"):
        trainer.train(small(), (images,), np.zeros(4, dtype=int), schedule, lambda text, share: None, cores=1)


# --- sources ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", SOURCES)
class TestSources:
    """What every registered source keeps."""

    def test_it_loads_what_the_plan_expects(self, source: str, tmp_path: Path) -> None:
        """The network's kind is the one that planning assumed without loading it."""
        reference = reference_of(source, tmp_path)
        network = load(reference)
        assert network.kind == reference.kind == KIND_OF_SOURCE[source]
        assert network.module is not None or network.path is not None

    def test_torch_networks_are_in_eval_mode(self, source: str, tmp_path: Path) -> None:
        """Dropout and BatchNorm must not act as in training."""
        module = load(reference_of(source, tmp_path)).module
        assert module is None or not any(part.training for part in module.modules())

    def test_loading_twice_gives_the_same_weights(self, source: str, tmp_path: Path) -> None:
        """The digest is part of the cache key, also of a network without a weights file."""
        reference = reference_of(source, tmp_path)
        first = weights_digest(load(reference))
        assert first == weights_digest(load(reference))
        assert len(first) == 64

    def test_a_missing_file_is_named(self, source: str, tmp_path: Path) -> None:
        """The path stands in the message."""
        with pytest.raises(ModelError, match=r"nowhere\.file"):
            load(reference_of(source, tmp_path, path=tmp_path / "nowhere.file"))

    def test_a_damaged_file_is_a_model_error(self, source: str, tmp_path: Path) -> None:
        """Random bytes are refused with the file's name, not with a crash."""
        file = tmp_path / "damaged.bin"
        file.write_bytes(bytes(range(256)) * 4)
        with pytest.raises(ModelError, match=r"damaged\.bin"):
            load(reference_of(source, tmp_path, path=file))


def test_what_torch_save_writes_is_no_torchscript(tmp_path: Path) -> None:
    """torch itself calls such a file corrupted; the message says what it is, and where a state dict goes."""
    torch.save(small().state_dict(), tmp_path / "state.pt")
    with pytest.raises(ModelError, match=r"such as torch\.save writes .* under `weights`") as raised:
        load(reference_of("torchscript", tmp_path, path=tmp_path / "state.pt"))
    assert "corrupted" not in str(raised.value)


@pytest.mark.parametrize("source", ["onnx", "torchscript"])
def test_files_that_carry_their_weights_take_no_others(source: str, tmp_path: Path) -> None:
    """`weights` or `args` beside such a file would be ignored, so they are refused."""
    for changes in ({"weights": tmp_path / "w.safetensors"}, {"args": {"width": 3}}):
        with pytest.raises(ModelError, match="carries its weights; remove `weights` and `args`"):
            load(reference_of(source, tmp_path, **changes))


def test_an_onnx_file_that_onnx_runtime_cannot_load_is_refused(tmp_path: Path) -> None:
    """An operator that passes the checker but that nobody implements is found before the build."""
    from onnx import TensorProto, helper, save

    node = helper.make_node("Frobnicate", ["x"], ["y"], domain="no.such.domain")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("no.such.domain", 1)]
    graph = helper.make_graph([node], "net", values[:1], values[1:])
    save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "odd.onnx")
    with pytest.raises(ModelError, match=r"odd\.onnx: ONNX Runtime cannot load it: .*Frobnicate"):
        load(ModelReference(name="odd", source="onnx", path=tmp_path / "odd.onnx"))


@pytest.mark.parametrize("place", ["graph", "branch", "function"])
@pytest.mark.parametrize("operator", ["QuantizeLinear", "QLinearMatMul", "MatMulInteger", "DynamicQuantizeLinear"])
def test_an_onnx_file_that_is_quantized_already_is_no_fp32(operator: str, place: str, tmp_path: Path) -> None:
    """QDQ, integer operators and dynamic ones, also in a subgraph or a function: every comparison with it as fp32 would
    be of int8 with int8. The message names the key for such files."""
    from onnx import TensorProto, helper, load_model

    model = load_model(saved_onnx(small(), tmp_path / "net.onnx"))
    node = helper.make_node(operator, ["x"], ["q"], name="quantizes")
    if place == "graph":
        model.graph.node.append(node)
    elif place == "branch":
        body = helper.make_graph([node], "body", [], [helper.make_tensor_value_info("q", TensorProto.UINT8, None)])
        model.graph.node.append(helper.make_node("If", ["c"], ["o"], then_branch=body, else_branch=body))
    else:
        model.functions.append(helper.make_function("own", "F", ["x"], ["q"], [node], list(model.opset_import)))
    with pytest.raises(ModelError, match=r"already quantized \(quantizes.*\), so it is no fp32.*`int8: /.*int8.onnx`"):
        onnx_source._refuse_quantized(model, tmp_path / "int8.onnx")


def test_a_quantized_onnx_file_is_refused_before_it_is_checked(tmp_path: Path) -> None:
    """Of its operators the checker knows but a few; its weights, which may be large, are not read."""
    from onnx import TensorProto, helper, numpy_helper, save

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "xy"]
    scale = numpy_helper.from_array(np.float32(0.1), "s")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s"], ["y"]),
    ]
    model = helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], [scale]), ir_version=10)
    save(model, tmp_path / "int8.onnx")
    with pytest.raises(ModelError, match="already quantized"):
        load(ModelReference(name="mine", source="onnx", path=tmp_path / "int8.onnx"))


def test_an_onnx_file_is_checked_and_then_loaded_on_one_thread_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong is told by the checker first; the weights beside a file are left where they are."""
    import onnxruntime
    from onnx import TensorProto, helper, save

    file, read, opened = saved_onnx(small(), tmp_path / "net.onnx"), list[Any](), list[Any]()
    plain = onnx_source.onnx_check.load
    monkeypatch.setattr(
        onnx_source.onnx_check, "load", lambda path, **options: read.append(options) or plain(path, **options)
    )
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda path, options, providers: opened.append(options))
    load(ModelReference(name="mine", source="onnx", path=file))
    assert read == [{"weights": False, "valid": False}]
    (options,) = opened
    level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    assert (options.log_severity_level, options.intra_op_num_threads, options.graph_optimization_level) == (4, 1, level)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Frobnicate", ["x"], ["y"])], "net", ends[:1], ends[1:])
    save(helper.make_model(graph, ir_version=10), tmp_path / "odd.onnx")
    with pytest.raises(ModelError, match="not a valid ONNX model: .*Frobnicate"):
        load(ModelReference(name="mine", source="onnx", path=tmp_path / "odd.onnx"))


def test_a_package_without_its_onnx_file_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As where it is not installed, or carries another one."""
    specs = [None, SimpleNamespace(submodule_search_locations=None), SimpleNamespace(submodule_search_locations=["no"])]
    for spec in specs:
        monkeypatch.setattr(magika.importlib.util, "find_spec", lambda name, spec=spec: spec)
        with pytest.raises(ModelError, match=r"magika: its package has no models/.*pip install 'magika==1\.0\.3'"):
            magika.weights()
    (tmp_path / magika.FILE).parent.mkdir(parents=True)
    (tmp_path / magika.FILE).touch()
    places = SimpleNamespace(submodule_search_locations=["no", str(tmp_path)])
    monkeypatch.setattr(magika.importlib.util, "find_spec", lambda name: places)
    assert magika.weights() == tmp_path / magika.FILE


def test_the_digest_of_an_onnx_file_counts_its_external_data(tmp_path: Path) -> None:
    """Weights beside the file are part of the model; another byte there is another model."""
    import onnx

    model = onnx.load(saved_onnx(small(), tmp_path / "in.onnx"))
    onnx.save(model, tmp_path / "out.onnx", save_as_external_data=True, location="out.data", size_threshold=0)
    network = load(ModelReference(name="mine", source="onnx", path=tmp_path / "out.onnx"))
    before = weights_digest(network)
    data = bytearray((tmp_path / "out.data").read_bytes())
    data[0] ^= 1
    (tmp_path / "out.data").write_bytes(data)
    assert weights_digest(network) != before
    model = onnx.load(tmp_path / "in.onnx")
    model.graph.initializer[0].external_data.add(key="location", value="gone.data")  # left there, and not meant
    onnx.save(model, tmp_path / "left.onnx")
    assert len(weights_digest(replace(network, path=tmp_path / "left.onnx"))) == 64


# --- the user's own network -----------------------------------------------------------------------------------------


def user_model(**changes: Any) -> ModelReference:
    """The worked example of the README."""
    path = USER / "my_model.py"
    return ModelReference(**{"name": "mine", "source": "python", "path": path, "attribute": "build", **changes})


def test_the_worked_example_is_a_good_model() -> None:
    """my_model.py with its weights classifies my_data.py's test split well."""
    network = load(user_model(weights=USER / "my_model.safetensors"))
    dataset = registry.load("dataset", "python")("my_data.py:load", base=USER, options={})
    examples = dataset.load("test")
    with torch.no_grad():
        outputs = network.module(torch.from_numpy(dataset.preprocessing(examples.inputs)[0])).numpy()
    assert TOP1.value(outputs, examples.labels) >= 0.96


def test_a_network_without_weights_has_those_of_the_seed_0(tmp_path: Path) -> None:
    """Whatever was drawn before it."""
    (tmp_path / "net.py").write_text("import torch\ndef build(): return torch.nn.Linear(3, 2)\n", encoding="utf-8")
    torch.manual_seed(5)
    network = load(user_model(path=tmp_path / "net.py", args={}))
    torch.manual_seed(0)
    assert torch.equal(network.module.weight, nn.Linear(3, 2).weight)


@pytest.mark.parametrize(
    ("text", "args", "expected"),
    [
        ("def build(): return None", {}, r"build\(\) returned nothing \(is a `return` missing\?\); expected a torch"),
        ("def build(): return 3", {}, r"build\(\) returned an object of type int; expected a torch\.nn\.Module"),
        ("build = 3", {}, "'build' is int, not a function that returns a network"),
        ("import torch\nbuild = torch.nn.ReLU()", {}, "'build' is ReLU, not a function that returns a network"),
        ("def build(): ...", {"width": 3}, r"net\.py: TypeError: build\(\) got an unexpected keyword argument 'width'"),
        ("def build():\n    raise ValueError('no')", {}, r"net\.py:2: ValueError: no"),
    ],
)
def test_what_a_users_factory_can_do_wrong(text: str, args: dict[str, Any], expected: str, tmp_path: Path) -> None:
    """Each mistake names the user's file and what is expected."""
    (tmp_path / "net.py").write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match=expected):
        load(user_model(path=tmp_path / "net.py", args=args))


def test_the_code_digest_is_that_of_the_code_and_needs_no_weights(tmp_path: Path) -> None:
    """Built-ins and users' files have one, network files none; an edit changes it."""
    assert code_digest(ModelReference(name="digits-cnn")) != code_digest(ModelReference(name="digits-lstm"))
    assert code_digest(ModelReference(name="x", source="onnx", path=tmp_path / "x.onnx")) is None
    file = tmp_path / "net.py"
    file.write_text("a = 1", encoding="utf-8")
    before = code_digest(user_model(path=file))
    file.write_text("a = 2", encoding="utf-8")
    assert before != code_digest(user_model(path=file))


# --- weights files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: {"state_dict": s, "epoch": 3}, lambda s: {"model": s}])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod."])
def test_state_dicts_are_found_in_checkpoints_and_without_wrappers(wrap: Any, prefix: str, tmp_path: Path) -> None:
    """What training scripts save loads as it is: nested, from DataParallel, from torch.compile."""
    state = {f"{prefix}{name}": value for name, value in small().state_dict().items()}
    torch.save(wrap(state), tmp_path / "w.pt")
    torch.manual_seed(5)
    other = small()
    nn.init.zeros_(other[0].weight)
    load_weights(other, tmp_path / "w.pt")
    assert digest(other) == digest(small())


class Versioned(nn.Linear):
    """Refuses a state whose layout it cannot tell, and turns one of version 1 over."""

    _version = 2

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, metadata: dict[str, Any], *rest: Any) -> None:
        version = metadata.get("version")
        if version is None:
            raise ValueError("version should be set to 1 or 2 instead of None")
        if version == 1:
            state[f"{prefix}weight"] = -state[f"{prefix}weight"]
        super()._load_from_state_dict(state, prefix, metadata, *rest)


@pytest.mark.parametrize(("suffix", "version", "sign"), [("safetensors", 2, 1), ("pt", 2, 1), ("pt", 1, -1)])
def test_weights_keep_the_version_of_their_layout(suffix: str, version: int, sign: int, tmp_path: Path) -> None:
    """A network that asks for it finds the file's own, else its own: names and shapes are those."""
    module, other, file = Versioned(3, 2), Versioned(3, 2), tmp_path / f"w.{suffix}"
    if suffix == "pt":
        state = module.state_dict()
        state._metadata[""]["version"] = version  # type: ignore[attr-defined]
        torch.save(state, file)
    else:
        save_weights(module, file)
    load_weights(other, file)
    assert torch.equal(other.weight, sign * module.weight)


def test_weights_that_do_not_fit_are_listed(tmp_path: Path) -> None:
    """Missing, unexpected and misshapen weights are told at once, the first few by name."""
    state = small().state_dict()
    del state["4.bias"]
    state["4.weight"] = torch.zeros(2, 2)
    state.update({f"extra{i}": torch.zeros(1) for i in range(7)})
    save_file(state, tmp_path / "w.safetensors")
    with pytest.raises(ModelError) as caught:
        load_weights(small(), tmp_path / "w.safetensors")
    assert str(caught.value) == (
        f"{tmp_path}/w.safetensors: the weights do not fit the model: 1 missing: 4.bias; "
        "7 unexpected: extra0, extra1, extra2, extra3, extra4 and 2 more; "
        "1 of another shape: 4.weight (2, 2) instead of (3, 72)"
    )


def test_a_weight_of_another_shape_alone_is_listed(tmp_path: Path) -> None:
    """All names may fit and one shape not, as with another number of classes."""
    save_file({**small().state_dict(), "4.bias": torch.zeros(5)}, tmp_path / "w.safetensors")
    with pytest.raises(
        ModelError, match=r"do not fit the model: 1 of another shape: 4\.bias \(5,\) instead of \(3,\)$"
    ):
        load_weights(small(), tmp_path / "w.safetensors")


def test_a_failed_load_leaves_the_module_alone(tmp_path: Path) -> None:
    """Half of the weights of a file that does not fit must not remain in the network."""
    state = {name: value + 1 for name, value in small().state_dict().items() if name != "4.bias"}
    save_file(state, tmp_path / "w.safetensors")
    module = small()
    with pytest.raises(ModelError):
        load_weights(module, tmp_path / "w.safetensors")
    assert digest(module) == digest(small())


class Harmful:
    """A pickle of this runs a command when it is loaded."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


@pytest.mark.parametrize("write", [lambda v, f: torch.save(v, f), lambda v, f: f.write_bytes(pickle.dumps(v))])
def test_a_pickle_that_could_run_code_is_refused_and_does_not_run(write: Any, tmp_path: Path) -> None:
    """The message says why and how to convert; the code in the file was not run."""
    write({"state_dict": Harmful(f"touch {tmp_path}/ran")}, tmp_path / "w.pt")
    message = r"could run code, so qbench does not load it\. Convert it once.*torch\.save\(model\.state_dict"
    with pytest.raises(ModelError, match=message) as raised:
        load_weights(small(), tmp_path / "w.pt")
    assert "weights_only" not in str(raised.value)
    assert "\x1b" not in str(raised.value)
    assert not (tmp_path / "ran").exists()


def test_files_that_are_no_weights_say_so(tmp_path: Path) -> None:
    """A TorchScript file, a list, a dict of other things, damaged files, an unknown ending, no file."""
    torch.save([1, 2], tmp_path / "list.pt")
    torch.save({"epoch": 3, "lr": 0.1}, tmp_path / "dict.pt")
    (tmp_path / "damaged.pt").write_bytes(b"PK\x03\x04 damaged")
    (tmp_path / "damaged.safetensors").write_bytes(b"\xff" * 100)
    (tmp_path / "w.h5").write_bytes(b"")
    saved_torchscript(small(), tmp_path / "script.pt")
    expected = {
        "script.pt": "this is a TorchScript model, not weights; use it as source",
        "list.pt": "expected a state dict .*, found list",
        "dict.pt": "these are no tensors: epoch, lr; save model.state_dict",
        "damaged.pt": "",
        "damaged.safetensors": "not a safetensors file, or damaged",
        "w.h5": r"weights must be \.safetensors, or a state dict in \.pt or \.pth",
        "none.pt": "no such weights file",
    }
    for name, text in expected.items():
        with pytest.raises(ModelError, match=f"{name}: .*{text}"):
            load_weights(small(), tmp_path / name)


@pytest.mark.parametrize("zipped", [True, False])
def test_any_damage_of_a_weights_file_is_a_model_error(zipped: bool, tmp_path: Path) -> None:
    """A bad directory of the archive, an entry without its end, a pickle cut in two: each is one message."""
    file = tmp_path / "w.pt"
    torch.save({"a": torch.arange(10.0)}, file, _use_new_zipfile_serialization=zipped)
    whole, random = file.read_bytes(), np.random.RandomState(0)
    damaged = 0
    for _ in range(300):
        data = bytearray(whole)
        for place in random.randint(max(0, len(data) - 600), len(data), 4):
            data[place] = random.randint(256)
        file.write_bytes(data)
        try:
            read_state(file)
        except ModelError:
            damaged += 1
    assert damaged > 100


def test_tied_weights_are_stored_once_and_stay_tied(tmp_path: Path) -> None:
    """A tensor with two names (an embedding and its output layer) is written once and read for both."""

    def tied() -> nn.ModuleDict:
        net = nn.ModuleDict({"embed": nn.Embedding(50, 8), "out": nn.Linear(8, 50, bias=False)})
        net["out"].weight = net["embed"].weight
        return net

    first, second = tied(), tied()
    save_weights(first, tmp_path / "w.safetensors")
    load_weights(second, tmp_path / "w.safetensors")
    assert (tmp_path / "w.safetensors").stat().st_size < 2 * 50 * 8 * 4
    assert digest(first) == digest(second)
    assert second["out"].weight is second["embed"].weight
    assert [file.name for file in tmp_path.iterdir()] == ["w.safetensors"]


@pytest.mark.parametrize(("size", "stands"), [(1, True), (0, False)])
def test_one_name_stands_for_another_of_the_same_memory(size: int, stands: bool, tmp_path: Path) -> None:
    """Of which there is some: all empty tensors lie at the same place."""

    class Twins(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            values = torch.zeros(size)
            self.register_buffer("first", values)
            self.register_buffer("second", values if size else torch.zeros(size))

    module = Twins()
    save_file({"first": torch.ones(size)}, tmp_path / "w.safetensors")
    if stands:
        load_weights(module, tmp_path / "w.safetensors")
        assert module.second.tolist() == [1.0]
        return
    with pytest.raises(ModelError, match="1 missing: second$"):
        load_weights(module, tmp_path / "w.safetensors")


def test_old_files_without_batch_counters_load(tmp_path: Path) -> None:
    """BatchNorm's counter came with torch 0.4.1 and does not matter in eval mode."""
    state = {name: value for name, value in small().state_dict().items() if "num_batches" not in name}
    save_file(state, tmp_path / "w.safetensors")
    load_weights(small(), tmp_path / "w.safetensors")


def test_the_weights_digest_sees_names_types_shapes_and_buffers() -> None:
    """Anything that could make another network makes another digest."""
    linear = nn.Linear(2, 2, bias=False)
    nn.init.ones_(linear.weight)
    variants = [linear, nn.Linear(2, 2, bias=False).double(), nn.Linear(4, 1, bias=False), nn.Module()]
    for module in variants[1:3]:
        nn.init.ones_(module.weight)
    variants[3].register_buffer("weight2", torch.ones(2, 2))
    digests = [digest(module) for module in variants]
    assert len(set(digests)) == len(digests)
    batch_norm = nn.BatchNorm1d(2)
    before = digest(batch_norm)
    batch_norm.running_mean.add_(1)
    assert digest(batch_norm) != before
