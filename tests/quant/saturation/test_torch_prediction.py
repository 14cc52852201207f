"""What torch's engines answer on AVX2: predicted, held against them in a process that hides newer instructions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from qbench.machine import fingerprint
from qbench.quant.saturation import torch_products
from qbench.quant.saturation.layer_counter import LayerCounter
from qbench.quant.saturation.pair_sums import PairedProduct
from qbench.quant.saturation.torch_prediction import TorchPredictor
from tests.fixtures import pair_sum_reference, torch_int8_layers
from tests.fixtures.torch_int8_layers import LAYERS, SCALE, ZERO

ENGINES = [engine for engine in ("fbgemm", "x86", "onednn") if engine in torch.backends.quantized.supported_engines]
VNNI = "avx512_vnni" in fingerprint.isa()
ROOT = Path(__file__).parents[3]
EXACT = {
    "fbgemm": {"groups of 16"} if VNNI else set(),
    "onednn": {name for name in LAYERS if "depthwise" in name} | {"groups of 5", "two outputs for each input"},
}
# On a CPU with VNNI it takes fbgemm's kernels for more than 100 groups only.
EXACT["x86"] = (EXACT["onednn"] if VNNI else EXACT["fbgemm"]) - {"depthwise 5x5 of 144"}


@pytest.fixture(scope="module", params=ENGINES)
def limited(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """An engine, and the folder of what it gives with the instructions of AVX2."""
    folder = tmp_path_factory.mktemp(request.param)
    command = [sys.executable, "-m", "tests.fixtures.torch_int8_layers", request.param, str(folder)]
    environment = {**os.environ, **torch_int8_layers.SWITCHES}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return request.param, folder


@pytest.fixture
def engine(limited: tuple[str, Path]) -> Iterator[str]:
    """The process's engine meanwhile."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = limited[0]
    yield limited[0]
    torch.backends.quantized.engine = before


def predicted(engine: str, name: str) -> tuple[np.ndarray, bool]:
    """The bytes of a layer from exact sums, less what is lost; whether any is."""
    weight, x = torch_int8_layers.draw(name)
    x = x if LAYERS[name][0].kind != "linear" else x.reshape(len(x), -1)
    scales, scale = torch_int8_layers.scales_of(name)
    engine = torch_products.choose_engine(engine, LAYERS[name][0])
    product = torch_products.read_product(engine, LAYERS[name][0], weight, ZERO, switched=True)
    assert not isinstance(product, str)
    exact = LAYERS[name][0].exact(torch.from_numpy(x).double() - ZERO, torch.from_numpy(weight).double()).numpy()
    bias = np.linspace(-1, 1, len(weight), dtype=np.float32)

    def finish(sums: np.ndarray, channel: np.ndarray) -> np.ndarray:
        return torch_products.finish(engine, (SCALE, scales, scale), 128, bias, 0, sums, channel)

    y = finish(
        exact.astype(np.int32),
        np.broadcast_to(np.arange(len(weight)).reshape(-1, *[1] * (exact.ndim - 2)), exact.shape),
    )
    if product is None:
        return y, False
    counter = LayerCounter(name=name, operator="", product=product, weight=weight.astype(np.int32))
    counter.correct(x, ZERO, y, finish)
    return y, bool(counter.report().saturated)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_gives_what_is_predicted(limited: tuple[str, Path], name: str) -> None:
    """Bit for bit, but for one byte in a thousand that is rounded the other way; where it is exact, as predicted."""
    engine, folder = limited
    actual, (expected, saturates) = np.load(folder / f"{name}.npy").astype(int), predicted(engine, name)
    assert abs(actual - expected).max() <= 1
    assert np.count_nonzero(actual != expected) <= actual.size / 1000
    assert saturates == (name not in EXACT[engine])


def test_an_artifact_answers_what_is_predicted(limited: tuple[str, Path], engine: str) -> None:
    """A network of a convolution and a matrix product: the second reads what the first will give."""
    predictor = TorchPredictor(limited[1] / "network.pt", engine)
    x = torch_int8_layers.inputs()
    outputs = np.concatenate([predictor((x[:2],)), predictor((x[2:],))])
    assert np.array_equal(outputs, np.load(limited[1] / "network.npy"))
    assert predictor.unknown == {}
    assert [layer.operator for layer in predictor.layers] == ["quantized::conv2d_relu", "quantized::linear"]
    assert predictor.saturated >= {1, 2, 3, 4}
    assert all(layer.saturated for layer in predictor.layers)


def test_layers_are_called_after_modules_where_there_are_as_many(limited: tuple[str, Path], engine: str) -> None:
    """Names for one layer of two would be those of others."""
    x = torch_int8_layers.inputs()
    expected = {("conv", "head"): ["conv", "head"], ("conv",): ["quantized::conv2d_relu#1", "quantized::linear#2"]}
    for names, shown in expected.items():
        predictor = TorchPredictor(limited[1] / "network.pt", engine, names)
        predictor((x,))
        assert [layer.name for layer in predictor.layers] == shown


def test_the_sums_of_both_engines_are_those_of_the_slow_reference() -> None:
    """The same odd channels lose different sums on either: pairs across places, or none."""
    weight, x = torch_int8_layers.draw("3x3 of odd channels")
    differ = []
    for engine in ("fbgemm", "onednn"):
        product = torch_products.read_product(engine, LAYERS["3x3 of odd channels"][0], weight, ZERO, switched=True)
        assert isinstance(product, PairedProduct)
        differ.append(pair_sum_reference.sums(product, x[:1, :, :3, :3])[0, 0, 1, 1])
    assert differ[0] != differ[1]


@pytest.mark.parametrize(
    ("operator", "layer", "result", "unknown"),
    [
        ("conv2d", None, "native", {}),
        ("conv2d", 0, "native", {}),
        ("linear_relu", 1, "corrected", {}),
        ("conv_transpose2d", 1, "native", {"quantized::conv_transpose2d#2": "the operator is not modelled"}),
    ],
)
def test_only_layers_with_pairs_are_put_right(operator: str, layer: Any, result: str, unknown: dict[str, str]) -> None:
    """Each is read once; of an operator that is not modelled nothing is claimed."""
    known = None if layer is None else SimpleNamespace(counter=SimpleNamespace(pairs=range(layer)))
    reads: list[str] = []
    predictor: Any = SimpleNamespace(
        unknown={}, _layers={}, _read=lambda name, *rest: reads.append(name) or known,
        _corrected=lambda *words: "corrected",
    )  # fmt: skip
    for _ in range(2):
        assert TorchPredictor.correct(predictor, 2, operator, ("x", "packed"), "native", 3) == result
    assert predictor.unknown == unknown
    assert reads == ([] if unknown else [f"quantized::{operator}#2"])
