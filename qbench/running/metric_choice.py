"""Which metric scores a run: named by the suite, else decided by whether the data has labels. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from qbench.metrics.spec import MetricSpec
from qbench.suite.accuracy import LEAST_OF_ANY, OF_ANY_OUTPUTS, AccuracyGate


@dataclass(frozen=True, kw_only=True)
class MetricChoice:
    """``metric`` as far as the data decides, and the one that takes its place where it cannot judge a network: with
    neither labels nor a word of accuracy in the suite. ``guessed``: the suite names none, and data has no labels."""

    metric: MetricSpec
    otherwise: MetricSpec | None
    guessed: bool


def choose_metric(accuracy: AccuracyGate, base: Path, *, labelled: bool) -> MetricChoice:
    """The metric, now that the data is known."""
    is_open = not labelled and not accuracy.model_fields_set
    return MetricChoice(
        metric=accuracy.choose_metric(base=base, labelled=labelled),
        otherwise=MetricSpec(name=OF_ANY_OUTPUTS) if is_open else None,
        guessed=not labelled and not accuracy.is_named,
    )


def settle_metric(choice: MetricChoice, misfits: Iterable[str]) -> tuple[MetricSpec, str | None]:
    """The metric of the run, now that the networks are known: another where there are ``misfits``, the reasons why it
    cannot judge some. With it what to say where data and networks decided."""
    if not choice.guessed:
        return choice.metric, None
    reason = next(iter(misfits), None)
    if choice.otherwise is not None and reason is not None:
        return choice.otherwise, (
            f"the data has no labels, and the outputs are no scores of classes ({reason}): variants are judged by "
            f"{choice.otherwise.name}, the signal over the noise against fp32's outputs, which must be at least "
            f"{LEAST_OF_ANY:g} dB; `gate: {{accuracy: {{metric: ...}}}}` names another"
        )
    return choice.metric, (
        f"the data has no labels: variants are judged by {choice.metric.name}, the share of examples for which int8 "
        "chooses the class that fp32 chooses; `gate: {accuracy: {metric: ...}}` names another"
    )
