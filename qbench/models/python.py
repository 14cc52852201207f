"""A network from a user's own Python file: ``source: {python: file.py:factory, args: {...}}`` with ``weights``."""

from __future__ import annotations

from typing import Any

from qbench import user_code
from qbench.errors import ModelError
from qbench.models.base import ModelReference, Network
from qbench.models.weights import load_weights


def load(reference: ModelReference) -> Network:
    """What ``factory(**args)`` returns, after ``torch.manual_seed(0)``, with its weights, in eval mode.

    Raises ``ModelError`` with the user's file and line when the factory fails or does not return a module.
    """
    import torch

    path, name = reference.path, reference.attribute
    if path is None or name is None:
        raise ModelError(f"{reference.name}: a python source needs file.py:factory")
    factory = user_code.attribute(path, name, error=ModelError)
    if isinstance(factory, torch.nn.Module) or not callable(factory):
        kind = type(factory).__name__
        raise ModelError(f"{path}: '{name}' is {kind}, not a function that returns a network; write one around it")
    torch.manual_seed(0)  # a network without weights is the same in every process
    module = user_code.call(factory, path=path, error=ModelError, **reference.args)
    if not isinstance(module, torch.nn.Module):
        raise ModelError(f"{path}: {name}() returned {_described(module)}; expected a torch.nn.Module")
    if reference.weights is not None:
        load_weights(module, reference.weights)
    return Network(kind="torch", module=module.eval())


def _described(value: Any) -> str:
    return "nothing (is a `return` missing?)" if value is None else f"an object of type {type(value).__name__}"
