"""Which metric scores a run: one that is registered, or a function of the user's."""

from __future__ import annotations

from dataclasses import dataclass

from qbench import registry
from qbench.metrics.base import Metric
from qbench.metrics.user_metric import UserFunction, UserMetric


@dataclass(frozen=True, kw_only=True)
class MetricSpec:
    """A metric by the ``name`` that records give it; ``function`` is set where it is the user's own. It travels between
    processes; the user's file is imported only where the metric is called."""

    name: str
    function: UserFunction | None = None

    def load(self) -> Metric:
        """The metric itself; raises ``UnknownName``."""
        if self.function is not None:
            return UserMetric(self.name, self.function)
        metric: Metric = registry.load("metric", self.name)
        return metric
