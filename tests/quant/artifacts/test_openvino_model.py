"""OpenVINO's settings, pairs of files and words, without OpenVINO; and its own form, read as text."""

from __future__ import annotations

import ast
import importlib.util
import sys
import warnings
import weakref
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx_networks
import pytest

from qbench.errors import BuildError, CaseSkipped, ModeImpossible, ModelError
from qbench.machine import half_floats
from qbench.quant.artifacts import openvino_ir, openvino_model
from qbench.quant.artifacts.openvino_model import GRAPH, WEIGHTS, ForShapes, ReadModel, pack, unpack_pair
from qbench.quant.recipe import Recipe

_SESSION = {
    "PERFORMANCE_HINT": "LATENCY",
    "NUM_STREAMS": 1,
    "INFERENCE_NUM_THREADS": 3,
    "ENABLE_CPU_PINNING": False,
    "ENABLE_HYPER_THREADING": True,
    "SCHEDULING_CORE_TYPE": "ANY_CORE",
}


class Said(str):
    """A value as OpenVINO keeps it, under its word."""

    def astype(self, kind: type) -> Any:
        return kind(self)

    def to_string(self) -> str:
        return str(self)


class Marked:
    """A model with the marks that a pair of files carries, and no inputs."""

    inputs = ()

    def __init__(self, **marks: str) -> None:
        self._marks = {("qbench", name): Said(value) for name, value in marks.items()}

    def has_rt_info(self, place: Sequence[str]) -> bool:
        return tuple(place) in self._marks

    def get_rt_info(self, place: Sequence[str]) -> Said:
        return self._marks[tuple(place)]


@pytest.mark.parametrize(("precision", "hint"), [("fp32", "f32"), ("bf16", "bf16"), ("fp16", "f16")])
def test_how_every_model_is_compiled(precision: Any, hint: str) -> None:
    """One request at a time, on all processors that the process may use."""
    assert openvino_model.session_settings(3, precision) == {**_SESSION, "INFERENCE_PRECISION_HINT": hint}


def test_floats_are_fp32_unless_told() -> None:
    """OpenVINO itself would take bfloat16 where the CPU has it."""
    assert openvino_model.session_settings(3) == {**_SESSION, "INFERENCE_PRECISION_HINT": "f32"}


def test_what_a_model_says_of_itself() -> None:
    """Of its floats, where the word is known; of inputs made bytes, unless the caller says another."""
    name = "DYNAMIC_QUANTIZATION_GROUP_SIZE"
    assert openvino_model.read_marks(Marked()) == {}
    assert openvino_model.read_marks(Marked(), 64) == {}
    assert openvino_model.read_marks(Marked(dynamic_quantization_group_size="32")) == {name: 32}
    assert openvino_model.read_marks(Marked(dynamic_quantization_group_size="32"), 0) == {name: 0}
    said = [openvino_model._precision_of(Marked(inference_precision=word)) for word in ("bf16", "fp16", "fp32", "f64")]
    assert said == ["bf16", "fp16", "fp32", "fp32"]
    assert openvino_model._precision_of(Marked()) == "fp32"


def test_floats_that_the_cpu_does_not_multiply_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 16 bits alone; with the reason and the way out."""
    monkeypatch.setattr(half_floats, "explain_missing", lambda precision: f"no {precision}")
    openvino_model._require_instructions("fp32")
    with pytest.raises(CaseSkipped, match=r"^no bf16; run this bf16 file on a CPU that multiplies bf16$"):
        openvino_model._require_instructions("bf16")
    monkeypatch.setattr(half_floats, "explain_missing", lambda _precision: None)
    openvino_model._require_instructions("bf16")


def test_floats_that_openvino_takes_for_others_are_skipped() -> None:
    """Of 16 bits alone: what fp32 becomes is not asked."""
    taken = SimpleNamespace(get_property={"INFERENCE_PRECISION_HINT": Said("f16")}.__getitem__)
    openvino_model._require_precision(taken, "fp16")
    openvino_model._require_precision(taken, "fp32")
    with pytest.raises(CaseSkipped, match=r"^asked for bf16, OpenVINO takes f16; run this bf16 file"):
        openvino_model._require_precision(taken, "bf16")


class Core:
    """OpenVINO, for which every file is ``model``; it compiles into what was asked of it, or raises ``error``."""

    def __init__(self, model: Any, error: Exception | None = None) -> None:
        self.model, self.error = model, error

    def read_model(self, *_sources: Any) -> Any:
        return self.model

    def compile_model(self, model: Any, device: str, settings: dict[str, Any]) -> Any:
        if self.error is not None:
            raise self.error
        taken = Said(settings["INFERENCE_PRECISION_HINT"].replace("bf16", "f32"))
        return SimpleNamespace(asked=(model, device, settings), get_property={"INFERENCE_PRECISION_HINT": taken}.get)


def use(monkeypatch: pytest.MonkeyPatch, model: Any, error: Exception | None = None) -> Any:
    monkeypatch.setattr(half_floats, "explain_missing", lambda _precision: None)
    monkeypatch.setitem(sys.modules, "openvino", SimpleNamespace(Core=lambda: Core(model, error)))
    return model


def test_what_is_asked_of_openvino(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The settings of every model, what the model says, and what the caller says."""
    (file := tmp_path / "m.onnx").write_bytes(b"x")
    model = use(monkeypatch, Marked(dynamic_quantization_group_size="32", inference_precision="fp16"))
    expected = {**_SESSION, "INFERENCE_PRECISION_HINT": "f16", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 32}
    told = {"INFERENCE_NUM_THREADS": 1, "PERF_COUNT": False}
    assert openvino_model.compile_file(file).asked == (model, "CPU", {**expected, **told})
    told = {"PERF_COUNT": True, "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    compiled = openvino_model.compile_file(file, (), threads=3, profile=True, dynamic_group=0)
    assert compiled.asked == (model, "CPU", {**expected, **told})
    assert ReadModel(b"x").compile((), threads=3).asked[2] == {**expected, "PERF_COUNT": False}


def sizes(port: Any) -> list[int | None]:
    """The sizes of an input or output; None where it is open."""
    return [None if size.is_dynamic else size.get_length() for size in port.get_partial_shape()]


def write_sum(file: Path, *declared: list[Any], rows: int | None = None) -> Path:
    """An ONNX file that adds the relu of its first input to each of the others; ``rows``: beside a constant of so
    many."""
    draft, inputs = onnx_networks.Draft(), {f"x{i}": shape for i, shape in enumerate(declared)}
    y = draft.add("Relu", ["x0"], "relu")
    for name in list(inputs)[1:]:
        y = draft.add("Add", [y, name], name + "_sum")
    if rows is not None:
        beside = draft.constant("c", np.ones((rows, 4), np.float32))
        y = draft.add("Concat", [y, beside], "beside", axis=1)
    return onnx_networks.save(draft.model(inputs, {y: [None] * len(declared[-1])}), file.parent, file.stem)


needs_openvino = pytest.mark.skipif(importlib.util.find_spec("openvino") is None, reason="openvino is not installed")


@needs_openvino
@pytest.mark.parametrize(
    ("declared", "shapes", "every_size", "expected"),
    [
        ([["n", 4]], [(3, 4)], False, [[3, 4]]),
        ([["n", 4]], [], False, [[None, 4]]),
        ([["n", "t"]], [(3, 4)], False, [[3, None]]),  # served with texts of any length
        ([["n", "t"]], [(3, 4)], True, [[3, 4]]),
        ([[2, 4]], [(3, 4)], False, [[2, 4]]),  # the file fixes it
        ([["n", 4], [2, "n", 4]], [(3, 4), (2, 3, 4)], False, [[3, 4], [2, None, 4]]),
        ([["n", 4], ["m", 4]], [(3, 4)], False, [[3, 4], [None, 4]]),
    ],
)
def test_a_model_is_compiled_for_the_number_of_examples_that_it_gets(
    tmp_path: Path, declared: list[list[Any]], shapes: list[tuple[int, ...]], every_size: bool, expected: list[Any]
) -> None:
    """The first size of each input, where it is open, and on demand the others."""
    file = write_sum(tmp_path / "m.onnx", *declared)
    compiled = openvino_model.read_file(file).compile(shapes, every_size=every_size)
    assert [sizes(port) for port in compiled.inputs] == expected
    if not every_size:
        arrays = [np.zeros(shape, np.float32) for shape in shapes]
        assert [sizes(port) for port in openvino_model.compile_file(file, arrays).inputs] == expected


@needs_openvino
def test_a_number_of_examples_that_an_operator_contradicts_is_left_open(tmp_path: Path) -> None:
    """As it is where the exporter left two rows in the graph; each compilation starts from the file anew."""
    read = openvino_model.read_file(write_sum(tmp_path / "m.onnx", ["n", 4], rows=2))
    widths = [sizes(read.compile([(count, 4)]).inputs[0]) for count in (3, 2, 1)]
    assert widths == [[None, 4], [2, 4], [None, 4]]


@needs_openvino
def test_whether_a_file_is_compiled_for_each_number(tmp_path: Path) -> None:
    """Not one that fixes it, nor one whose operators do."""
    files = [
        write_sum(tmp_path / "any.onnx", ["n", 4]),
        write_sum(tmp_path / "fixed.onnx", [1, 4]),
        write_sum(tmp_path / "two.onnx", ["n", 4], rows=2),
    ]
    assert [openvino_model.read_file(file).is_compiled_for_each() for file in files] == [True, False, False]


@needs_openvino
def test_a_file_can_be_kept_to_any_number_of_examples(tmp_path: Path) -> None:
    """By a file beside it, which is of that one alone; however it is compiled."""
    file, other = (write_sum(tmp_path / name, ["n", 4]) for name in ("a.onnx", "b.onnx"))
    openvino_model.require_any_batch(file)
    array = np.zeros((3, 4), np.float32)
    widths = [sizes(openvino_model.compile_file(each, [array]).inputs[0]) for each in (file, other)]
    assert widths == [[None, 4], [3, 4]]
    assert not openvino_model.read_file(file).is_compiled_for_each()


class Compiled:
    """A model for these shapes."""

    def __init__(self, shapes: Any) -> None:
        self.shapes = shapes


def test_what_is_made_for_shapes_is_kept_until_others_come() -> None:
    """One at a time, so that two need not fit into memory: the first is gone before the second is made."""
    alive: list[weakref.ref[Compiled]] = []

    def make(shapes: Any) -> Compiled:
        assert [reference() for reference in alive] == [None] * len(alive)
        value = Compiled(shapes)
        alive.append(weakref.ref(value))
        return value

    models = ForShapes(make)
    assert [models.get([(count, 4)]).shapes[0][0] for count in (1, 1, 2, 1)] == [1, 1, 2, 1]
    assert len(alive) == 3


def test_how_a_model_is_compiled_is_told_without_compiling_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As every model, by what it says of itself and by what the caller says; whatever this CPU multiplies."""
    model = use(monkeypatch, Marked(inference_precision="bf16", dynamic_quantization_group_size="8"))
    monkeypatch.setattr(half_floats, "explain_missing", lambda precision: f"no {precision}")
    marked = {"INFERENCE_PRECISION_HINT": "bf16", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 8}
    read = ReadModel(b"x")
    assert read.list_settings(3) == _SESSION | marked
    assert read.list_settings(3, 0) == _SESSION | marked | {"DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    model._marks.clear()
    assert ReadModel(b"x").list_settings(3) == _SESSION | {"INFERENCE_PRECISION_HINT": "f32"}


@pytest.mark.parametrize(
    ("message", "kind", "told"),
    [
        ("It is odd.", BuildError, "OpenVINO cannot load the model: It is odd."),
        ("std::bad_alloc", RuntimeError, "std::bad_alloc"),  # memory ran out: no fault of the model
        ("OpConversionFailure\n-- Conversion is failed for: A-1\n-- No conversion rule found for operations: B, C",
         ModeImpossible, "it does not know A-1, B, C as it stands there (OpConversionFailure -- Conversion"),
        ("OpConversionFailure", ModeImpossible, "does not know an operator as it stands there (OpConversionFailure)"),
    ],
)  # fmt: skip
def test_why_openvino_does_not_load(
    monkeypatch: pytest.MonkeyPatch, message: str, kind: type[Exception], told: str
) -> None:
    """In its own words; operators that it does not know are no fault of the suite's."""
    use(monkeypatch, Marked(), RuntimeError(message))
    with pytest.raises(kind) as raised:
        ReadModel(b"x").compile(())
    assert told in str(raised.value)


def test_a_model_that_is_run_in_other_floats_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it is compiled where the CPU has no instructions, else by what was taken."""
    use(monkeypatch, Marked(inference_precision="bf16"))
    with pytest.raises(CaseSkipped, match=r"^asked for bf16, OpenVINO takes f32;"):
        ReadModel(b"x").compile(())
    monkeypatch.setattr(half_floats, "explain_missing", lambda precision: f"no {precision}")
    with pytest.raises(CaseSkipped, match=r"^no bf16;"):
        ReadModel(b"x").compile(())


def test_two_files_travel_as_one(tmp_path: Path) -> None:
    """Not compressed, as the same bytes whenever they are made."""
    (tmp_path / "a.xml").write_bytes(b"<net/>" * 100)
    (tmp_path / "a.bin").write_bytes(bytes(1000))
    for name in ("one", "two"):
        pack(tmp_path / "a.xml", tmp_path / "a.bin", tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    with zipfile.ZipFile(tmp_path / "one") as pair:
        stored = [(info.filename, info.compress_type, info.date_time) for info in pair.infolist()]
    assert stored == [(name, zipfile.ZIP_STORED, (1980, 1, 1, 0, 0, 0)) for name in (GRAPH, WEIGHTS)]
    assert unpack_pair(tmp_path / "one", tmp_path, "b") == "b.xml"
    assert [(tmp_path / f"b.{end}").read_bytes() for end in ("xml", "bin")] == [b"<net/>" * 100, bytes(1000)]
    assert unpack_pair(tmp_path / "a.xml", tmp_path, "c") is None
    assert not list(tmp_path.glob("c.*"))


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("Exception from src/core.cpp:120:\nCheck 'a == b' failed:\n\n  It is odd. \nTruly.", "It is odd. Truly."),
        ("Check 'a == b' failed", "Check 'a == b' failed"),  # better than nothing
        ("x" * 401, "x" * 400),
        ("", "no message"),
    ],
)
def test_a_message_on_one_line(message: str, told: str) -> None:
    """Without the places in OpenVINO's sources, and no longer than it may be."""
    assert openvino_model.shorten(RuntimeError(message)) == told


def operator(name: str, kind: str, *outputs: set[str]) -> Any:
    values = [SimpleNamespace(get_names=lambda names=names: names) for names in outputs]
    return SimpleNamespace(outputs=lambda: values, get_type_name=lambda: kind, get_friendly_name=lambda: name)


def test_the_operators_that_make_a_tensor() -> None:
    """By any of its names, at any of their outputs; not the constant or the model's output of that name."""
    operators = [
        operator("first", "MatMul", {"a", "b"}),
        operator("other", "MatMul", {"c"}),
        operator("split", "Split", {"d"}, {"e"}),
        operator("weight", "Constant", {"a"}),
        operator("output", "Result", {"e"}),
    ]
    model = SimpleNamespace(get_ops=lambda: operators)
    assert openvino_model._name_makers(model, ["b", "e", "gone"]) == ["first", "split"]


class Written:
    """A model that OpenVINO or NNCF made, which tells what was asked for."""

    def __init__(self, **asked: Any) -> None:
        self.asked = asked

    def set_rt_info(self, value: str, place: Sequence[str]) -> None:
        self.asked["/".join(place)] = value

    def get_ops(self) -> list[Any]:
        return [operator("first", "MatMul", {"a"})]


def save(model: Written, file: str, **more: Any) -> None:
    Path(file).write_text(repr(model.asked | more))
    Path(file).with_suffix(".bin").write_bytes(b"")


def compress(_model: Any, **asked: Any) -> Written:
    if asked["mode"] == "INT4_ASYM":
        raise ValueError
    return Written(**asked)


def use_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    modes = SimpleNamespace(**{mode: mode for mode in ("INT8_SYM", "INT8_ASYM", "INT4_SYM", "INT4_ASYM")})
    nncf = SimpleNamespace(
        set_log_level=int, CompressWeightsMode=modes, IgnoredScope=lambda names: names, compress_weights=compress
    )
    core = SimpleNamespace(read_model=lambda source: Written(source=source))
    monkeypatch.setitem(sys.modules, "nncf", nncf)
    monkeypatch.setitem(sys.modules, "openvino", SimpleNamespace(Core=lambda: core, save_model=save))


def read_written(pair: Path) -> Any:
    with zipfile.ZipFile(pair) as archive:
        assert archive.read(WEIGHTS) == b""
        return ast.literal_eval(archive.read(GRAPH).decode())


@pytest.mark.parametrize(
    ("recipe", "asked"),
    [
        ({}, {"mode": "INT8_ASYM", "group_size": 128, "ratio": 1.0, "all_layers": True, "dynamic": "32"}),
        ({"bits": 8, "symmetric": True}, {"mode": "INT8_SYM", "dynamic": "32"}),
        ({"bits": 4, "symmetric": True, "group": 64, "arithmetic": "fp32"},
         {"mode": "INT4_SYM", "group_size": 64, "ratio": 1.0, "all_layers": True, "dynamic": "0"}),
        ({"bits": 4, "symmetric": True, "group": "channel"},
         {"mode": "INT4_SYM", "group_size": -1, "ratio": 1.0, "all_layers": True, "dynamic": "32"}),
    ],
)  # fmt: skip
def test_what_is_asked_of_nncf_for_weights(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, recipe: dict[str, Any], asked: dict[str, Any]
) -> None:
    """Sizes of groups only for weights of few bits; inputs are made bytes unless the recipe has floats."""
    use_tools(monkeypatch)
    dynamic = {"qbench/dynamic_quantization_group_size": asked.pop("dynamic"), "compress_to_fp16": False}
    for skipped, scope in (([], None), (["a"], ["first"])):
        openvino_model.compress_weights(tmp_path / "m.onnx", tmp_path / "pair", Recipe(**recipe), skipped)
        assert read_written(tmp_path / "pair") == {**asked, **dynamic, "ignored_scope": scope}


def test_what_nncf_cannot_compress(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An error without words is told by its kind."""
    use_tools(monkeypatch)
    with pytest.raises(BuildError, match=r"^NNCF cannot compress .* model: ValueError: no message; take another group"):
        openvino_model.compress_weights(tmp_path / "m.onnx", tmp_path / "pair", Recipe(bits=4, symmetric=False), [])


def test_a_model_of_halves_is_marked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its weights are stored in 16 bits, and the format that multiplies is written into it."""
    use_tools(monkeypatch)
    openvino_model.store_half(tmp_path / "m.onnx", tmp_path / "pair", "bf16")
    source = str(tmp_path / "m.onnx")
    written = {"source": source, "qbench/inference_precision": "bf16", "compress_to_fp16": True}
    assert read_written(tmp_path / "pair") == written


def own_form(file: Path, *layers: str, body: str = "<net><layers>{}</layers></net>") -> Path:
    file.write_text(body.format("".join(layers)))
    openvino_ir.find_weights(file).write_bytes(b"weights")
    return file


def constant(kind: str, size: str = 'size="256"') -> str:
    return f'<layer type="Const"><data element_type="{kind}" {size}/></layer>'


@pytest.mark.parametrize("kind", ["i8", "u8", "i4", "u4", "nf4"])
def test_weights_of_bytes(tmp_path: Path, kind: str) -> None:
    """A constant of such a type that is large enough, among others."""
    assert openvino_ir.has_compressed_weights(own_form(tmp_path / "m.xml", constant("f32"), constant(kind)))


@pytest.mark.parametrize(
    "layer",
    [
        constant("f32"),
        constant("i8", 'size="255"'),  # too small for a weight
        constant("i8", ""),
        constant("i8").replace("Const", "Convert"),
        '<layer type="Const"/>',
    ],
)
def test_what_is_no_weight_of_bytes(tmp_path: Path, layer: str) -> None:
    """By its type, its size, or its kind of layer."""
    assert not openvino_ir.has_compressed_weights(own_form(tmp_path / "m.xml", layer))


def test_the_layers_that_quantize(tmp_path: Path) -> None:
    """By name and in order; the weights must be there."""
    file = own_form(
        tmp_path / "m.xml", '<layer name="a" type="FakeQuantize"/>', '<layer name="b" type="Relu"/>',
        '<layer name="c" type="FakeQuantize"/>',
    )  # fmt: skip
    assert openvino_ir.list_quantized(file) == ("a", "c")
    openvino_ir.find_weights(file).unlink()
    with pytest.raises(ModelError, match="its weights are not beside it: .*m.bin$"):
        openvino_ir.list_quantized(file)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("<net>", "cannot read this .xml"),
        ("<net></net>", "is no model of OpenVINO's"),
        ("<other><layers/></other>", "is no model of OpenVINO's"),
    ],
)
def test_what_is_no_model(tmp_path: Path, body: str, why: str) -> None:
    """Neither what is no XML nor XML of another kind."""
    with pytest.raises(ModelError, match=why):
        openvino_ir.list_quantized(own_form(tmp_path / "m.xml", body=body))


@pytest.mark.skipif(importlib.util.find_spec("openvino") is None, reason="needs openvino")
@pytest.mark.parametrize(
    ("shapes", "fixed"),
    [
        ([], None),
        ([[]], None),
        ([[-1, 3]], None),
        ([[4, 3]], 4),
        ([[], [-1, 3], [4, -1], [5]], 4),
    ],
)
def test_how_many_examples_a_model_takes_is_said_by_the_first_input_that_fixes_it(
    shapes: list[list[int]], fixed: int | None
) -> None:
    """One without axes says nothing."""
    from openvino import PartialShape

    ports = [SimpleNamespace(get_partial_shape=lambda shape=shape: PartialShape(shape)) for shape in shapes]
    assert openvino_model.find_fixed_batch(SimpleNamespace(inputs=ports)) == fixed


class Sizes(list[Any]):
    """A shape as OpenVINO gives it; None for a size that is open, no sizes where their number is."""

    def __init__(self, *sizes: int | None, is_static: bool = True) -> None:
        super().__init__(SimpleNamespace(is_dynamic=size is None, size=size) for size in sizes)
        self.rank = SimpleNamespace(is_static=is_static)

    @property
    def is_dynamic(self) -> bool:
        """Whether anything of it is open."""
        return not self.rank.is_static or any(size.is_dynamic for size in self)


class Open(Marked):
    """A model with inputs of these shapes, which notes as what it is cloned, or refuses to be of another shape."""

    def __init__(self, *shapes: Sizes, error: str = "", **marks: str) -> None:
        super().__init__(**marks)
        self.inputs: Any = [SimpleNamespace(get_partial_shape=lambda shape=shape: shape) for shape in shapes]
        self.error = error

    def clone(self) -> Any:
        """A model that becomes what it is reshaped to."""
        taken: dict[str, Any] = {}

        def reshape(fixed: dict[int, list[Any]]) -> None:
            if self.error:
                raise RuntimeError(self.error)
            taken.update(
                {str(place): [getattr(size, "size", size) for size in sizes] for place, sizes in fixed.items()}
            )

        return SimpleNamespace(taken=taken, reshape=reshape)


@pytest.mark.parametrize(
    ("model", "every_size", "taken"),
    [
        (Open(Sizes(None, 4), Sizes(2, None)), False, {"0": [3, 4]}),
        (Open(Sizes(None, 4), Sizes(2, None)), True, {"0": [3, 5], "1": [7, 8]}),
        (Open(Sizes(2, 4), Sizes(2, 8)), False, None),
        (Open(Sizes(2, 4), Sizes(2, 8)), True, None),
        (Open(Sizes(is_static=False), Sizes(None)), False, {"1": [7]}),
        (Open(Sizes(is_static=False)), True, {"0": [3, 5]}),
        (Open(Sizes()), False, None),
        (Open(Sizes(None, 4), dynamic_quantization_group_size="32"), False, None),
        (Open(Sizes(None, 4), error="It cannot be."), False, None),
    ],
)
def test_what_a_model_is_reshaped_to(
    monkeypatch: pytest.MonkeyPatch, model: Open, every_size: bool, taken: dict[str, Any] | None
) -> None:
    """Its first sizes where they are open, or all of them; as it is where nothing is, where an operator contradicts,
    and where it tells what its inputs are made of as it runs."""
    use(monkeypatch, model)
    asked = ReadModel(b"x").compile([(3, 5), (7, 8)], every_size=every_size).asked[0]
    assert (None if asked is model else asked.taken) == taken
    use(monkeypatch, model)
    assert ReadModel(b"x", any_batch=True).compile([(3, 5), (7, 8)], every_size=every_size).asked[0] is model


def test_a_lack_of_memory_is_no_contradiction(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes up as it is."""
    use(monkeypatch, Open(Sizes(None, 4), error="std::bad_alloc"))
    with pytest.raises(RuntimeError, match="^std::bad_alloc$"):
        ReadModel(b"x").compile([(3, 4)])


def test_nncf_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As long as it is used: neither advice nor warnings."""
    levels: list[int] = []
    use_tools(monkeypatch)
    monkeypatch.setattr(sys.modules["nncf"], "set_log_level", levels.append)
    with openvino_model._quiet_nncf() as tools:
        print("advice")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        assert tools == (sys.modules["nncf"], sys.modules["openvino"])
    assert (levels, capsys.readouterr().out) == ([40], "")


def test_what_is_asked_of_nncf_for_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its defaults, on the calibration data; what it cannot quantize is told."""
    use_tools(monkeypatch)
    monkeypatch.setattr(openvino_model.onnx_file, "Batches", lambda *what: [str(each) for each in what])
    nncf: Any = sys.modules["nncf"]
    nncf.Dataset = list
    nncf.quantize = lambda model, *data: Written(**model.asked, data=data)
    openvino_model.quantize(tmp_path / "m.onnx", tmp_path / "pair", ())
    source = str(tmp_path / "m.onnx")
    assert read_written(tmp_path / "pair") == {"source": source, "data": ([source, "()"],)}
    nncf.quantize = lambda *_: 1 / 0
    with pytest.raises(BuildError, match=r"^NNCF cannot quantize .*: ZeroDivisionError: .*; leave this recipe out$"):
        openvino_model.quantize(tmp_path / "m.onnx", tmp_path / "pair", ())
