"""Uniform int8 quantization of ONNX files in four steps, in AMCT's file formats.

    config     model -> config.json: which layers are quantized, and how
    quantize   model + config.json -> calibration.onnx + record.txt
    calibrate  calibration.onnx + data -> record.txt with every scale
    save       calibration.onnx + record.txt -> fake-quant and deploy models, .quant.json
    all        the four in one call
    accuracy   calibration.onnx + record.txt + your evaluator -> the fewest layers back to float that keep the score

``calibrate`` can be left to a loop of your own: ``CalibrationSession`` is an ONNX Runtime session that calibrates as
it runs. Every function raises a ``qbench.errors.QbenchError`` that says what to do.
"""

from __future__ import annotations

from typing import Any

from qbench.onnx import api
from qbench.onnx.api import *  # noqa: F403  # its public names are the package's

__all__ = ["CalibrationSession"]  # noqa: F405  # by __getattr__
__all__ += api.__all__


def __getattr__(name: str) -> Any:
    """``CalibrationSession``, which imports ONNX Runtime, on first use."""
    if name == "CalibrationSession":
        from qbench.quant.onnx.calibration.session import CalibrationSession

        return CalibrationSession
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
