"""A dynamic variant that leaves nearly everything in float is labelled so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_records import fp32, int8

from qbench.compare import int8_share
from qbench.record.schema import Record

DYNAMIC = "net/dynamic/onednn/t1/b1"


def dynamic(coverage: float, **recipe: float | None) -> Record:
    """A dynamic case with that share of its work in int8."""
    return int8(DYNAMIC, coverage=coverage, recipe={"flow": "eager", **recipe})


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (dynamic(0.001), True),
        (dynamic(0.01), False),
        (dynamic(0.001, min_coverage=0.0), False),
        (dynamic(0.2, min_coverage=0.25), True),
        (dynamic(0.2, min_coverage=None), False),
        (int8(DYNAMIC, coverage=0.001, recipe=None), True),
        (int8(coverage=0.001), False),
        (fp32(), False),
    ],
)
def test_only_a_dynamic_variant_below_its_least_coverage_is_fp32_in_effect(record: Record, expected: bool) -> None:
    """The bound is the record's own, and today's default where an older record has none."""
    assert int8_share.is_fp32_in_effect(record) is expected


def test_a_share_that_is_not_known_is_not_judged() -> None:
    """Null is not 0: nothing shows that it is less."""
    record = dynamic(0.001)
    assert record.artifact is not None
    assert record.artifact.coverage is not None
    unknown = replace(record.artifact.coverage, macs_int8=None, unknown="an operator of your own")
    assert not int8_share.is_fp32_in_effect(replace(record, artifact=replace(record.artifact, coverage=unknown)))


def test_the_reason_names_the_share_and_the_bound() -> None:
    """A reader sees how little it is and which key says how much it takes."""
    assert int8_share.explain_fp32_in_effect(dynamic(0.001)) == (
        "0.1 % of its multiply-accumulates in int8, below the 1 % of quantize.dynamic.min_coverage"
    )
