"""A dynamic variant that leaves nearly everything in float is labelled so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_records import fp32, int8

from qbench.compare import int8_share
from qbench.modes import MODES
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
        (int8("net/bf16/openvino/t1/b1", coverage=0.009), True),
        (int8("net/bf16/openvino/t1/b1", coverage=0.01), False),
        (int8("net/weight_only/openvino/t1/b1", coverage=0.001), True),
        (int8("net/weight_only/openvino/t1/b1", coverage=0.97), False),
    ],
)
def test_a_variant_with_next_to_nothing_of_its_mode_is_fp32_in_effect(record: Record, expected: bool) -> None:
    """The bound is a dynamic record's own, and today's default elsewhere; static and qat have failed already."""
    assert int8_share.is_fp32_in_effect(record) is expected


def test_the_words_name_the_format_and_the_bound() -> None:
    """And the key of the suite, where there is one."""
    records = [int8(f"net/{mode}/openvino/t1/b1", coverage=0.001) for mode in MODES[1:5]]
    said = [int8_share.explain_fp32_in_effect(record) for record in records]
    assert said == [
        "0.1 % of its multiply-accumulates in bf16, below 1 %",
        "0.1 % of its multiply-accumulates in fp16, below 1 %",
        "0.1 % of its multiply-accumulates with weights of 4 bits, below 1 %",
        "0.1 % of its multiply-accumulates in int8, below the 1 % of quantize.dynamic.min_coverage",
    ]


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
