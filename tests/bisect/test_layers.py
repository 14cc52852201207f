"""Rules of qbench/bisect/layers.py: one more layer in int8 from each candidate to the next."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from qbench import suite as suites
from qbench.bisect.candidates import Absent
from qbench.bisect.layers import START, Layers, find_layers
from qbench.bisect.open_suite import OpenSuite, find_case, open_suite
from qbench.bisect.question import On
from qbench.bisect.start import Request, start
from qbench.build import Artifact
from qbench.cache import store
from qbench.errors import BuildError, UsageError
from qbench.progress.live import Silent

NETWORK = """\
import torch
from torch import nn

def two_layers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 10))
"""
SUITE = """\
suite: small
models: [{name: net, source: {python: "network.py:two_layers"}}]
data: {dataset: {npz: data.npz}, calibrate: {samples: 16}}
matrix: {modes: [fp32, static, qat], backends: [onnxruntime]}
quantize: {static: {min_coverage: 0.9}}
"""
CASE = "net/static/onnxruntime/t1/b1"


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> suites.Suite:
    """A network of three layers on made-up data."""
    folder = tmp_path_factory.mktemp("suite")
    rng = np.random.default_rng(0)
    arrays = {"train_inputs": rng.random((32, 1, 8, 8), dtype=np.float32), "train_labels": np.arange(32) % 10}
    arrays |= {"test_inputs": rng.random((20, 1, 8, 8), dtype=np.float32), "test_labels": np.arange(20) % 10}
    np.savez(folder / "data.npz", **arrays)
    (folder / "network.py").write_text(NETWORK)
    (folder / "small.yaml").write_text(SUITE)
    return suites.read(folder / "small.yaml")


@pytest.fixture(scope="module")
def opened(suite: suites.Suite) -> OpenSuite:
    """The case made ready."""
    with store.in_use(store.open_cache()):
        return open_suite(suite, find_case(suite, CASE), Silent())


def count_int8(layers: Layers, place: int) -> tuple[int, Artifact]:
    """How many layers of a candidate run in int8, and its artifact."""
    case = layers._choose_case(place)
    artifact = layers.opened.build(case.variant)
    return sum(layer.int8 for layer in artifact.built.layers), artifact


def test_each_candidate_has_one_more_layer_in_int8(opened: OpenSuite) -> None:
    """From the fp32 to the case itself, whatever coverage the suite asks for; each loads."""
    layers = find_layers(opened)
    assert (layers.names[0], len(layers.names)) == (START, 4)
    counts = [count_int8(layers, place) for place in range(4)]
    assert [count for count, _ in counts] == [0, 1, 2, 3]
    assert counts[0][1].mode == "fp32"
    assert counts[3][1].sha256 == layers.artifact.sha256
    arm = layers.open(2)
    assert arm.digest == counts[2][1].sha256
    assert arm.spec.file == counts[2][1].file


def test_a_layer_that_cannot_be_built_alone_is_passed_by(opened: OpenSuite, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be had, which is no failure of its kernel."""
    layers = find_layers(opened)

    def refuse(self: OpenSuite, variant: object) -> Artifact:
        raise BuildError("nothing of it runs in int8")

    monkeypatch.setattr(OpenSuite, "build", refuse)
    with pytest.raises(Absent, match="nothing of it runs in int8"):
        layers.open(1)


@pytest.mark.parametrize(
    ("case", "told"),
    [("net/fp32/onnxruntime/t1/b1", "is fp32; name an int8 case"), ("net/qat/onnxruntime/t1/b1", "trained for each")],
)
def test_cases_without_layers_to_put_in_float_are_refused(
    suite: suites.Suite, opened: OpenSuite, case: str, told: str
) -> None:
    """Before anything is built."""
    other = OpenSuite(**{**vars(opened), "planned": find_case(suite, case)})
    with pytest.raises(UsageError, match=told):
        find_layers(other)


def holding(*layers: tuple[str, bool], mode: str = "static", file: str | None = None) -> Any:
    """A case whose artifact has these layers, the int8 ones marked."""
    built = SimpleNamespace(layers=[SimpleNamespace(name=name, int8=int8) for name, int8 in layers])
    variant = SimpleNamespace(mode=mode, recipe=SimpleNamespace(file=file))
    return SimpleNamespace(case=SimpleNamespace(id="c", variant=variant), build=lambda _: SimpleNamespace(built=built))


def test_layers_are_named_once_in_their_order() -> None:
    """Of a name that two share, both change at once; what is float stays so."""
    layers = find_layers(holding(("b", True), ("a", True), ("f", False), ("b", True)))
    assert layers.names == (START, "b", "a")
    assert (layers.mended, layers.of, layers.way) == (False, "layers", "layers")


@pytest.mark.parametrize(
    ("opened", "told"),
    [
        (holding(("a", True), ("f", False)), "has 1 layers in int8; there is nothing to halve"),
        (holding(("a", True), ("b", True), file="own.onnx"), "it is a file of your own"),
        (holding(("a", True), ("b", True), file="own.onnx", mode="qat"), "trained for each"),
    ],
)
def test_there_must_be_layers_to_halve(opened: Any, told: str) -> None:
    """At least two that qbench made."""
    with pytest.raises(UsageError, match=told):
        find_layers(opened)


def request(suite: suites.Suite, folder: Path, on: On = "accuracy", good: str = "float", bad: str = "int8") -> Request:
    """A search over layers."""
    return Request(
        suite=suite,
        suite_file=Path(suite.file),
        case=CASE,
        good=good,
        bad=bad,
        on=on,
        pre_releases=False,
        out=folder,
        most_seconds=1000.0,
        quiet=True,
    )


def test_a_search_over_layers_ends_with_an_answer(suite: suites.Suite, tmp_path: Path) -> None:
    """By real answers of float and int8; what was looked at is kept."""
    started = start(request(suite, tmp_path), Silent())
    assert started.question.candidates[0] == START
    assert started.answer.kind in ("same", "better", "named", "several")
    assert {each.candidate for each in started.journal.observations} >= {0, 3}
    assert (tmp_path / "bisect.jsonl").is_file()
    assert start(request(suite, tmp_path), Silent()).answer == started.answer


@pytest.mark.parametrize(
    ("on", "good", "bad", "told"),
    [
        ("accuracy", "int8", "float", "it is --good float --bad int8"),
        ("accuracy", "float", "HEAD", "it is --good float --bad int8"),
        ("bits", "float", "int8", "other bits than float by design"),
    ],
)
def test_ends_that_make_no_sense_over_layers(
    on: On, good: str, bad: str, told: str, suite: suites.Suite, tmp_path: Path
) -> None:
    """Each with what it would be."""
    with pytest.raises(UsageError, match=told):
        start(request(suite, tmp_path, on, good, bad), Silent())


OUTLIER = """\
import torch
from torch import nn

def outlier():
    torch.manual_seed(0)
    layers = [nn.Flatten()]
    for inputs, outputs in [(64, 32), (32, 32), (32, 32), (32, 32), (32, 10)]:
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    network = nn.Sequential(*layers[:-1])
    with torch.no_grad():
        for layer in (network[1], network[3], network[5], network[7], network[9]):
            layer.weight.mul_(3.0)
        network[3].weight[0], network[3].bias[0] = 0.0, 0.0  # so that nothing comes from there,
        network[5].weight[:, 0] = 3000.0                    # where one scale of all weights leaves no other any digit
    return network
"""


def test_the_layer_that_costs_the_accuracy_is_named(tmp_path: Path) -> None:
    """One of five layers has a weight that is a thousand times the others, and one scale for all of them."""
    import torch

    names: dict[str, object] = {}
    exec(OUTLIER, names)
    rng = np.random.default_rng(1)
    inputs = rng.random((332, 1, 8, 8), dtype=np.float32)
    with torch.no_grad():
        labels = names["outlier"]()(torch.tensor(inputs)).argmax(1).numpy()  # type: ignore[operator]
    arrays = {"train_inputs": inputs[:32], "train_labels": labels[:32]}
    np.savez(tmp_path / "data.npz", **arrays, test_inputs=inputs[32:], test_labels=labels[32:])
    (tmp_path / "network.py").write_text(OUTLIER)
    (tmp_path / "small.yaml").write_text(
        SUITE.replace("two_layers", "outlier").replace("min_coverage: 0.9", "per_channel: false")
    )
    read = suites.read(tmp_path / "small.yaml")
    started = start(request(read, tmp_path / "looks"), Silent())
    assert started.answer.kind == "named"
    assert started.answer.bracket is not None
    named = started.question.candidates[started.answer.bracket.first_bad]
    assert "5" in named, started.question.candidates
