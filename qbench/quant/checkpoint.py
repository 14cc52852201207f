"""What an unfinished training leaves in a folder, so that the next one goes on where it ended."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from qbench.errors import BuildError
from qbench.quant import forward
from qbench.quant.recipe import Recipe

FILE = "qat.pt"


def identity(module: Any, flow: str, engine: str, recipe: Recipe, inputs: Iterable[Any], labels: Any) -> dict[str, str]:
    """What a training must have in common with a checkpoint to go on from it, as texts and digests by name."""
    import torch

    weights = [value for _, value in sorted(module.state_dict().items()) if isinstance(value, torch.Tensor)]
    return {
        "torch": str(torch.__version__),
        "flow": flow,
        "engine": engine,
        "recipe": repr({**asdict(recipe), "name": None}),
        "weights": _digest(weights),
        "examples": _digest([*inputs, labels]),
    }


def save(folder: Path, whose: Mapping[str, str], state: Mapping[str, Any]) -> None:
    """Writes the folder's checkpoint in one move: a training that is killed here leaves the one before."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"{FILE}.part"
    torch.save({"identity": dict(whose), "state": dict(state)}, unfinished)
    unfinished.replace(folder / FILE)


def load(folder: Path, whose: Mapping[str, str]) -> dict[str, Any] | None:
    """The folder's state, or None where it has none that can be read: the training then begins anew.

    Raises ``BuildError`` for the checkpoint of another training, which must not be lost by writing over it.
    """
    import torch

    path = folder / FILE
    if not path.is_file():
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch guesses at what a damaged file may be
            stored = torch.load(path, weights_only=True)
        found, state = dict(stored["identity"]), dict(stored["state"])
    except Exception as error:  # a damaged pickle fails in any way
        if forward.out_of_memory(error):
            raise
        return None
    if other := [name for name, value in whose.items() if found.get(name) != value]:
        raise BuildError(
            f"{path} is the checkpoint of another training (it differs in {', '.join(other)}); "
            "delete it, or give QAT a folder of its own"
        )
    return state


def _digest(tensors: Iterable[Any]) -> str:
    import torch

    total = hashlib.sha256()
    for tensor in tensors:
        total.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
        total.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())
    return total.hexdigest()
