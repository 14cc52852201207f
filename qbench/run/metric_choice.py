"""Which metric scores a run: named by the suite, else decided by whether the data has labels."""

from __future__ import annotations

from collections.abc import Iterable

from qbench import user_code
from qbench.data import Data
from qbench.metrics.spec import MetricSpec
from qbench.record.schema import Record
from qbench.run.context import RunContext
from qbench.suite import Suite
from qbench.suite.accuracy import DEFAULTS, LEAST_OF_ANY, OF_ANY_OUTPUTS


def recall_metric(suite: Suite, records: Iterable[Record]) -> MetricSpec:
    """The metric of the part of the run that these records come from; before any, that of data with labels."""
    metrics = {record.accuracy.metric for record in records if record.accuracy is not None}
    accuracy = suite.gate.accuracy
    if metrics == {OF_ANY_OUTPUTS} and not accuracy.model_fields_set:
        return MetricSpec(name=OF_ANY_OUTPUTS)
    return suite.gate.accuracy.choose_metric(base=suite.base, labelled=metrics != {DEFAULTS[1]})


def choose_metric(context: RunContext, data: Data) -> tuple[MetricSpec, MetricSpec | None]:
    """The metric, now that the data is known, and the one that takes its place where it cannot judge a network: with
    neither labels nor a word of accuracy in the suite.

    Raises ``UsageError`` where the file of the user's own score changed since this run was started.
    """
    accuracy, labelled = context.suite.gate.accuracy, data.evaluation_labels() is not None
    metric = accuracy.choose_metric(base=context.suite.base, labelled=labelled)
    if metric.function is not None:
        file = metric.function.file
        context.directory.require_same_inputs({f"the score in {file.name}": user_code.digest(file)})
    is_open = not labelled and not accuracy.model_fields_set
    return metric, MetricSpec(name=OF_ANY_OUTPUTS) if is_open else None


def settle_metric(
    context: RunContext, data: Data, metric: MetricSpec, otherwise: MetricSpec | None, misfits: Iterable[str]
) -> MetricSpec:
    """The metric of the run, now that the networks are known: ``otherwise`` where there are ``misfits``, the reasons
    why ``metric`` cannot judge some. A warning, and the run's ``run.json``, say where data and networks decided."""
    if data.evaluation_labels() is not None or context.suite.gate.accuracy.is_named:
        return metric
    reason = next(iter(misfits), None)
    if otherwise is not None and reason is not None:
        context.warn(
            f"the data has no labels, and the outputs are no scores of classes ({reason}): variants are judged by "
            f"{otherwise.name}, the signal over the noise against fp32's outputs, which must be at least "
            f"{LEAST_OF_ANY:g} dB; `gate: {{accuracy: {{metric: ...}}}}` names another"
        )
        metric = otherwise
    else:
        context.warn(
            f"the data has no labels: variants are judged by {metric.name}, the share of examples for which int8 "
            "chooses the class that fp32 chooses; `gate: {accuracy: {metric: ...}}` names another"
        )
    context.directory.write_metric(metric)
    return metric
