"""What a call of an ExecuTorch program ran, matched with the products of its graph."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qbench.errors import BuildError
from qbench.quant.artifacts import executorch_program, exported_macs, torch_export
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.artifacts.executorch_program import Ran, mark_layers


@pytest.mark.parametrize(
    ("name", "multiplies", "int8"),
    [
        ("Convolution (NHWC, F32) IGEMM", True, False),
        ("Convolution (NHWC, QC8) IGEMM", True, True),
        ("Convolution (NHWC, QS8) GEMM", True, True),
        ("Deconvolution (NC, QS8, QC8W) Subconv2D", True, True),
        ("Fully Connected (NC, QS8, QC8W) GEMM", True, True),
        ("Fully Connected (NC, QD8, F32, QC8W) GEMM", True, True),
        ("Fully Connected (NC, F32, QC8W) GEMM", True, False),
        ("Batch Matrix Multiply (NC, F32) GEMM", True, False),
        ("Convert (NC)", False, False),
        ("Add (ND)", False, False),
        ("native_call_convolution.out", True, False),
        ("native_call_mean.out", False, False),
    ],
)
def test_a_kernel_is_int8_by_its_activations(name, multiplies, int8):
    """Weights in bytes alone are not enough, and what does not multiply is neither."""
    kernel = Ran(name=name, seconds=1e-6)
    assert (kernel.multiplies, kernel.int8) == (multiplies, int8)


PRODUCTS = (Layer(name="a", operator="xnnpack::convolution", macs=10), Layer(name="b", operator="aten::mm", macs=5))


def node(name: str, target: Any, *args: Any, macs: int | None = None) -> Any:
    return SimpleNamespace(name=name, target=target, args=args, macs=macs)


def test_the_products_of_a_lowered_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that XNNPACK takes where their part is called; named after the submodule where that is known."""
    monkeypatch.setattr(exported_macs, "count_macs", lambda node: node.macs)
    monkeypatch.setattr(exported_macs, "name_operator", lambda node: str(node.target))
    monkeypatch.setattr(torch_export, "layer_name", lambda node: {"n1": "block.conv"}.get(node.name))
    inner = [node("n1", "aten.convolution", macs=3), node("n2", "aten.relu"), node("n3", "aten.mm", macs=4)]
    lowered = SimpleNamespace(graph_module=SimpleNamespace(graph=SimpleNamespace(nodes=inner)))
    part = SimpleNamespace(original_module=lowered)
    nodes = [
        node("n0", "aten.bmm", macs=0),
        node("lowered", "lowered_module_0"),
        node("call", "<executorch_call_delegate>", node("lowered", "lowered_module_0"), node("x", "x"), macs=9),
        node("n4", "aten.addmm", macs=5),
    ]
    graph = SimpleNamespace(graph=SimpleNamespace(nodes=nodes), lowered_module_0=part)
    assert tuple(executorch_program._list_products(graph)) == (
        Layer(name="n0", operator="aten::bmm", macs=0),
        Layer(name="block.conv", operator="xnnpack::convolution", macs=3),
        Layer(name="n3", operator="xnnpack::mm", macs=4),
        Layer(name="n4", operator="aten::addmm", macs=5),
    )


def test_products_and_kernels_are_matched_in_order():
    """What does not multiply is passed over."""
    names = ("Convert (NC)", "Convolution (NHWC, QC8) IGEMM", "native_call_mean.out", "native_call_mm.out")
    layers, why = mark_layers(PRODUCTS, [Ran(name=name, seconds=0.0) for name in names])
    assert why is None
    assert [(layer.name, layer.macs, layer.precision) for layer in layers] == [("a", 10, "int8"), ("b", 5, "fp32")]


def test_another_number_of_kernels_is_no_coverage():
    """Which one ran for which layer is then not known, and nothing is claimed."""
    layers, why = mark_layers(PRODUCTS, [Ran(name="Convolution (NHWC, QC8) IGEMM", seconds=0.0)])
    assert layers == ()
    assert why == "the runtime tells 1 products of a call, and the program's graph has 2"


def test_kernels_of_the_other_library_are_no_coverage():
    """ExecuTorch's own products in place of XNNPACK's: of one part nothing was told, so that the count is chance."""
    layers, why = mark_layers(PRODUCTS, [Ran(name=f"native_call_{name}.out", seconds=0.0) for name in ("mm", "bmm")])
    assert (layers, why) == ((), "the runtime tells 2 products of a call, and the program's graph has 2")


def event(name: str | None, delegate: str | None = None) -> Any:
    return SimpleNamespace(
        profile_event=SimpleNamespace(name=name, delegate_debug_id_str=delegate, start_time=10**9, end_time=3 * 10**9)
    )


class Program:
    """A program of the runtime: it counts calls, and says why it refuses them."""

    def __init__(self, said: str | None = None, watched: bool = False) -> None:
        self.said, self.watched, self.calls = said, watched, 0

    def method_meta(self, name: str) -> None:
        assert name == "forward"
        if self.said == "broken":
            raise RuntimeError("not a program")

    def forward(self, example: Any) -> Any:
        self.calls += 1
        if self.said is not None:
            print(self.said, file=sys.stderr)
            raise RuntimeError("error 0x14")
        return example

    def write_etdump_result_to_file(self, file: str) -> None:
        assert self.watched
        Path(file).write_bytes(bytes([self.calls]))


def use(monkeypatch: pytest.MonkeyPatch, said: str | None = None) -> None:
    def load(_file: str, *, enable_etdump: bool) -> Program:
        return Program(said, enable_etdump)

    monkeypatch.setattr(executorch_program, "_runtime", lambda: SimpleNamespace(_load_for_executorch=load))


def test_the_kernels_of_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """XNNPACK's without their number, and ExecuTorch's own; not what encloses them, nor the first call."""

    def read(dump: bytes) -> Any:
        events = [
            event("native_call_mm.out"),
            event(None),
            event("DELEGATE_CALL"),
            event("1", "Convert (NC) #2"),
            SimpleNamespace(profile_event=None),
        ]
        calls = [SimpleNamespace(name="Execute", events=events[i == 0 :]) for i in range(dump[0])]
        return SimpleNamespace(run_data=[SimpleNamespace(name="Load", events=events), *calls])

    use(monkeypatch)
    serialize = SimpleNamespace(deserialize_from_etdump_flatcc=read)
    monkeypatch.setitem(sys.modules, "executorch.devtools.etdump.serialize", serialize)
    kernels = [Ran(name=name, seconds=2.0) for name in ("native_call_mm.out", "Convert (NC)")]
    assert executorch_program.watch_calls(Path("m.pte"), (), calls=2) == [kernels, kernels]


def test_a_program_is_loaded_and_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps what it ran only where it is watched."""
    use(monkeypatch)
    program = executorch_program.load_running(Path("m.pte"), (1,))
    assert (program.calls, program.watched) == (1, False)
    assert executorch_program.load(Path("m.pte"), watched=True).watched


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("x.cpp] Check failed (a == b): Only contiguous. \nmore\n in operator aten::mm.out: failed",
         "aten::mm.out: Only contiguous"),
        ("nothing of use", "error 0x14"),
    ],
)  # fmt: skip
def test_what_the_runtime_says_of_an_operator(monkeypatch: pytest.MonkeyPatch, said: str, told: str) -> None:
    """The operator and the end of its first check, where it says them; else the error itself."""
    use(monkeypatch, said)
    with pytest.raises(BuildError) as raised:
        executorch_program.load_running(Path("m.pte"), ())
    assert f"does not run a part of this network ({told}); keep" in str(raised.value)


def test_a_file_that_is_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, with what the runtime says."""
    use(monkeypatch, "broken")
    with pytest.raises(BuildError, match=r"^m.pte does not load \(RuntimeError: not a program at "):
        executorch_program.load(Path("a/m.pte"))


def test_threads_are_those_of_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set before a program is loaded, and read."""
    given: list[int] = []
    runtime = SimpleNamespace(
        _unsafe_reset_threadpool=given.append, _threadpool_get_thread_count=lambda: float(given[-1])
    )
    monkeypatch.setattr(executorch_program, "_runtime", lambda: runtime)
    executorch_program.set_threads(3)
    assert (given, executorch_program.read_threads()) == ([3], 3)
    assert type(executorch_program.read_threads()) is int
