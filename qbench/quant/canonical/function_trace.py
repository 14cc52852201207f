"""Watching a call: every torch function that it runs, with the very tensors that go in and come out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class TracedCall:
    """One call of a torch function, as its caller wrote it."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any

    @property
    def name(self) -> str:
        """The function's name without its module."""
        name = getattr(self.function, "__name__", str(self.function))
        owner = getattr(getattr(self.function, "__self__", None), "__name__", "")
        return owner if name == "__get__" and owner else name

    def takes(self) -> tuple[Any, ...]:
        """The tensors among the arguments, also inside lists and tuples."""
        return flatten_tensors((self.args, dict(self.kwargs)))


def trace_calls(run: Callable[[], Any]) -> tuple[tuple[TracedCall, ...], Any]:
    """The outermost torch functions that ``run()`` calls, in order, and what it returns.

    Questions about a tensor that are answered without its values (shape, dtype, …) are left out.
    """
    from torch.overrides import TorchFunctionMode

    recorded: list[TracedCall] = []
    questions = _questions()

    class Calls(TorchFunctionMode):  # type: ignore[misc]  # torch is Any to mypy here
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            if function not in questions:
                recorded.append(TracedCall(function=function, args=args, kwargs=kwargs or {}, result=result))
            return result

    with Calls():
        result = run()
    return tuple(recorded), result


def flatten_tensors(value: Any) -> tuple[Any, ...]:
    """The tensors in a value, also inside lists, tuples and dicts."""
    import torch

    from qbench.torch_private import pytree

    return tuple(leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))


@functools.cache
def _questions() -> frozenset[Any]:
    import torch

    tensor = torch.Tensor
    properties = ("shape", "dtype", "device", "ndim", "layout", "requires_grad", "is_quantized", "is_cuda", "is_mkldnn")
    methods = ("size", "dim", "numel", "nelement", "stride", "is_contiguous", "is_floating_point", "element_size")
    return frozenset(
        [getattr(tensor, name).__get__ for name in properties]
        + [getattr(tensor, name) for name in (*methods, "__len__")]
        + [torch.is_floating_point, torch.numel]
    )
