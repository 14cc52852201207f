"""Rules of qbench/quant/artifacts/torchscript.py: how much each operator multiplies, in which format, by which name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from composed_network import Network
from torch import nn
from torch.nn import functional

from qbench.errors import BuildError
from qbench.quant.artifacts import torchscript
from qbench.quant.artifacts.torchscript import find_layers, unpack_weight
from qbench.quant.pytorch import torch_ao

ONE, PAIR, ROWS, IMAGE = torch.rand(6), torch.rand(2, 6), torch.rand(2, 5, 6), torch.rand(2, 4, 8, 8)


def counted(run: Any, x: Any, **layers: nn.Module) -> list[tuple[str, int | None]]:
    """The name and the work of each operator that multiplies."""
    return [(layer.name, layer.macs) for layer in find_layers(Network(run, **layers).eval(), (x,))]


@pytest.mark.parametrize(
    ("run", "x", "macs"),
    [
        (lambda m, x: functional.linear(x, torch.ones(7, 6)), ROWS, 2 * 5 * 7 * 6),
        (lambda m, x: functional.conv2d(x, torch.ones(6, 2, 3, 3), groups=2), IMAGE, 2 * 6 * 36 * 2 * 9),
        (lambda m, x: functional.conv1d(x, torch.ones(3, 5, 2), stride=2), ROWS, 2 * 3 * 3 * 5 * 2),
        (lambda m, x: functional.conv_transpose2d(x, torch.ones(4, 3, 2, 2), stride=2), IMAGE, 2 * 4 * 64 * 3 * 4),
        (lambda m, x: functional.conv_transpose1d(x, torch.ones(5, 1, 2), groups=5), ROWS, 2 * 5 * 6 * 2),
        (lambda m, x: torch.convolution(x, torch.ones(4, 3, 2, 2), None, (1, 1), (0, 0), (1, 1), True, (0, 0), 1),
         IMAGE, 2 * 4 * 64 * 3 * 4),
        (lambda m, x: torch.convolution(x, torch.ones(3, 4, 2, 2), None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1),
         IMAGE, 2 * 3 * 49 * 4 * 4),
        (lambda m, x: functional.bilinear(x, x, torch.ones(3, 6, 6)), PAIR, 2 * 3 * 36),
        (lambda m, x: x @ x.mT, ROWS, 2 * 5 * 5 * 6),
        (lambda m, x: torch.mm(x, x.T), PAIR, 2 * 2 * 6),
        (lambda m, x: torch.addmm(torch.zeros(2), x, x.T), PAIR, 2 * 2 * 6),
        (lambda m, x: torch.mv(x, torch.ones(6)), PAIR, 12),
        (lambda m, x: x.dot(x), ONE, 6),
        (lambda m, x: torch.vdot(x, x), ONE, 6),
        (lambda m, x: functional.scaled_dot_product_attention(x, x[:, :3], torch.ones(2, 3, 4)), ROWS,
         2 * 5 * 3 * (6 + 4)),
    ],
)  # fmt: skip
def test_the_work_of_an_operator(run: Any, x: Any, macs: int) -> None:
    """Of a transposed convolution by its inputs, of any other by its outputs, of attention every query with every
    key."""
    assert [work for _, work in counted(run, x)] == [macs]


@pytest.mark.parametrize("run", [lambda m, x: x + x, lambda m, x: x.softmax(-1) * 2, lambda m, x: x.flatten()])
def test_what_multiplies_nothing_is_no_layer(run: Any) -> None:
    """Element by element is no product."""
    assert counted(run, ROWS) == []


@pytest.mark.parametrize(
    ("layer", "macs"),
    [
        (nn.LSTM(6, 4, num_layers=2, batch_first=True), 10 * (4 * 4 * (6 + 4) + 4 * 4 * (4 + 4))),
        (nn.LSTM(6, 4, bidirectional=True, batch_first=True), 10 * 2 * 4 * 4 * (6 + 4)),
        (nn.GRU(6, 4, batch_first=True), 10 * 3 * 4 * (6 + 4)),
        (nn.RNN(6, 4, batch_first=True), 10 * 4 * (6 + 4)),
        (nn.RNN(6, 4, nonlinearity="relu", batch_first=True), 10 * 4 * (6 + 4)),
    ],
)
def test_the_work_of_a_recurrent_layer(layer: nn.Module, macs: int) -> None:
    """Gates x state x (input + state) in each step, layer and direction; the same where it is made int8, or has
    weights of fp16, which are none."""
    assert counted(lambda m, x: m.rnn(x)[0], ROWS, rnn=layer) == [("rnn", macs)]
    if isinstance(layer, nn.RNN):
        return
    before = torch.backends.quantized.engine
    has_halves = "fbgemm" in torch.backends.quantized.supported_engines
    torch_ao.set_engine("fbgemm" if has_halves else "qnnpack")
    try:
        network = Network(lambda m, x: m.rnn(x)[0], rnn=layer).eval()
        with torch_ao.known_warnings():
            for kind in (torch.qint8, torch.float16) if has_halves else (torch.qint8,):
                packed = torch_ao.quantize_dynamic(network, {type(layer)}, dtype=kind)
                (told,) = find_layers(packed, (ROWS,))
                assert (told.macs, told.int8) == (macs, kind is torch.qint8)
    finally:
        torch.backends.quantized.engine = before


def test_layers_are_named_by_their_module_else_by_operator_and_place() -> None:
    """The innermost that is called; behind it the outer one again."""
    inner = nn.Sequential(nn.Linear(6, 6), nn.ReLU())

    def run(m: Any, x: Any) -> Any:
        return m.b(m.a(x)) @ torch.ones(6, 2)

    assert [name for name, _ in counted(run, PAIR, a=inner, b=nn.Linear(6, 6))] == ["a.0", "b", "aten::mm#2"]


@pytest.mark.parametrize(
    ("kind", "precision"), [(torch.float32, "fp32"), (torch.bfloat16, "bf16"), (torch.float16, "fp16")]
)
def test_the_format_is_that_of_the_floats(kind: Any, precision: str) -> None:
    """Of several formats none is taken for it."""
    network = nn.Linear(6, 3).to(kind)
    assert [layer.precision for layer in find_layers(network, (PAIR.to(kind),))] == [precision]
    assert torchscript._precision_of((torch.ones(1), torch.ones(1, dtype=torch.bfloat16)), {}) == "fp32"
    assert torchscript._precision_of((torch.ones(1, dtype=torch.int8),), {"x": torch.ones(1).half()}) == "fp16"
    assert torchscript._precision_of((1, 2), {}) == "fp32"


def test_int8_operators_carry_their_weights() -> None:
    """The work is read from what they packed; the others of that kind have none."""
    before = torch.backends.quantized.engine
    torch_ao.set_engine("qnnpack")
    try:
        ops = torch.ops.quantized
        with torch_ao.known_warnings():
            linear = ops.linear_prepack(torch.quantize_per_tensor(torch.ones(3, 6), 1.0, 0, torch.qint8), None)
            weight = torch.quantize_per_tensor(torch.ones(4, 2, 3, 3), 1.0, 0, torch.qint8)
            conv = ops.conv2d_prepack(weight, None, [1, 1], [0, 0], [1, 1], 2)
            over = torch.quantize_per_tensor(torch.ones(4, 3, 2, 2), 1.0, 0, torch.qint8)
            up = ops.conv_transpose2d_prepack(over, None, [2, 2], [0, 0], [0, 0], [1, 1], 1)
            assert torch.equal(unpack_weight("conv2d_relu", conv).int_repr(), weight.int_repr())
        for name in ("add", "linear_prepack", "conv2d_unpack", "linear_dynamic_fp16", "cat"):
            assert unpack_weight(name, conv) is None

        def int8(x: Any) -> Any:
            return torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)

        for run, x, macs in (
            (lambda m, x: ops.linear(int8(x), linear, 1.0, 0), PAIR, 2 * 3 * 6),
            (lambda m, x: ops.linear_relu(int8(x), linear, 1.0, 0), PAIR, 2 * 3 * 6),
            (lambda m, x: ops.linear_dynamic(x, linear), PAIR, 2 * 3 * 6),
            (lambda m, x: ops.conv2d(int8(x), conv, 1.0, 0), IMAGE, 2 * 4 * 36 * 2 * 9),
            (lambda m, x: ops.conv_transpose2d(int8(x), up, 1.0, 0), IMAGE, 2 * 4 * 64 * 3 * 4),
        ):
            (layer,) = find_layers(Network(run), (x,))
            assert (layer.macs, layer.int8) == (macs, True)
    finally:
        torch.backends.quantized.engine = before


@pytest.mark.parametrize(("tolerance", "is_refused"), [(0.5, False), (0.05, True)])
def test_what_is_saved_is_held_against_the_module(tolerance: float, is_refused: bool, tmp_path: Path) -> None:
    """By a share of its largest output, or of one where that is smaller."""

    class Drifting(nn.Module):
        """Gives a little more once it is frozen."""

        def forward(self, x: Any) -> Any:
            return x * (1.0 if not torch.jit.is_tracing() else 1.1)

    x = torch.full((2, 3), 4.0)
    if is_refused:
        with pytest.raises(BuildError, match=r"differs from the module it came from \(largest difference 0\.4"):
            torchscript.save(Drifting(), (x,), tmp_path / "a.pt", tolerance=tolerance)
        return
    torchscript.save(Drifting(), (x,), tmp_path / "a.pt", tolerance=tolerance)
    assert torch.allclose(torchscript.load(tmp_path / "a.pt")(x), x * 1.1)


def test_layers_that_cannot_be_counted_have_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """But where weights cannot be read back, or memory ran out: these go up."""
    assert torchscript.count_layers(nn.Linear(6, 3), (PAIR,)) == (find_layers(nn.Linear(6, 3), (PAIR,)), None)
    for error in (BuildError("no"), MemoryError("full")):

        def refuse(*_: Any, error: Exception = error) -> Any:
            raise error

        monkeypatch.setattr(torchscript, "find_layers", refuse)
        with pytest.raises(type(error)):
            torchscript.count_layers(nn.Linear(6, 3), (PAIR,))

    def odd(*_: Any) -> Any:
        raise KeyError("odd")

    monkeypatch.setattr(torchscript, "find_layers", odd)
    layers, reason = torchscript.count_layers(nn.Linear(6, 3), (PAIR,))
    assert layers == ()
    assert reason is not None
    assert reason.startswith("its operators cannot be watched (KeyError: 'odd'")


def test_a_file_is_watched_once_its_interpreter_has_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three calls before the one that is watched, all without gradients."""
    calls: list[Any] = []
    monkeypatch.setattr(torchscript, "load", lambda file: lambda *x: calls.append((file, x, torch.is_inference(x[0]))))
    monkeypatch.setattr(torchscript.onednn_log, "watch", lambda call: (len(calls), call(), len(calls)))
    with torch.inference_mode():
        example = (torch.ones(1),)
    assert torchscript.watch_products(Path("a.pt"), example) == (3, None, 4)
    assert calls == [(Path("a.pt"), example, True)] * 4


@pytest.mark.parametrize("is_repeatable", [True, False])
def test_a_file_that_is_no_copy_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_repeatable: bool
) -> None:
    """By any difference at all; a network that changes by itself is told as such."""

    class Off(nn.Module):
        """What a broken file would give."""

        def forward(self, x: Any) -> Any:
            return x + 2**-20

    class Counting(nn.Module):
        """Gives another output at each call, but not while it is traced."""

        calls = 0

        def forward(self, x: Any) -> Any:
            if torch.jit.is_tracing():
                return x * 1.0
            self.calls += 1
            return x * 1.0 + self.calls

    monkeypatch.setattr(torchscript, "load", lambda file: Off())
    module = nn.Identity() if is_repeatable else Counting()
    words = r"the saved artifact differs from what was converted \(largest difference 9.53674e-07\)"
    with pytest.raises(BuildError, match=words if is_repeatable else "keeps something of earlier calls"):
        torchscript.save(module, (torch.ones(2, 3),), tmp_path / "a.pt")
