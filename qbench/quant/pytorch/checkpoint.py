"""What a training leaves in a file: an unfinished one, so that the next goes on where it ended; a finished one, for
every engine on which it would have been the same.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from qbench.errors import BuildError, out_of_memory
from qbench.files import atomic
from qbench.quant.recipe import Recipe, training_of

FILE = "qat.pt"
_NO_SETTINGS = ("_code", "training")  # the code of a graph stands beside them


def identity(
    module: Any, prepared: Any, flow: str, recipe: Recipe, inputs: Iterable[Any], labels: Any
) -> dict[str, str]:
    """What a training must have in common with a checkpoint to go on from it, as texts and digests by name.

    ``prepared`` is the fake-quantized network before its first step: no engine is named, since two of them that prepare
    a network alike train it alike.
    """
    import torch

    return {
        "torch": str(torch.__version__),
        "flow": flow,
        # The rest of a recipe shows in the network that was prepared.
        "recipe": repr(training_of(recipe)),
        "weights": weights_digest(module),
        "network": _digest(_tensors(prepared), _structure(prepared)),
        "examples": _digest([*inputs, *([] if labels is None else [labels])]),
    }


def weights_digest(module: Any) -> str:
    """The sha256 of a network's parameters and buffers."""
    return _digest(_tensors(module))


def save(folder: Path, whose: Mapping[str, str], state: Mapping[str, Any]) -> None:
    """Writes the folder's checkpoint in one move: a training that is killed here leaves the one before."""
    folder.mkdir(parents=True, exist_ok=True)
    with atomic.make_workplace(folder / FILE) as unfinished:
        write(unfinished / FILE, whose, state)
        (unfinished / FILE).replace(folder / FILE)


def write(file: Path, whose: Mapping[str, str], state: Mapping[str, Any]) -> None:
    """Writes a state to a file; to be put in its place by the caller."""
    import torch

    torch.save({"identity": dict(whose), "state": dict(state)}, file)


def load(folder: Path, whose: Mapping[str, str]) -> dict[str, Any] | None:
    """The folder's state, or None where it has none that can be read: the training then begins anew.

    Raises ``BuildError`` for the checkpoint of another training, which must not be lost by writing over it.
    """
    return read(folder / FILE, whose)


def read(path: Path, whose: Mapping[str, str]) -> dict[str, Any] | None:
    """``load`` from a file."""
    import torch

    if not path.is_file():
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch guesses at what a damaged file may be
            stored = torch.load(path, weights_only=True)
        identity, state = dict(stored["identity"]), dict(stored["state"])
    except Exception as error:  # a damaged pickle fails in any way
        if out_of_memory(error):
            raise
        return None
    if differing := [name for name, value in whose.items() if identity.get(name) != value]:
        raise BuildError(
            f"{path} is the checkpoint of another training (it differs in {', '.join(differing)}); "
            "delete it, or give QAT a folder of its own"
        )
    return state


def _tensors(module: Any) -> list[Any]:
    """Copies of a network's parameters and buffers, in the order of their names: what numpy has seen, torch can no
    longer resize, as observers do with theirs."""
    import torch

    return [value.clone() for _, value in sorted(module.state_dict().items()) if isinstance(value, torch.Tensor)]


def _structure(prepared: Any) -> str:
    """What a fake-quantized network does with its tensors: its modules with their settings, and the code of its
    graphs."""
    ingredients = []
    for name, part in prepared.named_modules():
        settings = {key: _plain(value) for key, value in sorted(vars(part).items()) if key not in _NO_SETTINGS}
        said = {key: value for key, value in settings.items() if value is not None}
        ingredients.append(f"{name} {type(part).__qualname__} {said} {getattr(part, 'code', '')}")
    return "\n".join(ingredients)


def _plain(value: Any) -> str | None:
    """A setting in words; None for what is no number, text or type of torch's, and whose words may hold an address."""
    import torch

    simple = (bool, int, float, str, torch.dtype, torch.qscheme)
    if isinstance(value, simple) or (
        isinstance(value, tuple | list) and all(part is None or isinstance(part, simple) for part in value)
    ):
        return repr(value)
    return None


def _digest(tensors: Iterable[Any], text: str = "") -> str:
    import torch

    total = hashlib.sha256(text.encode())
    for tensor in tensors:
        total.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
        total.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())
    return total.hexdigest()
