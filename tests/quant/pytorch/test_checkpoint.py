"""Rules of qbench/quant/pytorch/checkpoint.py: which training a file is of, and what becomes of one that is damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from qbench.errors import BuildError
from qbench.quant.pytorch import checkpoint
from qbench.quant.recipe import Recipe

WHOSE = {"torch": "2", "flow": "fx"}


def network(**changes: Any) -> nn.Module:
    """Two layers with a BatchNorm between them, always of the same weights."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, **changes), nn.ReLU(), nn.Linear(4, 2))


def identity(**changes: Any) -> dict[str, str]:
    """That of a training on two inputs with labels, but for some."""
    asked: dict[str, Any] = {
        "module": network(),
        "prepared": network(),
        "flow": "fx",
        "recipe": Recipe(epochs=1, learning_rate=1e-3),
        "inputs": (torch.ones(2, 3), torch.zeros(2)),
        "labels": torch.arange(2),
    }
    return checkpoint.identity(**{**asked, **changes})


def changed(module: nn.Module, change: Callable[[Any], Any]) -> nn.Module:
    """The network after a change."""
    change(module)
    return module


@pytest.mark.parametrize(
    ("changes", "differing"),
    [
        ({}, set()),
        ({"flow": "eager"}, {"flow"}),
        ({"recipe": Recipe(epochs=2, learning_rate=1e-3)}, {"recipe"}),
        ({"recipe": Recipe(epochs=1, learning_rate=1e-3, skip_layers=("0",))}, set()),
        ({"module": changed(network(), lambda net: net[0].bias.data.add_(1))}, {"weights"}),
        ({"module": changed(network(), lambda net: net[1].running_var.mul_(2))}, {"weights"}),
        ({"module": network().double()}, {"weights"}),
        ({"module": network().eval()}, set()),
        ({"prepared": changed(network(), lambda net: net[0].weight.data.add_(1))}, {"network"}),
        ({"prepared": network().eval()}, set()),
        ({"prepared": network(momentum=0.2)}, {"network"}),
        ({"prepared": changed(network(), lambda net: setattr(net[0], "held", (1, None)))}, {"network"}),
        ({"prepared": changed(network(), lambda net: setattr(net[0], "held", torch.qint8))}, {"network"}),
        ({"prepared": changed(network(), lambda net: setattr(net[0], "held", object()))}, set()),
        ({"prepared": changed(network(), lambda net: setattr(net[0], "held", [object()]))}, set()),
        ({"prepared": torch.fx.symbolic_trace(network())}, {"network"}),
        ({"inputs": (torch.zeros(2), torch.ones(2, 3))}, {"examples"}),
        ({"inputs": (torch.ones(3, 2), torch.zeros(2))}, {"examples"}),
        ({"labels": torch.arange(2).int()}, {"examples"}),
        ({"labels": None}, {"examples"}),
    ],
)
def test_a_training_is_told_by_all_that_decides_it(changes: dict[str, Any], differing: set[str]) -> None:
    """Weights, what was prepared of them, examples and the training's own settings; not by modes and addresses, nor by
    what the rest of a recipe has done to the network already."""
    plain, other = identity(), identity(**changes)
    assert {name for name, value in other.items() if value != plain[name]} == differing
    assert plain["torch"] == torch.__version__


def test_graphs_are_told_apart_by_their_code() -> None:
    """Two networks of the same modules that call them otherwise."""
    first, second = torch.fx.symbolic_trace(network()), torch.fx.symbolic_trace(network())
    next(node for node in second.graph.nodes if node.target == "2").target = "1"
    second.recompile()
    assert identity(prepared=first)["network"] == identity(prepared=torch.fx.symbolic_trace(network()))["network"]
    assert identity(prepared=first)["network"] != identity(prepared=second)["network"]


def test_what_digests_see_stays_as_free_as_it_was() -> None:
    """Observers resize their buffers; numpy's hold on one would forbid it."""
    module = network()
    assert checkpoint.weights_digest(module) == checkpoint.weights_digest(network())
    module[1].running_mean.resize_(9)


def test_a_state_comes_back_to_the_training_that_it_is_of(tmp_path: Path) -> None:
    """The folder is made; a later state takes its place."""
    folder = tmp_path / "a" / "b"
    assert checkpoint.load(folder, WHOSE) is None
    for step in (1, 2):
        checkpoint.save(folder, {**WHOSE, "more": "x"}, {"step": step})
    assert checkpoint.load(folder, WHOSE) == {"step": 2}
    assert [path.name for path in folder.iterdir()] == [checkpoint.FILE]


def test_the_checkpoint_of_another_training_is_not_lost(tmp_path: Path) -> None:
    """It is refused with what differs; what it does not tell differs, too."""
    checkpoint.save(tmp_path, {"torch": "2", "flow": "pt2e"}, {})
    with pytest.raises(BuildError, match=r"another training \(it differs in flow, examples\); delete it, or give QAT"):
        checkpoint.load(tmp_path, {**WHOSE, "examples": "e"})


@pytest.mark.parametrize("content", [b"", b"damaged", None])
def test_a_file_that_cannot_be_read_is_none(tmp_path: Path, content: bytes | None) -> None:
    """The training begins anew; without a word of torch's guesses."""
    file = tmp_path / checkpoint.FILE
    if content is None:
        torch.save({"state": {}}, file)
    else:
        file.write_bytes(content)
    assert checkpoint.read(file, WHOSE) is None
    assert checkpoint.read(tmp_path, WHOSE) is None


def test_without_memory_a_file_is_not_taken_for_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else hours of training were lost to a machine that is full for a moment."""
    checkpoint.save(tmp_path, WHOSE, {})

    def fail(*args: Any, **keys: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(torch, "load", fail)
    with pytest.raises(MemoryError):
        checkpoint.load(tmp_path, WHOSE)
