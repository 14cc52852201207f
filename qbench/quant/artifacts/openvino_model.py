"""Models for OpenVINO on the CPU: compiled for one stream, read back, quantized by NNCF."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.errors import BuildError, CaseSkipped, ModeImpossible, out_of_memory, reraise
from qbench.files import regular_file
from qbench.machine import half_floats
from qbench.modes import HALVES, Precision
from qbench.quant.artifacts import onnx_file
from qbench.quant.recipe import Recipe

Array = NDArray[Any]
Sources = tuple[str | bytes, ...]  # a path, or the content of an ONNX file or of a graph and its weights
Shapes = Sequence[tuple[int, ...]]  # of the inputs, in order
# What NNCF gives is OpenVINO's own form, two files that belong together: they travel as one, not compressed.
GRAPH, WEIGHTS = "model.xml", "model.bin"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same bytes whenever it is made
_LONGEST = 400  # characters of a library's message that are quoted
_UNCONVERTED = re.compile(
    r"^-- (?:No conversion rule found for operations|Conversion is failed for): (.*)$", re.MULTILINE
)


# Where a pair of files says in which format its floats are meant to be multiplied, and OpenVINO's words for them.
_PLACE = ["qbench", "inference_precision"]
# Where it says how many inputs of a weight of few bits are made bytes together as it runs; 0: they stay floats.
_DYNAMIC_PLACE = ["qbench", "dynamic_quantization_group_size"]
DYNAMIC_GROUP = 32  # OpenVINO's own default, where its kernels can
_HINTS: Mapping[Precision, str] = {"fp32": "f32", "bf16": "bf16", "fp16": "f16"}


def session_settings(threads: int, precision: Precision = "fp32") -> dict[str, Any]:
    """How every model is compiled: one request at a time, that many threads, ``precision`` where it is not int8.

    Its own pinning is off and all kinds of processors are open to it, so that the process's affinity alone decides
    where it runs. Where the CPU has bfloat16, OpenVINO would take it for fp32 unless told.
    """
    return {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": threads,
        "ENABLE_CPU_PINNING": False,
        "ENABLE_HYPER_THREADING": True,
        "SCHEDULING_CORE_TYPE": "ANY_CORE",
        "INFERENCE_PRECISION_HINT": _HINTS[precision],
    }


class ReadModel:
    """A model that was read, to be compiled; ``any_batch``: for any number of examples alone. Raises ``BuildError`` in
    OpenVINO's own words, ``ModeImpossible`` where it does not know an operator as it stands there: that is no fault of
    the suite's; ``CaseSkipped`` for floats of 16 bits that this CPU does not multiply."""

    def __init__(self, *sources: str | bytes, any_batch: bool = False) -> None:
        import openvino

        self._core = openvino.Core()
        with _explain():
            self._model = _read_model(self._core, sources)
        # Joined with others in one kernel, a product would not tell how many bits its weights have.
        self._any_batch = any_batch or self._model.has_rt_info(_DYNAMIC_PLACE)
        self._precision = _precision_of(self._model)

    def compile(
        self,
        shapes: Shapes,
        *,
        every_size: bool = False,
        threads: int = 1,
        profile: bool = False,
        dynamic_group: int | None = None,
    ) -> Any:
        """The model for as many examples as inputs of these ``shapes`` have, where that is open and no operator
        contradicts it; ``every_size``: for these very shapes. ``profile`` times each of its nodes, ``dynamic_group``
        takes the place of what a pair says of inputs that are made bytes together. Raises what reading does.

        Where OpenVINO knows how many examples there are it settles kernels and memory ahead, and int8 answers are
        others than those for any number, by roundings; of each known number they are the same, bit for bit
        (``tests/backends/test_openvino.py`` holds it).
        """
        self.require_instructions()
        settings = {**self.list_settings(threads, dynamic_group), "PERF_COUNT": profile}
        with _explain():
            compiled = self._core.compile_model(self._reshape(shapes, every_size), "CPU", settings)
        _require_precision(compiled, self._precision)
        return compiled

    def require_instructions(self) -> None:
        """Raises ``CaseSkipped`` for floats of 16 bits that this CPU does not multiply."""
        _require_instructions(self._precision)

    def list_settings(self, threads: int, dynamic_group: int | None = None) -> dict[str, Any]:
        """How it is compiled: as every model, and by what it says of itself."""
        return {**session_settings(threads, self._precision), **read_marks(self._model, dynamic_group)}

    def is_compiled_for_each(self) -> bool:
        """Whether it is compiled for each number of examples anew: not where the file or an operator fixes it."""
        return self._reshape([(1,)] * len(self._model.inputs), every_size=False) is not self._model

    def _reshape(self, shapes: Shapes, every_size: bool) -> Any:
        """The model for inputs of these shapes, or of these first sizes; itself where nothing of them is open."""
        if self._any_batch:
            return self._model
        fixed = {
            place: [*shape] if every_size else [shape[0], *list(declared)[1:]]
            for place, (port, shape) in enumerate(zip(self._model.inputs, shapes, strict=False))
            if (declared := port.get_partial_shape()).is_dynamic and (every_size or _is_open(declared))
        }
        if not fixed:
            return self._model
        try:
            (reshaped := self._model.clone()).reshape(fixed)
        except RuntimeError as error:
            if out_of_memory(error):
                raise
            return self._model
        return reshaped


def read_file(file: Path) -> ReadModel:
    """The model of an ONNX file, an .xml, or a pair that ``quantize`` wrote; for any number of examples alone where
    ``require_any_batch`` said so."""
    return ReadModel(*_unpacked(file), any_batch=_any_batch_mark(file).exists())


def require_any_batch(file: Path) -> None:
    """Has a file compiled for any number of examples from now on, by a file beside it."""
    _any_batch_mark(file).write_text("OpenVINO answers wrongly where it knows how many examples a call has.\n")


def _any_batch_mark(file: Path) -> Path:
    return file.with_name(f"{file.name}.any-batch")


def compile_file(file: Path, inputs: Sequence[Array] = (), **how: Any) -> Any:
    """The model of a file, compiled for as many examples as the ``inputs`` of a call have (none given: for any number),
    and ``how`` as ``ReadModel.compile`` says; raises what that does."""
    return read_file(file).compile([array.shape for array in inputs], **how)


def unpack_pair(file: Path, folder: Path, name: str) -> str | None:
    """Writes the ``.xml`` and the ``.bin`` of what ``quantize`` wrote, and returns the name of the first; None where
    the file is of another form."""
    if not zipfile.is_zipfile(file):
        return None
    with zipfile.ZipFile(file) as pair:
        (folder / f"{name}.xml").write_bytes(pair.read(GRAPH))
        (folder / f"{name}.bin").write_bytes(pair.read(WEIGHTS))
    return f"{name}.xml"


@contextlib.contextmanager
def _explain() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if out_of_memory(error):
            raise
        if "OpConversionFailure" not in str(error):
            raise BuildError(f"OpenVINO cannot load the model: {shorten(error)}") from error
        operators = ", ".join(_UNCONVERTED.findall(str(error)))
        raise ModeImpossible(
            f"OpenVINO cannot load the model: it does not know {operators or 'an operator'} as it stands there "
            f"({shorten(error)}); use the onnxruntime backend for this network"
        ) from error


def _read_model(core: Any, sources: Sources) -> Any:
    return core.read_model(*(io.BytesIO(source) if isinstance(source, bytes) else source for source in sources))


def _is_open(shape: Any) -> bool:
    return bool(shape.rank.is_static and len(shape) and shape[0].is_dynamic)


def find_fixed_batch(compiled: Any) -> int | None:
    """How many examples a compiled model takes, as the first input with a fixed number says; None: any."""
    sizes = [port.get_partial_shape()[0] for port in compiled.inputs if len(port.get_partial_shape())]
    return next((int(size.get_length()) for size in sizes if not size.is_dynamic), None)


def read_marks(model: Any, dynamic_group: int | None = None) -> dict[str, int]:
    """The settings that a model asks for by its marks, beside those of every session."""
    if not model.has_rt_info(_DYNAMIC_PLACE):
        return {}
    said = int(model.get_rt_info(_DYNAMIC_PLACE).astype(str)) if dynamic_group is None else dynamic_group
    return {"DYNAMIC_QUANTIZATION_GROUP_SIZE": said}


def _precision_of(model: Any) -> Precision:
    """In which format the floats of a model are meant to be multiplied: fp32 where it does not say."""
    said = model.get_rt_info(_PLACE).astype(str) if model.has_rt_info(_PLACE) else "fp32"
    return next((precision for precision in _HINTS if precision == said), "fp32")


def _require_instructions(precision: Precision) -> None:
    """Raises ``CaseSkipped`` for floats of 16 bits that this CPU does not multiply: OpenVINO runs them as fp32 in
    silence, converts them one by one, or finds no kernel."""
    if precision in HALVES and (reason := half_floats.explain_missing(precision)) is not None:
        raise CaseSkipped(f"{reason}; {_elsewhere(precision)}")


def _require_precision(compiled: Any, precision: Precision) -> None:
    """Raises ``CaseSkipped`` where floats of 16 bits are run in another format than was asked for."""
    took = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
    if precision in HALVES and took != _HINTS[precision]:
        raise CaseSkipped(f"asked for {precision}, OpenVINO takes {took}; {_elsewhere(precision)}")


def _elsewhere(precision: Precision) -> str:
    return f"run this {precision} file on a CPU that multiplies {precision}"


def store_half(fp32: Path, file: Path, precision: Precision) -> None:
    """Writes a model in OpenVINO's own form with its weights in 16 bits (fp16, as OpenVINO stores them by default:
    bf16 keeps fewer of their digits), marked to be compiled for ``precision``."""
    import openvino

    with tempfile.TemporaryDirectory() as folder:
        model = openvino.Core().read_model(str(fp32))
        model.set_rt_info(precision, _PLACE)
        openvino.save_model(model, str(Path(folder) / GRAPH), compress_to_fp16=True)
        pack(Path(folder) / GRAPH, Path(folder) / WEIGHTS, file)


def _unpacked(file: Path) -> Sources:
    with regular_file.open_file(file) as stream:
        if not zipfile.is_zipfile(stream):
            return (str(file),)
        pair = zipfile.ZipFile(stream)
        return pair.read(GRAPH), pair.read(WEIGHTS)


def shorten(error: BaseException) -> str:
    """OpenVINO's message on one line, without the places in its own sources."""
    lines = [line.strip() for line in str(error).splitlines()]
    sentences = [line for line in lines if line and not line.startswith(("Exception from", "Check '"))]
    return " ".join(sentences or lines)[:_LONGEST] or "no message"


class ForShapes:
    """What ``make`` makes for inputs of some shapes, and again where others come; it holds one at a time."""

    def __init__(self, make: Callable[[Shapes], Any]) -> None:
        self._make = make
        self._shapes: Shapes | None = None
        self._value: Any = None

    def get(self, shapes: Shapes) -> Any:
        """What belongs to these shapes."""
        if shapes != self._shapes:
            self._shapes = self._value = None
            self._value, self._shapes = self._make(shapes), shapes
        return self._value


def run(compiled: Any, inputs: tuple[Array, ...]) -> Array:
    """The first output of one inference, in memory of its own."""
    return np.array(compiled.create_infer_request().infer(list(inputs))[0])


def quantize(fp32: Path, file: Path, calibration: tuple[Array, ...]) -> None:
    """NNCF's post-training quantization as its documentation has it: default preset, default algorithms; ``file`` holds
    the model in OpenVINO's form. Raises ``BuildError`` where NNCF cannot quantize."""
    with _quiet_nncf() as (nncf, openvino), tempfile.TemporaryDirectory() as folder:
        # Nncf raises all kinds, some of them bare.
        with reraise(
            BuildError,
            lambda error: (
                f"NNCF cannot quantize this model: {type(error).__name__}: {shorten(error)}; leave this recipe out"
            ),
        ):
            model = openvino.Core().read_model(str(fp32))
            int8_model = nncf.quantize(model, nncf.Dataset(onnx_file.Batches(fp32, calibration)))
            openvino.save_model(int8_model, str(Path(folder) / GRAPH))
        pack(Path(folder) / GRAPH, Path(folder) / WEIGHTS, file)


def compress_weights(fp32: Path, file: Path, recipe: Recipe, skipped: Sequence[str]) -> None:
    """NNCF's compression of weights to the recipe's bits, but for the nodes that make the tensors ``skipped``; marked
    with what is to multiply them. Raises ``BuildError`` where NNCF cannot."""
    with _quiet_nncf() as (nncf, openvino), tempfile.TemporaryDirectory() as folder:
        mode = f"INT{recipe.bits or 8}_{'SYM' if recipe.symmetric else 'ASYM'}"
        group = -1 if recipe.group == "channel" or recipe.bits == 8 else int(recipe.group or 128)
        sizes = {} if recipe.bits == 8 else {"group_size": group, "ratio": 1.0, "all_layers": True}
        with reraise(
            BuildError,
            lambda error: (
                f"NNCF cannot compress the weights of this model: {type(error).__name__}: {shorten(error)}; take "
                "another group, or leave weight_only out here"
            ),
        ):
            model = openvino.Core().read_model(str(fp32))
            compressed = nncf.compress_weights(
                model,
                mode=getattr(nncf.CompressWeightsMode, mode),
                ignored_scope=nncf.IgnoredScope(names=_name_makers(model, skipped)) if skipped else None,
                **sizes,
            )
            compressed.set_rt_info(str(DYNAMIC_GROUP if recipe.arithmetic != "fp32" else 0), _DYNAMIC_PLACE)
            openvino.save_model(compressed, str(Path(folder) / GRAPH), compress_to_fp16=False)
        pack(Path(folder) / GRAPH, Path(folder) / WEIGHTS, file)


def _name_makers(model: Any, tensors: Sequence[str]) -> list[str]:
    """The operators that make these tensors, by the names that NNCF knows them by."""
    makers = []
    for operator in model.get_ops():
        names = {name for value in operator.outputs() for name in value.get_names()}
        if operator.get_type_name() not in ("Result", "Constant") and names & set(tensors):
            makers.append(operator.get_friendly_name())
    return makers


def pack(graph: Path, weights: Path, file: Path) -> None:
    """Stores the two files of OpenVINO's own form in one, the same bytes whenever it is made."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as pair:
        for name, part in ((GRAPH, graph), (WEIGHTS, weights)):
            pair.writestr(zipfile.ZipInfo(name, _EPOCH), part.read_bytes())


@contextlib.contextmanager
def _quiet_nncf() -> Iterator[tuple[Any, Any]]:
    """nncf and openvino, without advice on standard output."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # of deprecated parts of torch and numpy that it uses itself
        import nncf
        import openvino

        nncf.set_log_level(40)  # errors
        yield nncf, openvino
