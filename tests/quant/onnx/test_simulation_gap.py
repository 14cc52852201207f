"""A file that its runtime computes wrongly is told by its numbers; what rounding explains is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx_networks
import pytest
from quantized_networks import Quantized, quantized

from qbench.quant.onnx.export import deploy_model, deploy_onnxruntime

RUNTIMES = ("onnxruntime", "openvino")


def notes(network: Quantized, file: Path, runtime: str, *, learned: bool = False) -> list[str]:
    """What is said of the gap when a file is written for a runtime."""
    calibration = tuple(network.feed.values())
    written_files = deploy_model.write(
        network.graph, network.sites, network.record, file, runtime=runtime, learned=learned, calibration=calibration
    )
    return [note for note in written_files.notes if "computes something else" in note]


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("name", sorted(set(onnx_networks.NETWORKS) - {"shared_weight"}))  # of no batch
def test_rounding_alone_is_not_told(name: str, runtime: str, tmp_path: Path) -> None:
    """Every network here is executed as its simulation is, with calibrated and with trained scales."""
    pytest.importorskip(runtime)
    network = quantized(name)
    assert notes(network, tmp_path / "model.onnx", runtime) == []
    assert notes(network, tmp_path / "model.onnx", runtime, learned=True) == []


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_file_that_computes_something_else_is_told_with_both_numbers(
    runtime: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has a tenth of each activation's scale: the note names the runtime, its dB and the simulation's."""
    pytest.importorskip(runtime)
    network, deploy = quantized("residual_cnn"), deploy_onnxruntime.deploy

    def deploy_wrongly(graph, sites, record, **options):
        for key, scales in record.items():
            record = {**record, key: replace(scales, scale_d=None if scales.scale_d is None else scales.scale_d / 10)}
        return deploy(graph, sites, record, **options)

    monkeypatch.setattr(deploy_onnxruntime, "deploy", deploy_wrongly)
    (note,) = notes(network, tmp_path / "model.onnx", runtime)
    name = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}[runtime]
    assert note.startswith(f"{name} computes something else than this file says: ")
    executed, simulated = (float(words.split()[-1]) for words in note.split(" dB")[:2])
    assert executed < 20
    assert simulated > executed + 10
    assert "skip_layers" in note


def test_without_examples_nothing_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that gives no examples gets the file alone."""
    network = quantized("residual_cnn")
    monkeypatch.setattr("qbench.quant.onnx.simulation_gap.note", None)
    deploy_model.write(network.graph, network.sites, network.record, tmp_path / "model.onnx", runtime="onnxruntime")
    assert (tmp_path / "model.onnx").stat().st_size > 0
