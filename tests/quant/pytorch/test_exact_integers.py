"""What is said of int8 layers that were held against exact integers; which grouped convolutions are slow on fbgemm."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from qbench.machine import fingerprint
from qbench.quant.pytorch import exact_integers, torch_ao
from qbench.quant.pytorch.exact_integers import Compared, Proof
from qbench.quant.pytorch.narrow_weights import Sums
from qbench.quant.recipe import Recipe

COMPARED = Compared(layers=5, examples=4, off={"a": 0.001, "b": 0.25, "c": 0.0004})


def proof(**recipe: Any) -> Proof:
    return Proof(sums=Sums(layers=5, left=["b", "d"]), compared=COMPARED, engine="fbgemm", recipe=Recipe(**recipe))


def test_layers_whose_kernels_cannot_be_used() -> None:
    """Those that differ; those whose sums overflow only where weights were to be narrowed; of torch's default none."""
    differs = {
        "a": "its int8 kernel differs from exact integers in 0.1% of its outputs on this CPU",
        "c": "its int8 kernel differs from exact integers in 0.0004 of its outputs on this CPU",
    }
    assert proof().wrong() == differs
    adds = "its int8 kernel adds up wrongly here or on a CPU of its target, whatever its weights"
    assert proof(narrow_weights=True).wrong() == differs | {"b": adds, "d": adds}
    assert proof(framework_default=True, narrow_weights=True).wrong() == {}


def test_what_differs_is_told_by_its_worst_layer() -> None:
    """With its share, and how many layers differ; nothing where none does."""
    assert exact_integers._of_differences(Compared(layers=5, examples=4)) is None
    assert exact_integers._of_differences(COMPARED) == (
        "on 4 calibration examples 3 of 5 int8 layers differ from exact integers by more than rounding, b in 25.0% of "
        "its outputs"
    )


@pytest.mark.parametrize(
    ("engine", "recipe", "level"),
    [
        ("fbgemm", {"framework_default": True, "reduce_range": False}, 127),
        ("x86", {"framework_default": True}, 127),
        ("onednn", {"framework_default": True, "reduce_range": True}, 255),
        ("fbgemm", {"reduce_range": False}, 255),
        ("onednn", {"reduce_range": True}, 127),
    ],
)
def test_the_largest_level(engine: str, recipe: dict[str, Any], level: int) -> None:
    """Torch's own default of these engines has 7 bits; else it is the recipe's."""
    assert exact_integers.largest_level(engine, Recipe(**recipe)) == level


def layer(
    name: str = "a", *, groups: int = 8, each_in: int = 1, each_out: int = 1, kernel: tuple[int, ...] = (3, 3),
    stride: tuple[int, ...] = (1, 1), padding: tuple[int, ...] = (1, 1), dilation: tuple[int, ...] = (1, 1),
    kind: str = "conv",
) -> Any:  # fmt: skip
    """A convolution as its packed parameters tell it."""
    said = {"groups": groups, "stride": stride, "padding": padding, "dilation": dilation}
    return SimpleNamespace(
        name=name,
        parameters=SimpleNamespace(**{key: lambda value=value: value for key, value in said.items()}),
        weight=torch.zeros(groups * each_out, each_in, *kernel),
        kernel=SimpleNamespace(kind=kind),
    )


def is_fast(**shape: Any) -> bool:
    built = layer(**shape)
    return exact_integers._fast(built.parameters, built.weight)


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"stride": (2, 1)},
        {"groups": 16, "kernel": (5, 5), "padding": (2, 2)},
        {"kernel": (7, 7), "padding": (3, 3)},
        {"kernel": (3, 3, 3), "stride": (1, 1, 1), "padding": (1, 1, 1), "dilation": (1, 1, 1)},
        {"groups": 3, "each_in": 4, "each_out": 4},
        {"groups": 2, "each_in": 8, "each_out": 8},
        {"groups": 2, "each_in": 16, "each_out": 16, "stride": (2, 2)},
    ],
)
def test_grouped_convolutions_that_fbgemm_has_kernels_for(shape: dict[str, Any]) -> None:
    """Depthwise of some sizes, and groups of 4, 8 or 16 channels of 3 x 3."""
    assert is_fast(**shape)


@pytest.mark.parametrize(
    "shape",
    [
        {"stride": (3, 1)},
        {"dilation": (1, 2)},
        {"padding": (1, 0)},
        {"groups": 12},
        {"kernel": (3, 5), "padding": (1, 1)},
        {"kernel": (9, 9), "padding": (4, 4)},
        {"kernel": (1, 1), "padding": (0, 0)},
        {"kernel": (5, 5, 5), "stride": (1, 1, 1), "padding": (2, 2, 2), "dilation": (1, 1, 1)},
        {"each_out": 2},
        {"groups": 2, "each_in": 4, "each_out": 8},
        {"groups": 2, "each_in": 2, "each_out": 2},
        {"groups": 2, "each_in": 4, "each_out": 4, "kernel": (5, 5), "padding": (2, 2)},
        {"groups": 2, "each_in": 4, "each_out": 4, "padding": (0, 0)},
    ],
)
def test_grouped_convolutions_that_fbgemm_computes_group_by_group(shape: dict[str, Any]) -> None:
    """One rule of its fast path is broken in each."""
    assert not is_fast(**shape)


SLOW = [layer(name, groups=12, stride=(2, 1), padding=(0, 1)) for name in "abcd"]


@pytest.mark.parametrize(
    ("engine", "words", "slow"),
    [
        ("fbgemm", ["avx512_vnni"], ["few", "many"]),
        ("x86", [], ["few", "many"]),
        ("x86", ["avx512_vnni"], ["many"]),  # oneDNN has the other
        ("onednn", [], []),
    ],
)
def test_which_convolutions_are_slow(
    monkeypatch: pytest.MonkeyPatch, engine: str, words: list[str], slow: list[str]
) -> None:
    """Grouped ones alone, and none that fbgemm has a kernel for."""
    every = [
        layer("linear", groups=12, kind="linear"), layer("one", groups=1, stride=(3, 3)), layer("fast"),
        layer("few", groups=100, stride=(3, 3)), layer("many", groups=101, stride=(3, 3)),
    ]  # fmt: skip
    monkeypatch.setattr(exact_integers, "layers", lambda _module: every)
    monkeypatch.setattr(fingerprint, "isa", lambda: words)
    assert [name for name, _ in exact_integers.slow_convolutions(None, engine)] == slow


@pytest.mark.parametrize(
    ("slow", "note"),
    [
        ([], None),
        (SLOW[:1], "1 grouped convolution takes fbgemm's slow path, many times slower than fp32: a (12 groups, kernel "
         "3x3, stride 2x1, padding 0x1); the engine onednn has fast kernels for them"),
        (SLOW, "4 grouped convolutions take fbgemm's slow path, many times slower than fp32: "
         + ", ".join(f"{name} (12 groups, kernel 3x3, stride 2x1, padding 0x1)" for name in "abc")
         + " and 1 more; the engine onednn has fast kernels for them"),
    ],
)  # fmt: skip
def test_what_is_said_of_slow_convolutions(monkeypatch: pytest.MonkeyPatch, slow: list[Any], note: str | None) -> None:
    """One, or the first three of several, with their shapes."""
    monkeypatch.setattr(exact_integers, "layers", lambda _module: slow)
    assert exact_integers.slow_note(None, "fbgemm") == note


def int8_network(kind: Any, *words: int, rank: int, **options: Any) -> Any:
    """One int8 layer of small weights, so that no sum overflows, between a quantizer and a dequantizer."""
    generator = torch.Generator().manual_seed(0)
    with torch_ao.known_warnings():
        layer = kind(*words, **options)
        shape = layer.weight().shape
        levels = torch.randint(-60, 61, shape, generator=generator).float()
        steps = torch.linspace(0.01, 0.02, shape[0]).double()
        weight = torch.quantize_per_channel(
            levels * steps.float().reshape(-1, *[1] * (len(shape) - 1)), steps, torch.zeros(shape[0]).long(), 0,
            torch.qint8,
        )  # fmt: skip
        layer.set_weight_bias(weight, torch.linspace(-1, 1, shape[0]))
        layer.scale, layer.zero_point = 0.05, 100
        network = torch.nn.Sequential(torch_ao.nnq.Quantize(0.02, 7, torch.quint8), layer, torch_ao.nnq.DeQuantize())
    x = torch.rand((6, 3, *[5] * rank), generator=generator) * 4 if rank else torch.rand((6, 3), generator=generator)
    return network, (x,)


KINDS = [
    (torch_ao.nnq.Conv1d, (3, 4, 3), 1, {"padding": 1}),
    (torch_ao.nnq.Conv2d, (3, 4, 3), 2, {"padding": 1, "stride": 2}),
    (torch_ao.nnq.Conv3d, (3, 2, 3), 3, {}),
    (torch_ao.nniq.ConvReLU2d, (3, 4, 3), 2, {}),
    (torch_ao.nnq.Linear, (3, 5), 0, {}),
    (torch_ao.nniq.LinearReLU, (3, 5), 0, {}),
]


@pytest.mark.usefixtures("engine_put_back")
@pytest.mark.parametrize(("kind", "words", "rank", "options"), KINDS)
@pytest.mark.parametrize("shift", [0, 3])
def test_layers_are_held_against_exact_integers(
    kind: Any, words: tuple[int, ...], rank: int, options: dict[str, Any], shift: int
) -> None:
    """One example alone and four together; what is off by several levels is no rounding."""
    torch_ao.set_engine(next(name for name in torch_ao.ENGINES if name in torch.backends.quantized.supported_engines))
    network, examples = int8_network(kind, *words, rank=rank, **options)
    sizes: list[int] = []

    def move(part: Any, inputs: Any, output: Any) -> Any:
        sizes.append(len(output))
        levels = output.int_repr().int()
        moved = torch.where(levels > 127, levels - shift, levels + shift).to(torch.uint8)
        return torch._make_per_tensor_quantized_tensor(moved, output.q_scale(), output.q_zero_point())

    network[1].register_forward_hook(move)
    compared = exact_integers.compare(network, examples)
    assert (compared.layers, compared.examples) == (1, 4)
    assert sorted(sizes) == [1, 4]
    assert compared.off == ({"1": 1.0} if shift else {})
