"""Tracing a module, and the decisions on values that a trace silently freezes: found, named, and put to the test."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from qbench.errors import BuildError, first_names, out_of_memory
from qbench.quant import model_call, random_draws

Example: TypeAlias = "tuple[Any, ...]"
# Module and trace run the same operators, so only a fused kernel's rounding lies between them.
TRACE_TOLERANCE = 1e-4
EXAMPLES = 512  # calls of module and trace take seconds together even for a network of 10 ms
_UNTRACED = "torch.jit cannot trace this network, which must take and return tensors only"
_SHOWN = 2


@dataclass(frozen=True, kw_only=True, order=True)
class Decision:
    """A line of the user's code whose outcome the trace took as it was for the traced example."""

    file: str
    line: int

    def __str__(self) -> str:
        return random_draws.name_line(self.file, self.line)


@dataclass(frozen=True, kw_only=True)
class Traced:
    """A ScriptModule, not frozen yet, and the decisions in it."""

    script: Any
    decisions: tuple[Decision, ...]


def trace(module: Any, example: Example) -> Traced:
    """The trace of a module on a batch of 1; a module that is TorchScript already is returned as it is.

    A module that asks whether it is traced, and fails on the code that it has for that, is traced on its usual one.
    Of a GraphModule no decisions are told: FX refused control flow on values, and what warns there are the scales
    that it keeps as tensors, which become constants as they should.
    """
    import torch

    if isinstance(module, torch.jit.ScriptModule):
        return Traced(script=module, decisions=())
    generated = isinstance(module, torch.fx.GraphModule)
    refusals: list[Exception] = []
    for way in (nullcontext, _unnoticed):
        decisions: set[Decision] = set()
        try:
            with torch.inference_mode(), known_warnings(), _collected(decisions), _without_strides(), way():
                # What torch would check is the second trace; ``save`` holds the first one's outputs against the
                # module's.
                script = torch.jit.trace(module, example, check_trace=False)
        except Exception as error:  # whatever the user's forward raises on the tracer's tensors
            if out_of_memory(error):
                raise
            refusals.append(error)
        else:
            return Traced(script=script, decisions=() if generated else tuple(sorted(decisions)))
    what = "the converted model does not run, name the layer in quantize.*.skip_layers" if generated else _UNTRACED
    raise BuildError(f"{what}: {model_call.reason(refusals[0])}") from refusals[0]


def script_decisions(module: Any, traced: Traced) -> Any | None:
    """The module as TorchScript that decides on values at each call, where its trace froze that and
    ``torch.jit.script`` takes it; else None."""
    import torch

    if not traced.decisions:
        return None
    try:
        with known_warnings():
            return torch.jit.script(module)
    except Exception as error:  # the compiler refuses code in many ways, which all mean that the trace it is
        if out_of_memory(error):
            raise
        return None


def require_harmless(module: Any, traced: Traced, examples: Iterable[Example]) -> str | None:
    """What a reader must know of the frozen decisions, None where there are none.

    Raises ``BuildError`` where module and trace differ on one of the first ``EXAMPLES`` examples (each a batch of 1),
    or on a batch of two of them.
    """
    import torch

    if not traced.decisions:
        return None
    with torch.inference_mode(), known_warnings():
        pair = _require_equal_each(module, traced, examples)
        if len(pair.kept) > 1:
            _require_equal_batch(module, traced, pair.kept)
    equal = f"equal on {pair.count} calibration examples, other inputs may differ"
    return f"the trace froze {name_decisions(traced.decisions)}: {equal}"


@dataclass(frozen=True, kw_only=True)
class _Compared:
    count: int
    kept: tuple[Example, ...]


def _require_equal_each(module: Any, traced: Traced, examples: Iterable[Example]) -> _Compared:
    worst: list[float] = []
    largest = 0.0
    equal: list[Example] = []
    for example in itertools.islice(examples, EXAMPLES):
        own, theirs = model_call.first(module(*example)), model_call.first(traced.script(*example))
        worst.append(_difference(own, theirs))
        largest = max(largest, float(own.abs().max()))
        if len(equal) < 2:
            equal.append(example)
    bad = [i for i, output in enumerate(worst) if not output <= TRACE_TOLERANCE * largest]
    if bad:
        model_call.require_repeatable(module, example=equal[0])
        raise _refused(
            traced.decisions,
            f"calibration example {bad[0]} ({len(bad)} of {len(worst)} differ, by up to {max(worst):g} at outputs up "
            f"to {largest:g})",
        )
    return _Compared(count=len(worst), kept=tuple(equal))


def _require_equal_batch(module: Any, traced: Traced, examples: tuple[Example, ...]) -> None:
    """A decision may hang on the size of the batch, which calls with one example never show."""
    import torch

    both = tuple(torch.cat(tensors) for tensors in zip(*examples, strict=True))
    try:
        own = model_call.first(module(*both))
    except Exception as error:  # the user's forward can raise anything; a network for single examples stays one
        if out_of_memory(error):
            raise
        return
    try:
        theirs = model_call.first(traced.script(*both))
    except RuntimeError as error:
        raise _refused(traced.decisions, f"a batch of 2 ({model_call.reason(error)})") from error
    worst = _difference(own, theirs)
    if not worst <= TRACE_TOLERANCE * float(own.abs().max()):
        raise _refused(traced.decisions, f"a batch of 2 (largest difference {worst:g})")


def _difference(own: Any, theirs: Any) -> float:
    return float((own - theirs).abs().max()) if own.shape == theirs.shape else float("inf")


def _refused(decisions: tuple[Decision, ...], where: str) -> BuildError:
    return BuildError(
        f"the trace froze {name_decisions(decisions)} and is another model on {where}: its forward depends on values; "
        "write that part with tensor operations (torch.where)"
    )


def name_decisions(decisions: tuple[Decision, ...]) -> str:
    """``a decision at net.py:12 (if x.mean() > 0:)``."""
    return f"{'a decision' if len(decisions) == 1 else 'decisions'} at {first_names(decisions, _SHOWN)}"


@contextmanager
def _collected(decisions: set[Decision]) -> Iterator[None]:
    """Puts the tracer's warnings that point into the user's code into ``decisions``; others are shown as before."""
    import torch

    ours = (Path(torch.__file__).parent, Path(__file__).parents[2])
    with warnings.catch_warnings():
        warnings.simplefilter("always", category=torch.jit.TracerWarning)
        show = warnings.showwarning

        def collect(message: Any, category: Any, filename: str, lineno: int, *rest: Any, **options: Any) -> None:
            if not issubclass(category, torch.jit.TracerWarning):
                show(message, category, filename, lineno, *rest, **options)
            elif not any(Path(filename).is_relative_to(folder) for folder in ours):
                decisions.add(Decision(file=filename, line=lineno))

        warnings.showwarning = collect
        yield


@contextmanager
def _unnoticed() -> Iterator[None]:
    """``torch.jit.is_tracing`` says no: transformers builds masks while it is traced that some of its own networks
    (Nystroemformer) do not take."""
    import torch

    asked = torch.jit.is_tracing
    torch.jit.is_tracing = lambda: False
    try:
        yield
    finally:
        torch.jit.is_tracing = asked


@contextmanager
def _without_strides() -> Iterator[None]:
    """Views by ``as_strided`` (Longformer's overlapping chunks) are read by place in the example, since a trace keeps
    the strides of the one example, which a batch lays out in another way."""
    import torch

    own, functional = torch.Tensor.as_strided, torch.as_strided

    def read(tensor: Any, size: Any, stride: Any, storage_offset: Any = None) -> Any:
        places = _find_places(tensor, tuple(map(int, size)), tuple(map(int, stride)), storage_offset)
        if places is None:
            return own(tensor, size, stride, storage_offset)
        return tensor.flatten(1)[:, places]

    torch.Tensor.as_strided = torch.as_strided = read
    try:
        yield
    finally:
        del torch.Tensor.as_strided  # the one of its base class is seen again
        torch.as_strided = functional


def _find_places(tensor: Any, size: tuple[int, ...], stride: tuple[int, ...], offset: Any) -> Any | None:
    """Which elements of an example, counted along its axes, a view of these sizes and strides shows; None where it
    takes examples apart or shows what the tensor does not."""
    import torch

    if tensor.dim() < 2 or len(size) < 2 or offset not in (None, tensor.storage_offset()):
        return None
    rows = int(tensor.shape[0])
    if size[0] != rows or (rows > 1 and stride[0] != tensor.stride(0)):
        return None
    held = _list_offsets(tuple(map(int, tensor.shape[1:])), tensor.stride()[1:]).ravel()
    wanted = _list_offsets(size[1:], stride[1:])
    places = np.full(1 + max(held.max(initial=0), wanted.max(initial=0)), -1)
    places[held] = np.arange(len(held))
    return None if (places[wanted] < 0).any() else torch.from_numpy(places[wanted])


def _list_offsets(size: tuple[int, ...], stride: tuple[int, ...]) -> NDArray[np.int64]:
    """How far from the first each element lies in memory, by its indices."""
    offsets = np.zeros(size, np.int64)
    for axis, (count, step) in enumerate(zip(size, stride, strict=True)):
        offsets += (np.arange(count) * step).reshape(count, *(1,) * (len(size) - axis - 1))
    return offsets


@contextmanager
def known_warnings() -> Iterator[None]:
    """torch.jit says that it is deprecated; torch.ao's int8 models have no other form that is saved and fast."""
    import torch

    with warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning):  # torch 2.13 and 2.14 announce the end of TorchScript
            warnings.filterwarnings("ignore", message=".*torch.jit.*", category=category)
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"torch\.jit.*")
        warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)  # ``trace`` collects those that count
        yield
