"""Each file of predictions of the int8 cases of a run, once, beside that of the fp32 it is compared with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from qbench.compare import compare
from qbench.decide.cases import is_contender, variant
from qbench.record.schema import Record
from qbench.record.stored_run import StoredRun


@dataclass(frozen=True, kw_only=True)
class Int8Predictions:
    """The first case with a file of predictions, and its fp32's; ``name`` and ``of_fp32`` are what a reader calls them,
    with the model's name where the run has several."""

    record: Record
    fp32: Record
    name: str
    of_fp32: str


def list_int8_predictions(run: StoredRun) -> Iterator[Int8Predictions]:
    """In the order of the records; without those of which a file is missing on either side."""
    told = set[str]()
    several = len({record.case.model for record in run.records}) > 1
    for record in run.records:
        fp32 = compare.like_for_like(record, run.records)
        if not is_contender(record) or fp32 is None or record.predictions is None or fp32.predictions is None:
            continue
        if record.predictions in told:
            continue
        told.add(record.predictions)
        name, of_fp32 = (f"{each.case.model} {variant(each)}" if several else variant(each) for each in (record, fp32))
        yield Int8Predictions(record=record, fp32=fp32, name=name, of_fp32=of_fp32)
