"""A calibration model in the user's own ONNX Runtime loop: the session that calibrates as it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime
from numpy.typing import NDArray

from qbench.errors import UsageError
from qbench.quant.onnx.calibration import complete_scales
from qbench.quant.onnx.calibration.batches import checked, too_few
from qbench.quant.onnx.calibration.collector import Collector
from qbench.quant.onnx.formats import calibration_file
from qbench.quant.onnx.formats import scale_record as record_file
from qbench.quant.onnx.weights.weight_steps import waiting

Array = NDArray[Any]


class CalibrationSession(onnxruntime.InferenceSession):  # type: ignore[misc]  # onnxruntime ships no types
    """An ``onnxruntime.InferenceSession`` whose ``run`` gives the model's own outputs, as if nothing else went on,
    shows the activations of its first ``batch_num`` calls to the calibrators, and then writes ``record``, whole.

    ``record`` is read at the start where it exists (the scales of the weights). As a context manager it raises
    ``DataError`` at the end where there were fewer than ``batch_num`` calls. Raises what ``qbench.onnx.calibrate``
    raises, and ``UsageError`` where the configuration needs several passes over the data (balance, AdaRound, bias
    correction): that makes those.
    """

    def __init__(
        self,
        file: str | Path,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        *,
        record: str | Path,
        **others: Any,
    ) -> None:
        self._calibrated = calibration_file.read(Path(file))
        if steps := waiting(self._calibrated):
            raise UsageError(f"{file}: {' and '.join(steps)} change weights; use qbench.onnx.calibrate")
        self._record = Path(record)
        scales_so_far = calibration_file.read_scales(self._record, self._calibrated)
        self._scales_so_far = complete_scales.with_weights(scales_so_far, self._calibrated)
        self.batches_seen = 0
        providers = ["CPUExecutionProvider"] if providers is None else providers
        super().__init__(str(file), sess_options, providers=providers, **others)
        self._collector: Collector | None = Collector(self._calibrated.sites)

    @property
    def batch_num(self) -> int:
        """How many calls calibrate."""
        return self._calibrated.config.batch_num

    def get_outputs(self) -> list[Any]:
        """The model's own outputs, without the activations."""
        return list(super().get_outputs()[: len(self._calibrated.outputs)])

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None) -> Any:
        """The named outputs (None: all of the model's own); the first ``batch_num`` calls calibrate."""
        names = list(output_names or self._calibrated.outputs)
        if self._collector is None:
            return super().run(names, input_feed, run_options)
        number = self.batches_seen + 1
        feed = checked(self.get_inputs(), input_feed, number)
        others = [name for name in self._collector.tensors if name not in {*names, *feed}]
        values = super().run([*names, *others], feed, run_options)
        self._observe(number, feed | dict(zip([*names, *others], values, strict=True)))
        return values[: len(names)]

    def _observe(self, number: int, values: dict[str, Array]) -> None:
        """Calibrates one call and waits for it, since the caller may change its arrays afterwards."""
        assert self._collector is not None
        self._collector.add(number, values)
        self._collector.wait()
        self.batches_seen = number
        if number == self.batch_num:
            record = complete_scales.complete(self._scales_so_far, self._collector.qparams(), self._calibrated)
            record_file.write(record, self._record)
            self._collector.close()
            self._collector = None

    def __enter__(self) -> CalibrationSession:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._collector is not None:
            self._collector.close()
            if kind is None:
                raise too_few(self.batches_seen, self.batch_num)
