"""int8 of a network built by hand, as each tool's own documentation shows it; what qbench's variants are held against.

- ONNX Runtime: ``quant_pre_process``, then ``quantize_static`` to QDQ, U8S8, per channel, min/max.
- OpenVINO: ``nncf.quantize`` with its default preset, then ``compile_model`` for latency on one thread.
- FX: ``prepare_fx`` and ``convert_fx`` with onednn's default mapping, traced and frozen.
"""

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from qbench import registry
from qbench.measure.worker import LocalWorker, WorkerSpec


class OpenVinoRunner:
    """A compiled OpenVINO model on one stream and one thread."""

    def __init__(self, file: Path, threads: int) -> None:
        import openvino

        core = openvino.Core()
        hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
        self._model = core.compile_model(str(file), "CPU", hints)
        self._request = self._model.create_infer_request()
        self._threads = int(self._model.get_property("INFERENCE_NUM_THREADS"))

    def context(self):
        return contextlib.nullcontext()

    def prepare(self, inputs):
        return list(inputs)

    def __call__(self, prepared):
        return self._request.infer(prepared)

    def outputs(self, result):
        return result[0]

    def observed(self):
        return {"threads": self._threads}


class OpenVino:
    """Just enough of a backend for ``LocalWorker``."""

    modules = ("openvino",)

    def load(self, file: Path, *, threads: int) -> OpenVinoRunner:
        return OpenVinoRunner(file, threads)


BACKEND = OpenVino()


class HandArm(LocalWorker):
    """An arm that knows OpenVINO too."""

    def __init__(self, spec: WorkerSpec) -> None:
        registry.BUILT_IN["backend"].setdefault("openvino", "hand_built:BACKEND")
        super().__init__(spec)


def onnxruntime_int8(
    fp32: Path, file: Path, images: np.ndarray, *, form: str = "QDQ", activations: str = "QUInt8"
) -> None:
    """ONNX Runtime's quantizer; ``form``: QDQ or QOperator, ``activations``: QUInt8 or QInt8."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self._rest = iter(images)

        def get_next(self):
            image = next(self._rest, None)
            return None if image is None else {"input": image[None]}

    prepared = file.absolute().with_name("prepared.onnx")
    with contextlib.chdir(file.parent):  # where it fails it leaves files in the folder that it runs in
        try:
            quant_pre_process(str(fp32.absolute()), str(prepared))
        except Exception as error:  # its own words: "Incomplete symbolic shape inference"; its documented way out
            if "shape inference" not in str(error):
                raise
            quant_pre_process(str(fp32.absolute()), str(prepared), skip_symbolic_shape=True)
    quantize_static(
        str(prepared),
        str(file),
        Reader(),
        quant_format=QuantFormat[form],
        per_channel=True,
        activation_type=QuantType[activations],
        weight_type=QuantType.QInt8,
    )


def onnxruntime_dynamic(fp32: Path, file: Path) -> None:
    """ONNX Runtime's dynamic quantizer, convolutions as well."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(str(fp32), str(file), per_channel=True, weight_type=QuantType.QInt8)


def openvino_int8(fp32: Path, file: Path, images: np.ndarray) -> None:
    """NNCF's post-training quantization."""
    import nncf
    import openvino

    model = openvino.Core().read_model(str(fp32))
    quantized = nncf.quantize(model, nncf.Dataset([image[None] for image in images]))
    openvino.save_model(quantized, str(file))


def fx_int8(module: Any, file: Path, images: np.ndarray) -> None:
    """torch's FX flow on onednn."""
    import torch

    torch.backends.quantized.engine = "onednn"
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        from torch.ao.quantization import get_default_qconfig_mapping
        from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

        batches = [torch.from_numpy(image[None]) for image in images]
        prepared = prepare_fx(module.eval(), get_default_qconfig_mapping("onednn"), (batches[0],))
        for batch in batches:
            prepared(batch)
        traced = torch.jit.freeze(torch.jit.trace(convert_fx(prepared), batches[0]))
        torch.jit.save(traced, str(file))


def onnx_file(module: Any, file: Path) -> None:
    """The fp32 network in ONNX."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(), (torch.zeros(1, 3, 224, 224),), str(file), dynamo=False, opset_version=17,
            input_names=["input"],
        )  # fmt: skip
