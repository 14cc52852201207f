"""Rules of qbench/quant/artifacts/aoti.py that need no compiler: what a package's files tell."""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qbench.errors import BuildError
from qbench.quant.artifacts import aoti
from qbench.quant.artifacts.coverage import Layer

pytest.importorskip("torch")


def package(file: Path, **sources: str) -> Path:
    """A package with these files of C++ and one of machine code that says the same."""
    from torch.export.pt2_archive._package import PT2ArchiveWriter

    with PT2ArchiveWriter(str(file)) as writer:
        for name, text in sources.items():
            writer.write_bytes(f"data/aotinductor/model/{name}.cpp", text.encode())
            writer.write_bytes(f"data/aotinductor/model/{name}.so", text.encode())
    return file


def test_the_folder_of_a_compilation_is_forgotten_in_the_sources(tmp_path: Path) -> None:
    """Machine code is left as it is: its offsets would be others."""
    file = package(tmp_path / "m.pt2", a="// /tmp/x/a.cpp\n/tmp/x", b="plain")
    names = sorted(zipfile.ZipFile(file).namelist())
    aoti._forget_folder(file, "/tmp/x")
    with zipfile.ZipFile(file) as archive:
        assert sorted(archive.namelist()) == names
        contents = {Path(name).name: archive.read(name) for name in archive.namelist()}
    assert contents["a.cpp"] == b"// ./a.cpp\n."
    assert contents["a.so"] == b"// /tmp/x/a.cpp\n/tmp/x"
    assert contents["b.cpp"] == contents["b.so"] == b"plain"


def test_the_sources_tell_kernels_threads_and_watching(tmp_path: Path) -> None:
    """Calls of int8 kernels, not their declarations' names alone; numbers of threads where they are written out."""
    calls = "aoti_torch_cpu__qconv_pointwise_tensor(a); aoti_torch_cpu__qlinear_pointwise(b); aoti_torch_cpu_mm(c);"
    plain = package(tmp_path / "plain.pt2", a=calls, b="#pragma omp parallel\n// aoti_torch_cpu__qconv_pointwise;")
    assert aoti.count_int8_calls(plain) == 2
    assert aoti.read_threads(plain) == frozenset()
    assert not aoti.is_watched(plain)
    other = package(
        tmp_path / "other.pt2",
        a="num_threads(2) num_threads(2)",
        b="num_threads(16)\nRAIIAtenRecordFunctionHandle record_k(",
    )
    assert aoti.count_int8_calls(other) == 0
    assert aoti.read_threads(other) == {2, 16}
    assert aoti.is_watched(other)


@pytest.mark.parametrize(
    ("values", "limits", "scale", "zero_point"),
    [
        ([-1.0, 3.0], (0, 255), 4 / 255, 64),
        ([1.0, 3.0], (0, 255), 3 / 255, 0),  # 0 is in the range, whatever the values are
        ([-3.0, -1.0], (0, 255), 3 / 255, 255),
        ([-3.0, -1.0], (-128, 127), 3 / 255, 127),
        ([0.0, 0.0], (0, 255), 0.01, 0),
    ],
)
def test_scale_and_zero_point_of_a_range(
    values: list[float], limits: tuple[int, int], scale: float, zero_point: int
) -> None:
    """As torch's operator has them: Inductor's rule for it has not, for values of one sign."""
    import torch

    qparams = aoti._choose_qparams(torch.tensor(values), *limits, 0.01, torch.uint8)
    assert [tensor.dtype for tensor in qparams] == [torch.float64, torch.int64]
    assert float(qparams[0]) == pytest.approx(scale)
    assert int(qparams[1]) == zero_point


def test_the_compilers_paths_begin_below_the_folder() -> None:
    """In messages and for debuggers, only while it compiles."""
    from torch._inductor import cpp_builder

    plain = cpp_builder._get_os_related_cpp_cflags
    with aoti._paths_from("/tmp/x"):
        flags = cpp_builder._get_os_related_cpp_cflags("g++")
        assert flags == [*plain("g++"), "fmacro-prefix-map=/tmp/x=.", "fdebug-prefix-map=/tmp/x=."]
    assert cpp_builder._get_os_related_cpp_cflags is plain


@pytest.mark.parametrize("name", ["plain", "with space"])
def test_the_cache_of_a_compilation_is_beside_its_file(tmp_path: Path, name: str) -> None:
    """Unless Inductor could not quote the path; it is gone afterwards."""
    (folder := tmp_path / name).mkdir()
    with aoti._cache_beside(folder / "m.pt2") as cache:
        assert Path(cache).is_dir()
        assert Path(cache).name.startswith(".inductor-")
        assert (Path(cache).parent == folder) == (name == "plain")
    assert not Path(cache).exists()


@pytest.mark.parametrize("before", [None, "/elsewhere"])
def test_a_package_that_does_not_load_is_told_and_leaves_the_process_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    """Where it is unpacked is set for the loader alone, and gone afterwards."""
    import torch

    monkeypatch.delenv("TMPDIR", raising=False)
    if before is not None:
        monkeypatch.setenv("TMPDIR", before)
    folders = []

    def fail(*args: Any) -> Any:
        folders.append(Path(os.environ["TMPDIR"]))
        assert folders[0].is_dir()
        assert args == (str(tmp_path / "m.pt2"), "model", False, 1, -1)
        raise RuntimeError("no such symbol")

    monkeypatch.setattr(torch._C._aoti, "AOTIModelPackageLoader", fail)
    with pytest.raises(BuildError, match=r"m.pt2 does not load \(.*no such symbol.*\); made for another CPU or torch"):
        aoti.load(tmp_path / "m.pt2")
    assert os.environ.get("TMPDIR") == before
    assert not folders[0].exists()


class Node(SimpleNamespace):
    """A node of a graph that counts so many products."""

    def __init__(self, operator: str, macs: int | None, layer: str | None = None, scale: str | None = None) -> None:
        args = [None] * 4 + [SimpleNamespace(target=scale)]
        super().__init__(operator=operator, macs=macs, layer=layer, args=args)


@pytest.fixture
def of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a node is told by the node itself."""
    monkeypatch.setattr(aoti.exported_macs, "count_macs", lambda node: node.macs)
    monkeypatch.setattr(aoti.exported_macs, "name_operator", lambda node: node.operator)
    monkeypatch.setattr(aoti.torch_export, "layer_name", lambda node: node.layer)


NODES = (
    Node("onednn.qconv_pointwise", 90, scale="conv_scale"),
    Node("aten.relu", None),
    Node("onednn.qlinear_pointwise", 10, layer="fc", scale="other"),
    Node("aten.mm", 5),
    Node("aten.convolution", 7, layer="head", scale="conv_scale"),
)
LAYERS = [
    Layer(name="conv", operator="onednn::qconv_pointwise", macs=90, precision="int8"),
    Layer(name="fc", operator="onednn::qlinear_pointwise", macs=10, precision="int8"),
    Layer(name="aten::mm#2", operator="aten::mm", macs=5, precision="fp32"),
    Layer(name="head", operator="aten::convolution", macs=7, precision="fp32"),
]


@pytest.mark.usefixtures("of_nodes")
def test_a_graph_s_layers_are_those_that_multiply() -> None:
    """Int8 ones by the scales of their weight, else by the submodule, else by operator and position."""
    layers: list[Layer] = []
    aoti._reader(layers, {"conv_scale": "conv"})(SimpleNamespace(nodes=NODES))
    assert layers == LAYERS


@pytest.mark.usefixtures("of_nodes")
@pytest.mark.parametrize(
    ("calls", "keys", "asked"),
    [
        (2, {}, {}),
        (2, {"march": "haswell"}, {"cpp.march": "haswell", "cpp.simdlen": 256}),
        (2, {"march": "skylake-avx512"}, {"cpp.march": "skylake-avx512", "cpp.simdlen": 512}),
        (2, {"watched": True}, {aoti._WATCHED: True}),
        (1, {}, "the package calls 1 int8 kernels and its graph has 2; report it as a bug"),
        (3, {}, "the package calls 3 int8 kernels and its graph has 2; report it as a bug"),
    ],
)
def test_a_package_is_compiled_for_its_cpu_and_holds_the_kernels_of_its_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int, keys: dict[str, Any], asked: Any
) -> None:
    """Another number of int8 kernels than the graph's is a fault; the folder of the compilation is in no source."""
    import torch

    given: list[Any] = []
    within: list[str] = []

    @contextlib.contextmanager
    def ask_for_flags() -> Iterator[None]:
        within.append("asked")
        yield
        within.clear()

    def compile_and_package(program: Any, *, package_path: str, inductor_configs: dict[str, Any]) -> None:
        assert within == ["asked"]
        given.append((program, inductor_configs))
        inductor_configs["post_grad_custom_pre_pass"](SimpleNamespace(nodes=NODES))
        folder = os.environ["TORCHINDUCTOR_CACHE_DIR"]
        package(Path(package_path), a="aoti_torch_cpu__qconv_pointwise(x);" * calls + folder)

    exported = SimpleNamespace(program="program", module=lambda: SimpleNamespace(graph=SimpleNamespace(nodes=())))
    monkeypatch.setattr(aoti.torch_export, "export", lambda module, example, any_batch: exported)
    monkeypatch.setattr(aoti.inductor_vectors, "ask_for_flags", ask_for_flags)
    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", compile_and_package)
    if isinstance(asked, str):
        with pytest.raises(BuildError, match=asked):
            aoti.compile_package("module", ("x",), tmp_path / "m.pt2", **keys)
        return
    layers = aoti.compile_package("module", ("x",), tmp_path / "m.pt2", **keys)
    assert [layer.operator for layer in layers] == [layer.operator for layer in LAYERS]
    ((program, options),) = given
    own = {"post_grad_custom_pre_pass", *aoti.OPTIONS}
    assert (program, {name: value for name, value in options.items() if name not in own}) == ("program", asked)
    assert ".inductor-" not in aoti.read_sources(tmp_path / "m.pt2")


def test_scales_tell_the_layer_of_their_weight() -> None:
    """By what reads the dequantized weight; one without a layer is left out."""

    def node(target: str, users: tuple[Any, ...] = (), args: tuple[Any, ...] = ()) -> Any:
        return SimpleNamespace(target=target, users=users, args=args)

    held = (None, SimpleNamespace(target="scale_0")), (None, SimpleNamespace(target="scale_1"))
    named, bare = (SimpleNamespace(layer=name) for name in ("conv", None))
    nodes = [
        node("quantized_decomposed.dequantize_per_channel.default", (bare, named), held[0]),
        node("quantized_decomposed.dequantize_per_channel.default", (bare,), held[1]),
        node("quantized_decomposed.dequantize_per_tensor.default", (named,), held[1]),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aoti.torch_export, "layer_name", lambda node: node.layer)
        graph = SimpleNamespace(graph=SimpleNamespace(nodes=nodes))
        assert aoti._layer_of_scale(graph) == {"scale_0": "conv"}


def test_products_stay_products_and_nothing_else_is_written_out_otherwise() -> None:
    """Two operators' rules are gone while it compiles, one is qbench's own; then all are as they were."""
    import torch
    from torch._inductor.decomposition import select_decomp_table

    table: dict[Any, Any] = select_decomp_table()
    before, chosen = dict(table), torch.ops.quantized_decomposed.choose_qparams.tensor
    with aoti._own_rules():
        gone = {key.overloadpacket for key in before.keys() - table.keys()}
        assert gone == {torch.ops.aten.addmm, torch.ops.aten.mm}
        assert {key for key in table if table[key] is not before.get(key)} == {chosen}
    assert table == before


def test_what_would_make_the_bytes_of_a_package_differ_is_off() -> None:
    """Names after a folder, lines of sources, addresses in messages; weights are constants, threads are not."""
    off = {
        "aot_inductor.precompile_headers", "aot_inductor.enable_line_tables", "aot_inductor.enable_frame_pointer",
        "size_asserts", "alignment_asserts",
    }  # fmt: skip
    assert {name for name, value in aoti.OPTIONS.items() if value is False} == off
    assert {name for name, value in aoti.OPTIONS.items() if value is True} == {"freezing", "cpp.dynamic_threads"}
    assert aoti.OPTIONS["compile_threads"] == 1
    assert aoti.VECTOR_BITS == {"haswell": 256, "skylake-avx512": 512}


def test_only_sources_are_read(tmp_path: Path) -> None:
    """Machine code is no text."""
    assert aoti.read_sources(package(tmp_path / "m.pt2", a="one", b="two")) == "one\ntwo"


def test_a_package_is_watched_in_its_second_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one sets up what every later one uses."""
    calls: list[Any] = []
    monkeypatch.setattr(aoti, "load", lambda file: SimpleNamespace(run=lambda inputs: calls.append((file, inputs))))
    monkeypatch.setattr(aoti.onednn_log, "watch", lambda call: (len(calls), call(), len(calls)))
    assert aoti.watch_products(Path("a.pt2"), ("x", "y")) == (1, None, 2)
    assert calls == [(Path("a.pt2"), ["x", "y"])] * 2
