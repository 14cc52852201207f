"""What a suite must say of a model, read from its file; nothing of it runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench import registry
from qbench.errors import ModelError, UsageError
from qbench.models.base import format_of
from qbench.models.ctc import find_alphabet

_PYTHON = re.compile(r"(?P<file>.+\.py):(?P<function>[A-Za-z_]\w*)")
# Backends of each kind of source (a file's has the name of its format), those that are installed are written.
_BACKENDS = {
    "onnx": ("onnxruntime", "openvino"),
    "torchscript": ("torch",),
    "python": ("torch", "fbgemm", "onnxruntime", "openvino"),
}


@dataclass(frozen=True, kw_only=True)
class InputFacts:
    """An input as the file declares it: ``sizes`` with None where they are free, ``axis`` along which of them the
    examples lie (None: it is a scalar), ``example`` the sizes of one, with a guess where they are free."""

    name: str
    dtype: str | None
    sizes: tuple[int | None, ...]
    axis: int | None = 0
    example: tuple[int, ...] = ()

    @property
    def is_float(self) -> bool:
        """Whether it takes floats."""
        return (self.dtype or "").startswith("float")

    @property
    def image(self) -> tuple[int, int | None, int | None, bool] | None:
        """(channels, height, width, whether channels come last) where it has the form of images."""
        if len(self.sizes) != 4 or not self.is_float:
            return None
        _, first, second, third = self.sizes
        if first in (1, 3):
            return first, second, third, False
        return (third, first, second, True) if third in (1, 3) else None


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """``source`` as the suite writes it; ``inputs``, ``outputs`` (its number of values an example) and
    ``output_sizes`` of its first output where the file tells them. Of an ONNX file ``file`` is its path from the suite,
    ``letters`` how many a recognizer can write, where the file lists them."""

    name: str
    source: str
    backends: tuple[str, ...]
    int8_modes: tuple[str, ...]
    inputs: tuple[InputFacts, ...] = ()
    outputs: int | None = None
    output_sizes: tuple[int | None, ...] = ()
    file: str | None = None
    letters: int | None = None

    @property
    def fixed_batch(self) -> tuple[int, ...]:
        """The only batch size that the file takes, where that is not 1; empty for any."""
        sizes = {entry.sizes[entry.axis] for entry in self.inputs if entry.axis is not None}
        return tuple(size for size in sizes if size is not None and size > 1) if len(sizes) == 1 else ()


def is_model(text: str) -> bool:
    """Whether a text names a model: by its ending, as a function, or as a built-in that no file is called like."""
    path = Path(text)
    if format_of(path) in _BACKENDS or _PYTHON.fullmatch(text) is not None:
        return True
    return not path.exists() and text in registry.names("model")


def describe_model(text: str, folder: Path) -> ModelFacts:
    """What a suite in ``folder`` must say of ``model.onnx``, ``model.pt``, ``file.py:function`` or a built-in model's
    name. Raises ``UsageError`` for what is none of these, or holds int8 already."""
    python = _PYTHON.fullmatch(text)
    if python is not None:
        file = Path(python["file"])
        if not file.is_file():
            raise UsageError(f"{file}: no such file")
        target, function = relative(file, folder), python["function"]
        return _make(file.stem, f"{{python: {quote(f'{target}:{function}')}}}", "python", ("dynamic", "static"))
    if text in registry.names("model"):
        return _make(text, "", "python", ("dynamic", "static"))
    file = Path(text)
    if not file.is_file():
        known = "an .onnx or TorchScript file, file.py:function, or a built-in model (`qbench list`)"
        raise UsageError(f"{text}: no such file; a model is {known}")
    if format_of(file) == "onnx":
        return _describe_onnx(file, folder)
    if format_of(file) == "torchscript":
        return _describe_torchscript(file, folder)
    if file.suffix == ".py":
        raise UsageError(f"{text}: name the function that returns the network, as in {text}:build")
    raise UsageError(
        f"{text}: '{file.suffix}' is no format that a suite builds from; `qbench check {text}` may read it"
    )


def relative(file: Path, folder: Path) -> str:
    """A path as a suite in ``folder`` writes it."""
    absolute, base = file.absolute(), folder.absolute()
    return absolute.relative_to(base).as_posix() if absolute.is_relative_to(base) else absolute.as_posix()


def quote(text: str) -> str:
    """Text as a YAML value on one line."""
    import yaml

    if re.fullmatch(r"[A-Za-z0-9_./-]+", text):
        return text
    style = "'" if text.isprintable() else '"'
    written: str = yaml.safe_dump(text, default_style=style, width=float("inf"), allow_unicode=True)
    return written.rstrip("\n")


def name_suite(text: str) -> str:
    """A name that suites and models may have."""
    plain = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")
    return plain or "model"


def _make(stem: str, source: str, kind: str, modes: tuple[str, ...], **facts: Any) -> ModelFacts:
    backends = tuple(name for name in _BACKENDS[kind] if registry.load("backend", name).missing() is None)
    return ModelFacts(name=name_suite(stem), source=source, backends=backends, int8_modes=modes, **facts)


def _describe_onnx(file: Path, folder: Path) -> ModelFacts:
    from qbench.quant.artifacts import onnx_check
    from qbench.quant.onnx.graph.quantized import why_not_float

    model = onnx_check.load(file, weights=False)
    if why_not_float(model) is not None:
        raise UsageError(
            f"{file}: it is int8 already, and a suite starts from a float model, beside which it stands as int8: in "
            f"the suite; `qbench check {file}` says what it is"
        )
    source = f"{{onnx: {quote(relative(file, folder))}}}"
    inputs, outputs = read_ends(model)
    alphabet = find_alphabet(model)
    facts = {
        "inputs": inputs,
        "outputs": outputs,
        "output_sizes": read_output_sizes(model),
        "file": relative(file, folder),
        "letters": None if alphabet is None else len(alphabet),
    }
    return _make(file.stem, source, "onnx", ("dynamic", "static"), **facts)


def read_ends(model: Any) -> tuple[tuple[InputFacts, ...], int | None]:
    """What a ``ModelProto`` declares of its inputs, and how many values its first output has of an example."""
    from qbench.quant.artifacts import onnx_file

    declared = onnx_file.list_inputs(model)
    inputs = tuple(
        InputFacts(
            name=entry.name,
            dtype=entry.dtype,
            sizes=_keep_fixed(entry.sizes),
            axis=axis,
            example=_without(axis, onnx_file.assume_sizes(entry, axis)),
        )
        for entry, axis in zip(declared, onnx_file.find_example_axes(declared), strict=True)
    )
    sizes = read_output_sizes(model)
    return inputs, sizes[1] if len(sizes) == 2 else None


def _without(axis: int | None, sizes: tuple[int, ...]) -> tuple[int, ...]:
    return sizes if axis is None else (*sizes[:axis], *sizes[axis + 1 :])


def read_output_sizes(model: Any) -> tuple[int | None, ...]:
    """The sizes of the first output as a ``ModelProto`` declares it, None where one is free."""
    from qbench.quant.artifacts import onnx_file

    return _keep_fixed(onnx_file.read_sizes(model.graph.output[0]))


def _keep_fixed(sizes: Sequence[int | str | None]) -> tuple[int | None, ...]:
    return tuple(size if isinstance(size, int) else None for size in sizes)


def _describe_torchscript(file: Path, folder: Path) -> ModelFacts:
    from qbench.quant.artifacts import torchscript_archive

    try:
        operators = torchscript_archive.list_operators(file)
    except ModelError as error:
        raise UsageError(
            f"{error}; a state dict needs its network: give file.py:function and write weights: {file.name}"
        ) from error
    if operators:
        raise UsageError(f"{file}: it is int8 already; beside its float model it stands as int8: in the suite")
    return _make(file.stem, f"{{torchscript: {quote(relative(file, folder))}}}", "torchscript", ())
