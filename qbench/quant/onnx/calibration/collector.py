"""The values of the activations, batch by batch -> their calibrators -> scales and offsets."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

from numpy.typing import NDArray

from qbench import registry
from qbench.errors import BuildError
from qbench.machine import fingerprint
from qbench.quant.affine import HIGH, LOW
from qbench.quant.calibrators.base import Calibrator
from qbench.quant.onnx.sites import ActivationSite, Sites
from qbench.quant.scale_rules import LEAST_SCALE, QParams

Array = NDArray[Any]


class Collector:
    """One calibrator for each activation site. ``add`` hands them a batch and returns at once; the values are freed
    one by one as their calibrators have seen them, and at most one batch is under way, so that memory stays bounded.
    Each calibrator sees the batches in order: the result does not depend on the number of threads.

    A context manager: leaving it ends its threads.
    """

    def __init__(self, sites: Sites, *, threads: int = 0) -> None:
        self.tensors = tuple(dict.fromkeys(site.tensor for site in sites.activations))
        algorithms = {site.params.algorithm for site in sites.activations}
        kinds = {name: registry.load("calibrator", name) for name in algorithms}
        self._readers = [(site, _calibrator(kinds[site.params.algorithm], site)) for site in sites.activations]
        self._pool: Executor = ThreadPoolExecutor(
            threads or len(fingerprint.allowed_cores()), thread_name_prefix="calibrator"
        )
        self._running: list[tuple[int, ActivationSite, Future[None]]] = []

    def __enter__(self) -> Collector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends its threads; what waits is dropped."""
        self._pool.shutdown(cancel_futures=True)

    def add(self, batch: int, values: dict[str, Array]) -> None:
        """Takes the values of some of ``tensors`` in batch number ``batch`` (from 1), and takes them out of ``values``.
        Raises ``BuildError`` for the batch before, where that held NaN or inf."""
        self.wait()
        readers = [(site, calibrator) for site, calibrator in self._readers if site.tensor in values]
        last = {site.tensor: position for position, (site, _) in enumerate(readers)}
        arrays = [
            values.pop(site.tensor) if last[site.tensor] == position else values[site.tensor]
            for position, (site, _) in enumerate(readers)
        ]
        for position, (site, calibrator) in enumerate(readers):
            self._running.append((batch, site, self._pool.submit(_feed, calibrator, arrays, position)))

    def wait(self) -> None:
        """Until the calibrators have seen all that was added; raises ``BuildError`` with the first layer in the order
        of the graph whose activation is NaN or inf."""
        running, self._running = self._running, []
        for batch, site, future in running:
            try:
                future.result()
            except ValueError as error:
                raise BuildError(
                    f"{_reader(site)}: its input {site.tensor} in batch {batch}: {error}; check the calibration data "
                    "and whether the fp32 model overflows on it, or skip this layer"
                ) from error

    def qparams(self) -> dict[str, QParams]:
        """Scale and offset by record key. Raises ``BuildError`` for a range that has none."""
        self.wait()
        futures = [(site, self._pool.submit(calibrator.qparams)) for site, calibrator in self._readers]
        params_of = {}
        for site, future in futures:
            try:
                params = future.result()
            except ValueError as error:
                raise BuildError(f"{_reader(site)}: its input {site.tensor}: {error}") from error
            params_of.update(dict.fromkeys(site.keys, params))
        return params_of

    def silent(self, qparams: Mapping[str, QParams]) -> dict[str, float]:
        """The readers whose activation was so small in every batch that all of it is quantized to zero (its scale, in
        ``qparams``, is 1), each with the largest absolute value: 0 where nothing else was seen."""
        nothing = QParams(scale=1.0, zero_point=0)
        suspects = [
            (_reader(site), calibrator) for site, calibrator in self._readers if qparams[_reader(site)] == nothing
        ]
        reaches = {name: max(map(abs, calibrator.range())) for name, calibrator in suspects}
        return {name: reach for name, reach in reaches.items() if reach < LEAST_SCALE * (HIGH - LOW)}


def _calibrator(kind: type[Calibrator], site: ActivationSite) -> Calibrator:
    """A new calibrator as the site's parameters ask for it."""
    return kind(asymmetric=site.params.asymmetric, **site.params.options)


def _feed(calibrator: Calibrator, values: list[Any], position: int) -> None:
    """Hands over one value and forgets it."""
    value, values[position] = values[position], None
    calibrator.add(value)


def _reader(site: ActivationSite) -> str:
    return next(iter(site.keys))
