"""The contract of a model: a reference that travels between processes, and the network it loads.

A built-in model is a ``BuiltIn`` in the registry's kind ``model``. What a suite writes under ``source:`` names a
plug-in of the kind ``source``: a function ``load(reference) -> Network`` that runs in a child process.
"""

from __future__ import annotations

import enum
import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Literal

from qbench import installation, registry
from qbench.errors import ModelError
from qbench.models.postprocess import Postprocess

NetworkKind = Literal["torch", "torchscript", "onnx"]
LabelKind = Literal["classes", "boxes", "masks", "tokens"]
# How the recipe of an int8 file of the user's own is called, alone or with a name behind it (file-vendor).
OWN_FILE = "file"
FileFormat = Literal["onnx", "torchscript", "openvino"]
FORMATS: dict[str, FileFormat] = {
    ".onnx": "onnx",
    **dict.fromkeys((".pt", ".pth", ".ts", ".jit"), "torchscript"),
    ".xml": "openvino",
}
# What each `source:` key loads, so that a plan can be made without loading anything.
KIND_OF_SOURCE: dict[str, NetworkKind] = {"python": "torch", "onnx": "onnx", "torchscript": "torchscript"}


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a built-in model's fp32 weights are made from a data set: seeded, the same on any number of cores.

    ``shards`` is in how many parts a batch is computed, beside each other where there are cores; it belongs to the
    arithmetic, not to the machine. A network that draws random numbers in ``forward`` has one. ``channels_last`` is the
    memory format of images, which trains convolutions faster.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float = 0.0
    seed: int = 0
    shards: int = 1
    channels_last: bool = False


@dataclass(frozen=True, kw_only=True)
class BuiltIn:
    """A model that qbench brings. ``build(**args)`` returns an ``nn.Module``; of an ONNX model None, and its file is
    ``weights()``. ``from_data`` names the arguments of ``build`` that follow from the data set: ``channels`` of its
    images, number of ``classes``.

    Its fp32 weights are made by ``training`` on ``dataset``, which a suite may write as ``{dataset: data_value}``, or
    come with a package: ``weights()`` is then the path of a state dict (``.pth``, ``.safetensors``) or of the ``.onnx``
    file. ``packages`` are the names it imports beyond qbench's own dependencies, ``extra`` the extra that installs
    them. ``fitted_on()``, if any, gives the ``datasets.base.Examples`` that weights of a package were fitted on here,
    so that none of them is evaluated.
    ``labels``: what it learns; ``loss(outputs, labels)`` is that of a batch, None the cross-entropy of classes.
    ``postprocess`` makes answers of its first output, as ``models.postprocess`` has it.
    """

    name: str
    summary: str
    build: Callable[..., Any] | None
    kind: NetworkKind = "torch"
    dataset: str | None = None
    data_value: str | None = None
    from_data: tuple[str, ...] = ()
    training: Training | None = None
    weights: Callable[[], Path] | None = None
    packages: tuple[str, ...] = ()
    extra: str | None = None
    fitted_on: Callable[[], Any] | None = None
    labels: LabelKind = "classes"
    loss: Callable[[Any, Any], Any] | None = None
    postprocess: Callable[[Any], Any] | None = None

    def missing(self) -> str | None:
        """Which packages it lacks here and what installs them; None if it can be used. Imports none of them."""
        absent = [name for name in self.packages if importlib.util.find_spec(name) is None]
        if not absent:
            return None
        return f"{self.name} needs {' and '.join(absent)}; {installation.install(absent, self.extra)}"

    def arguments(self, shape: Sequence[int], classes: int | None) -> dict[str, int]:
        """Those of ``build`` that follow from an example's ``shape`` (channels, height, width) and from the number of
        classes; what the data does not tell is left to the default."""
        facts = {"channels": shape[0] if len(shape) == 3 else None, "classes": classes}
        return {name: value for name in self.from_data if (value := facts[name]) is not None}


def format_of(file: str | PurePath) -> FileFormat | None:
    """What an int8 file is, by the end of its name; None for any other."""
    return FORMATS.get(PurePath(file).suffix.lower())


@dataclass(frozen=True, kw_only=True)
class OwnInt8:
    """An int8 file of the user's own beside a float network: ``path`` is absolute, ``file`` as the suite has it. Its
    cases are of that ``mode`` (static, dynamic) and ``recipe``. ``engine``: that of torch which the suite names for a
    TorchScript file; None where it names none."""

    recipe: str
    path: Path
    file: str
    mode: str
    engine: str | None = None

    @property
    def format(self) -> FileFormat | None:
        """What the file is."""
        return format_of(self.file)


class NoConstant(enum.StrEnum):
    """In place of a constant, where None is one."""

    NO_CONSTANT = "none"


NO_CONSTANT = NoConstant.NO_CONSTANT


@dataclass(frozen=True, kw_only=True)
class InputForm:
    """How one input of a network is given: its examples lie along ``axis``, or it is the same ``constant`` in every
    call: a number, true or false, nested lists of them, or None."""

    axis: int = 0
    constant: Any = NO_CONSTANT

    @property
    def is_constant(self) -> bool:
        """Whether the data has no array for it."""
        return self.constant is not NO_CONSTANT


@dataclass(frozen=True, kw_only=True)
class ModelReference:
    """Which network a suite means. ``source`` is None for a built-in; else a key of the registry's kind
    ``source`` with ``path`` absolute, ``attribute`` the factory's name in a Python file, ``args`` its keyword
    arguments; ``weights`` an absolute path to safetensors or a state-dict ``.pt``, or None. ``training`` replaces
    fields of a built-in's own ``Training``; ``int8``: files that are compared with the network. ``inputs`` by name:
    those whose examples lie along another axis, and constants; ``output``: which of several outputs counts, by name or
    position (None: the suite names none), its examples lying along ``output_axis``; ``first``: which one comes first
    where it names none and the network returns a dict or the like, of which a tuple is made; ``own_postprocess``: the
    user's function that makes answers of its outputs."""

    name: str
    source: str | None = None
    path: Path | None = None
    attribute: str | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    weights: Path | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    int8: tuple[OwnInt8, ...] = ()
    inputs: Mapping[str, InputForm] = field(default_factory=dict)
    output: str | int | None = None
    output_axis: int = 0
    first: str | None = None
    own_postprocess: Postprocess | None = None

    @property
    def postprocess(self) -> Postprocess | None:
        """What makes answers of its outputs: the user's function, else the built-in's own; None where they are the
        answers."""
        if self.own_postprocess is not None or self.source is not None:
            return self.own_postprocess
        builtin: BuiltIn = registry.load("model", self.name)
        return None if builtin.postprocess is None else Postprocess(attribute=self.name)

    def own_int8(self, recipe: str) -> OwnInt8 | None:
        """The user's int8 file of that recipe; None for a recipe by which qbench quantizes."""
        return next((file for file in self.int8 if file.recipe == recipe), None)

    @property
    def adapted(self) -> bool:
        """Whether the network is to be called in another way than it was written for."""
        return bool(self.inputs) or self.counted is not None or self.output_axis != 0

    def order_arrays(self, names: Iterable[str]) -> list[str]:
        """The inputs of these names, which get an array, in the order of the data's arrays: that of ``inputs`` where it
        names them all, else as they come."""
        named = [name for name, form in self.inputs.items() if not form.is_constant]
        return named if set(named) == set(names) else list(names)

    @property
    def counted(self) -> str | int | None:
        """The output that comes first: the one that is named, or found; None where it does anyway."""
        return self.first if self.output is None else self.output

    @property
    def kind(self) -> NetworkKind:
        """What loading it will give."""
        if self.source is not None:
            return KIND_OF_SOURCE[self.source]
        builtin: BuiltIn = registry.load("model", self.name)
        return builtin.kind

    def missing(self) -> str | None:
        """Why it cannot be loaded here and what to do; None if it can. A file of the user's is looked for later."""
        if self.source is not None:
            return None
        builtin: BuiltIn = registry.load("model", self.name)
        return builtin.missing()


@dataclass(frozen=True, kw_only=True)
class Network:
    """A loaded fp32 network: ``module`` (``nn.Module`` or ``ScriptModule``, eval mode) for the torch kinds,
    ``path`` (an ``.onnx`` file) for ``onnx``."""

    kind: NetworkKind
    module: Any = None
    path: Path | None = None


def require_known_port(model: str, port: str, chosen_names: Iterable[str], names: Sequence[str]) -> None:
    """Raises ``ModelError`` for the first wanted name that the network does not have, with a near match."""
    for name in chosen_names:
        if name in names:
            continue
        hint = registry.suggest(name, names) or ";"
        raise ModelError(f"{model}: no {port} named '{name}'{hint} it has: {', '.join(names) or 'none with a name'}")
