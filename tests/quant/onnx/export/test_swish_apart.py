"""SiLU apart from OpenVINO's convolutions, where a CPU has AMX."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_networks import Draft
from optional_packages import needs_openvino
from quantized_networks import Quantized, of, run

from qbench.machine import fingerprint
from qbench.quant.artifacts import openvino_model
from qbench.quant.onnx.export import deploy_model, swish_apart
from qbench.quant.onnx.graph.graph import Graph


def gated(*, group: int = 1, silu: bool = True) -> Quantized:
    """A convolution whose output goes through SiLU, or only through a sigmoid, to another."""
    draft = Draft()
    tensor = draft.conv("x", "one", 4, 4, group=group)
    sigmoid = draft.add("Sigmoid", [tensor], "gate")
    draft.conv(draft.add("Mul", [tensor, sigmoid], "silu") if silu else sigmoid, "two", 4, 4)
    draft.nodes[-1].output[0] = "y"
    return of(draft.model({"x": ["batch", 4, 8, 8]}, {"y": ["batch", 4, 8, 8]}))


def write(network: Quantized, file: Path) -> tuple[str, ...]:
    return deploy_model.write(network.graph, network.sites, network.record, file, runtime="openvino").notes


@pytest.fixture(params=[True, False], ids=["AMX", "no AMX"])
def amx(request, monkeypatch) -> bool:
    """A CPU with VNNI, with AMX or without."""
    names = ("avx2", "avx512f", "avx512_vnni", *(("amx_int8",) if request.param else ()))
    monkeypatch.setattr(fingerprint, "onednn_isa", lambda: names)
    return request.param


def test_with_amx_two_nodes_read_the_convolution(amx, tmp_path: Path) -> None:
    """The sigmoid reads a sum of its own, of the same values; the note tells it. Without AMX the file has the plain
    form."""
    network = gated()
    notes = write(network, tmp_path / "int8.onnx")
    graph = Graph.load(tmp_path / "int8.onnx")
    gate, silu = graph.node("gate"), graph.node("silu")
    assert (gate.input[0] == silu.input[0]) is not amx
    assert [note[:6] for note in notes if "AMX" in note] == (["1 SiLU"] if amx else [])
    if amx:
        tiny = graph.maker(gate.input[0])
        assert (tiny.op_type, tiny.input[0]) == ("Add", silu.input[0])
        assert graph.constant(tiny.input[1]) == np.float32(swish_apart.TINY)


@pytest.mark.parametrize("network", [gated(group=4), gated(silu=False)], ids=["depthwise", "no SiLU"])
def test_what_amx_does_not_slow_stays(amx, network: Quantized, tmp_path: Path) -> None:
    """Depthwise convolutions have other kernels, and a sigmoid alone is no SiLU."""
    assert not [note for note in write(network, tmp_path / "int8.onnx") if "AMX" in note]


def test_a_float_convolution_keeps_its_silu() -> None:
    """Its kernels are not those of AMX."""
    assert swish_apart.set_apart(gated().graph.copy()) == 0


@needs_openvino
def test_the_values_are_the_same(monkeypatch, tmp_path: Path) -> None:
    """ONNX Runtime and OpenVINO give of both forms the same bits, but for the last of a float that OpenVINO's two
    kernels round."""
    network, outputs = gated(), []
    for names in (("avx512_vnni",), ("avx512_vnni", "amx_int8")):
        with monkeypatch.context() as patched:
            patched.setattr(fingerprint, "onednn_isa", lambda names=names: names)
            write(network, tmp_path / "int8.onnx")
        graph = Graph.load(tmp_path / "int8.onnx")
        compiled = openvino_model.compile_file(tmp_path / "int8.onnx")
        outputs.append((run(graph, network.feed)[0], openvino_model.run(compiled, tuple(network.feed.values()))))
    (plain, plain_openvino), (apart, apart_openvino) = outputs
    np.testing.assert_array_equal(plain, apart)
    np.testing.assert_allclose(plain_openvino, apart_openvino, atol=0.02 * float(np.abs(plain).max()))


@needs_openvino
def test_openvino_runs_it_in_a_step_of_its_own(monkeypatch, tmp_path: Path) -> None:
    """With AMX the convolution gives floats, which the gate reads; in the plain form SiLU is part of it."""
    if "amx_int8" not in fingerprint.onednn_isa():
        pytest.skip("this CPU has no AMX, or a switch hides it from oneDNN")
    write(gated(), tmp_path / "apart.onnx")
    monkeypatch.setattr(fingerprint, "onednn_isa", lambda: ("avx512_vnni",))
    write(gated(), tmp_path / "plain.onnx")
    assert "Eltwise" in list_kinds(tmp_path / "apart.onnx")
    assert "Eltwise" not in list_kinds(tmp_path / "plain.onnx")


def list_kinds(file: Path) -> list[str]:
    """The steps of OpenVINO's compiled model."""
    nodes = openvino_model.compile_file(file).get_runtime_model().get_ordered_ops()
    return [str(getattr(kind := node.get_rt_info()["layerType"], "value", kind)) for node in nodes]
