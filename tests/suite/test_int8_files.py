"""The key ``int8`` of a model: how files are named, what is refused and where, and the cases they become."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import helper
from optional_packages import needs_openvino

from qbench.errors import SuiteError, UsageError
from qbench.plan.planner import make_plan
from qbench.suite import parse

FORMS = {
    "a.onnx": [("file", "a.onnx", "static")],
    "{file: a.onnx, mode: dynamic}": [("file", "a.onnx", "dynamic")],
    "{file: a.onnx, name: mine}": [("file-mine", "a.onnx", "static")],
    "[sub/by nncf.onnx, {name: vendor, file: b.onnx}]": [
        ("file-by-nncf", "sub/by nncf.onnx", "static"),
        ("file-vendor", "b.onnx", "static"),
    ],
    "{nncf: a.onnx, vendor: {file: b.onnx, mode: dynamic}}": [
        ("file-nncf", "a.onnx", "static"),
        ("file-vendor", "b.onnx", "dynamic"),
    ],
}


def suite(int8: str, *, modes: str = "[fp32]", backends: str = "[onnxruntime, openvino]", more: str = ""):
    return parse(
        f"suite: s\nmodels: [{{name: digits-cnn, int8: {int8}}}]\ndata: {{dataset: digits}}\n"
        f"matrix: {{modes: {modes}, backends: {backends}{more}}}\n"
    )


@pytest.mark.parametrize(("written", "files"), FORMS.items())
def test_a_file_is_named_by_its_stem_or_by_the_suite(written, files):
    """One path, one with a mode, a list, a mapping of names: each file has a recipe of its own."""
    (model,) = suite(written).models
    assert [(entry.recipe, entry.file, entry.mode) for entry in model.int8] == files


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("3", "3:28: models[0].int8: expected a path, or {file: path, mode: static or dynamic}, got 3"),
        ("[]", "models[0].int8: expected at least one file, got an empty list"),
        (
            "{}",
            "models[0].int8: expected a path, or {file: path, mode: static or dynamic}, got an empty mapping; leave",
        ),
        ("{name: mine}", "models[0].int8.file: expected the path of an int8 file, got nothing"),
        ("[[a.onnx]]", "models[0].int8[0]: expected a path, or {file: path, mode: static or dynamic}, got a list"),
        ("{file: ' '}", "models[0].int8.file: expected the path of an int8 file, got ' '"),
        (
            "a.bin",
            "models[0].int8: expected ONNX, TorchScript or OpenVINO (.onnx, .pt, .pth, .ts, .jit, .xml), got 'a.bin'",
        ),
        (
            "{file: a.pt, engine: fgbemm}",
            "models[0].int8.engine: expected an engine of torch, got 'fgbemm'; did you mean 'fbgemm'?",
        ),
        ("{file: a.pt, engine: [x86]}", "models[0].int8.engine: expected an engine of torch, got a list; available: "),
        (
            "{file: a.onnx, engine: x86}",
            "models[0].int8.engine: only a TorchScript file runs on an engine of torch; remove this key",
        ),
        ("{mode: dynamic}", "models[0].int8.file: expected the path of an int8 file, got nothing"),
        (
            "{file: a.onnx, mode: qat}",
            "models[0].int8.mode: expected static (fixed ranges, also where they were trained)",
        ),
        ("{file: a.onnx, moed: dynamic}", "models[0].int8.moed: unknown key 'moed'; did you mean 'mode'?"),
        ("[a.onnx, sub/a.onnx]", "models[0].int8[1]: two files are called 'file-a'; give one a name"),
        ("{no name: a.onnx}", "models[0].int8.no name: expected a short name of letters"),
        (
            "{vendor: {file: [a.onnx]}}",
            "models[0].int8.vendor.file: expected the path of an int8 file, got a list",
        ),
    ],
)
def test_what_is_no_file_is_refused_at_its_place(written, said):
    """File, line and column, and what to write in its place."""
    with pytest.raises(SuiteError) as raised:
        suite(written)
    assert said.removeprefix("3:28: ") in str(raised.value)
    assert "<text>:2:" in str(raised.value)


def onnx_file(file: Path, operators: list[str]):
    """A file of nodes whose operators say whether it is int8, and how; nothing runs it."""
    value = helper.make_tensor_value_info
    nodes = [helper.make_node(kind, ["x"], [f"y{index}"]) for index, kind in enumerate(operators)]
    graph = helper.make_graph(nodes, "net", [value("x", 1, [1])], [value("y0", 1, [1])])
    onnx.save(helper.make_model(graph), str(file))


FLOAT = "float.onnx: nothing in it is quantized: a float file goes under source, an int8 one under int8"
REFUSED_FILES = {
    "float.onnx": ("2:35: models[0].int8", FLOAT),
    "{mine: fixed.onnx, other: {file: float.onnx}}": ("2:68: models[0].int8.other.file", FLOAT),
    "[fixed.onnx, dynamic.onnx]": (
        "2:48: models[0].int8[1]",
        "it chooses ranges as it runs (DynamicQuantizeLinear): write `int8: {file: dynamic.onnx, mode: dynamic}`",
    ),
    "{file: fixed.onnx, mode: dynamic}": (
        "2:42: models[0].int8.file",
        "it has fixed ranges only: write `int8: {file: fixed.onnx, mode: static}`",
    ),
    "cut.onnx": ("2:35: models[0].int8", "cut.onnx: not a whole ONNX file"),
    "cut.pt": ("2:35: models[0].int8", "cut.pt: not a TorchScript archive"),
}


@pytest.mark.parametrize("written", REFUSED_FILES)
def test_a_file_that_is_not_int8_is_refused_before_anything_is_built(written, tmp_path: Path):
    """A float file, one of the other mode, one that is cut: refused where the suite names it, with what to write."""
    onnx_file(tmp_path / "float.onnx", ["Relu"])
    onnx_file(tmp_path / "fixed.onnx", ["Relu", "QuantizeLinear"])
    onnx_file(tmp_path / "dynamic.onnx", ["DynamicQuantizeLinear"])
    (tmp_path / "cut.onnx").write_bytes(b"\x08\x08nothing")
    (tmp_path / "cut.pt").write_bytes(b"nothing")
    file = tmp_path / "s.yaml"
    text = f"suite: s\nmodels: [{{name: digits-cnn, int8: {written}}}]\ndata: {{dataset: digits}}\nmatrix: {{}}\n"
    file.write_text(text)
    with pytest.raises(SuiteError) as raised:
        parse(text, file=str(file))
    (problem,) = str(raised.value).splitlines()
    place, said = REFUSED_FILES[written]
    assert problem.startswith(f"{file}:{place}: ")
    assert said in problem
    assert parse(text, file=str(file), stored=True).models[0].int8  # a stored run is read where its files are not


@pytest.mark.parametrize(
    "slip", ["fil: a.onnx", "flie: a.onnx", "File: a.onnx", "files: a.onnx", "moed: dynamic, fiel: a.onnx"]
)
def test_a_misspelt_file_is_no_contender_of_that_name(slip):
    """One path under a key that is almost ``file`` is refused with the right key and with how such a name is given."""
    key = slip.rpartition("onnx")[0].split()[-2].rstrip(":")
    own = f"a contender of that name is written {{{key}: {{file: a.onnx}}}}"
    with pytest.raises(SuiteError) as raised:
        suite(f"{{{slip}}}")
    assert f"models[0].int8.{key}: unknown key '{key}'; did you mean 'file'? {own}" in str(raised.value)


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("{fil: {file: a.onnx}}", ["fil"]),
        ("{file1: a.onnx, file2: b.onnx}", ["file1", "file2"]),
        ("{profile: a.onnx}", ["profile"]),
        ("{model: a.onnx}", ["model"]),
        ("{final: a.onnx}", ["final"]),
    ],
)
def test_names_that_are_meant_stay_possible(written, names):
    """Several paths, a name with keys of its own, a word that is not a slip of ``file``: contenders of those names."""
    (model,) = suite(written).models
    assert [own.recipe for own in model.int8] == [f"file-{name}" for name in names]


@pytest.mark.parametrize("written", ["gone.onnx", "[there.onnx, {file: gone.onnx}]", "{a: there.onnx, b: gone.onnx}"])
def test_a_file_that_is_not_there_is_named_before_anything_runs(written, tmp_path: Path):
    """Paths start at the suite's folder, as all of them do; only the missing one is named."""
    onnx_file(tmp_path / "there.onnx", ["QuantizeLinear"])
    file = tmp_path / "s.yaml"
    text = f"suite: s\nmodels: [{{name: digits-cnn, int8: {written}}}]\ndata: {{dataset: digits}}\nmatrix: {{}}\n"
    file.write_text(text)
    with pytest.raises(SuiteError) as raised:
        parse(text, file=str(file))
    (problem,) = str(raised.value).splitlines()
    assert f"no such file or folder: {tmp_path / 'gone.onnx'}" in problem


def plan(read):
    return make_plan(read, cores=2)


def test_a_file_becomes_cases_whatever_modes_the_matrix_has():
    """On every backend that runs ONNX files, against the fp32 of its runtime; others get a word in a note."""
    read = suite("{v: a.onnx, d: {file: b.onnx, mode: dynamic}}", modes="[fp32]", backends="[onnxruntime, fbgemm]",
                 more=", threads: [1, 2]")  # fmt: skip
    planned = plan(read)
    own = [each for each in planned.cases if each.case.variant.recipe.file]
    assert [each.case.id for each in own] == [
        f"digits-cnn/{name}/onnxruntime/t{threads}/b1"
        for threads in (1, 2)
        for name in ("static@file-v", "dynamic@file-d")
    ]
    assert {each.reference.id for each in own} == {f"digits-cnn/fp32/onnxruntime/t{threads}/b1" for threads in (1, 2)}
    recipe = own[0].case.variant.recipe
    assert (recipe.flow, recipe.file, recipe.min_coverage) == ("onnx", "a.onnx", 0.5)
    assert (recipe.calibrator, recipe.per_channel, recipe.symmetric) == (None, None, None)
    assert any("an int8 ONNX file of your own runs on onnxruntime and openvino" in note for note in planned.notes)


@pytest.mark.parametrize(
    ("written", "backends", "places"),
    [
        ("a.pt", "[torch, fbgemm, onednn, onnxruntime]", ["fbgemm", "onednn"]),
        ("{file: a.pth, engine: qnnpack}", "[torch, fbgemm]", ["qnnpack"]),
        ("{file: a.ts, engine: qnnpack}", "[torch, fbgemm]", ["qnnpack"]),
        ("a.pt", "[torch]", ["x86"]),
        ("a.onnx", "[torch, fbgemm, onnxruntime]", ["onnxruntime"]),
        pytest.param("a.xml", "[torch, onnxruntime, openvino]", ["openvino"], marks=needs_openvino),
    ],
)
def test_a_file_runs_where_its_format_does(written, backends, places, monkeypatch):
    """TorchScript on the engines of the matrix, on the named one alone, on torch's own where nobody names one."""
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    planned = plan(suite(written, backends=backends))
    own = [each for each in planned.cases if each.case.variant.recipe.file]
    assert [each.case.id for each in own] == [f"digits-cnn/static@file/{name}/t1/b1" for name in places]
    runtime = places[0] if places[0] in ("onnxruntime", "openvino") else "torch"
    assert {each.reference.id for each in own} == {f"digits-cnn/fp32/{runtime}/t1/b1"}
    said = "a.pt names no engine, and neither does matrix.backends: it runs on x86, which torch takes here"
    assert any(note.startswith(said) for note in planned.notes) == (places == ["x86"])


def test_files_of_two_formats_may_have_one_name():
    """Each model's file goes where its format runs, though both are called `file`."""
    read = parse(
        "suite: s\nmodels: [{name: digits-cnn, int8: a.pt}, {name: digits-lstm, int8: a.onnx}]\n"
        "data: {dataset: digits}\nmatrix: {modes: [fp32], backends: [fbgemm, onnxruntime]}\n"
    )
    ids = [planned.case.id for planned in plan(read).cases if planned.case.variant.recipe.file]
    assert ids == ["digits-cnn/static@file/fbgemm/t1/b1", "digits-lstm/static@file/onnxruntime/t1/b1"]


def test_the_matrix_takes_files_out_and_adds_none():
    """Their cells are all there: `exclude` names one by its recipe, and `include` says so."""
    read = suite("{v: a.onnx, w: b.onnx}", backends="[onnxruntime]", more=", exclude: [{recipe: file-v}]")
    ids = [planned.case.id for planned in plan(read).cases]
    assert ids == ["digits-cnn/fp32/onnxruntime/t1/b1", "digits-cnn/static@file-w/onnxruntime/t1/b1"]
    more = ", include: [{mode: static, backend: onnxruntime, recipe: file}]"
    with pytest.raises(UsageError, match="take some out with matrix.exclude"):
        plan(suite("a.onnx", more=more))


def test_a_recipe_is_not_called_as_a_file_is():
    """A case's id tells whose the int8 is."""
    with pytest.raises(SuiteError, match="names that begin with 'file' are those of int8 files of your own"):
        parse("suite: s\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n"
              "recipe: {name: file-x, calibrator: mse}\n")  # fmt: skip


@pytest.mark.parametrize(
    ("written", "recipe"),
    [
        (f"[{'a' * 41}.onnx]", f"file-{'a' * 40}"),
        (f"[{{file: a.onnx, name: {'b' * 40}}}]", f"file-{'b' * 40}"),
        ("[---.onnx]", "file"),
    ],
)
def test_a_file_of_a_list_is_named_by_its_stem_as_far_as_a_name_may_go(written, recipe):
    """Forty letters; a stem without any is no name."""
    (model,) = suite(written).models
    assert [own.recipe for own in model.int8] == [recipe]
    with pytest.raises(SuiteError, match="expected a short name of letters"):
        suite(f"{{file: a.onnx, name: {'b' * 41}}}")


@pytest.mark.parametrize(("machine", "engine"), [("x86_64", "x86"), ("AMD64", "x86"), ("aarch64", "qnnpack")])
def test_the_engine_of_a_file_is_the_one_that_torch_takes_on_this_cpu(machine, engine, monkeypatch):
    """Where nobody names one."""
    monkeypatch.setattr("platform.machine", lambda: machine)
    (model,) = suite("a.pt").models
    assert model.int8[0].choose_backends(("torch",)) == ("torch", engine)
    assert model.int8[0].choose_backends(("torch", "fbgemm")) == ("torch", "fbgemm")
