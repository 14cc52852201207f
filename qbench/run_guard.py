"""A run's third stage: doubts about the data itself, which no comparison of int8 with fp32 can raise."""

from __future__ import annotations

from qbench.data import Data
from qbench.record import Accuracy
from qbench.run_state import RunState


def doubt_scores(state: RunState) -> None:
    """Notes each network whose fp32 is right no oftener than guessing is: images that were not scaled, channels in
    another order and labels of another numbering all pass for data, and int8 agrees with fp32 on them."""
    if state.data is None:
        return
    said: set[str] = set()
    for one in state.plan.cases:
        name, accuracy = one.case.variant.model.name, state.accuracy.get(one.case.id)
        if one.baseline is None and accuracy is not None and name not in said:
            if (words := doubt(accuracy, state.data)) is not None:
                state.progress.note(f"{name}: {words}")
            said.add(name)


def doubt(accuracy: Accuracy, data: Data) -> str | None:
    """Why an fp32 score cannot be of the network and the data as they were meant; None where it can."""
    if accuracy.metric != "top1" or not data.classes or accuracy.low is None or accuracy.low > 1 / data.classes:
        return None
    return (
        f"fp32 is right on {accuracy.value:.1%} of {accuracy.n:,} examples, which {data.classes} classes give by "
        f"guessing, too; the inputs reach it {_reach(data)}: is that what it was trained on (scale, mean and std, "
        "order of the channels), and do the labels count as its outputs do?"
    ).replace("%", " %")


def _reach(data: Data) -> str:
    """The values of a few examples, as they are and as they come."""
    inputs = data.evaluation(0, min(data.evaluation_count, 64))
    raw = data.evaluation_examples().inputs
    told = []
    for array, stored in zip(inputs, raw, strict=True):
        changed = data.preprocessing.to_float and (data.preprocessing.scale, data.preprocessing.std) != (1.0, (1.0,))
        as_they_are = stored.dtype.kind in "iu" and not changed
        whole = f" ({stored.dtype}, not scaled)" if as_they_are else ""
        told.append(f"from {array.min():.4g} to {array.max():.4g}{whole}")
    return " and ".join(told)
