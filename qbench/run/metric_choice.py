"""Which metric scores a run: named by the suite, else decided by whether the data has labels."""

from __future__ import annotations

from collections.abc import Iterable

from qbench import user_code
from qbench.data import Data
from qbench.metrics.spec import MetricSpec
from qbench.record.schema import Record
from qbench.run.context import RunContext
from qbench.suite import Suite
from qbench.suite.accuracy import DEFAULTS


def recall_metric(suite: Suite, records: Iterable[Record]) -> MetricSpec:
    """The metric of the part of the run that these records come from; before any, that of data with labels."""
    metrics = {record.accuracy.metric for record in records if record.accuracy is not None}
    return suite.gate.accuracy.choose_metric(base=suite.base, labelled=metrics != {DEFAULTS[1]})


def choose_metric(context: RunContext, data: Data) -> MetricSpec:
    """The metric, now that the data is known; a note, and the run's ``run.json``, say where the data decided.

    Raises ``UsageError`` where the file of the user's own score changed since this run was started.
    """
    accuracy, labelled = context.suite.gate.accuracy, data.evaluation_labels() is not None
    metric = accuracy.choose_metric(base=context.suite.base, labelled=labelled)
    if not labelled and not accuracy.is_named:
        context.warn(
            f"the data has no labels: variants are judged by {metric.name}, the share of examples for which int8 "
            "chooses the class that fp32 chooses; `gate: {accuracy: {metric: ...}}` names another"
        )
        context.directory.write_metric(metric)
    if metric.function is not None:
        file = metric.function.file
        context.directory.require_same_inputs({f"the score in {file.name}": user_code.digest(file)})
    return metric
