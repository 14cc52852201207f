"""Whether a variant is int8 in more than name: a dynamic one may leave nearly all of its work in float; pure.

A static or qat variant below its ``min_coverage`` fails when it is built. A dynamic one is built, measured and shown,
and is no candidate: what it gains or keeps is fp32's.
"""

from __future__ import annotations

from qbench import formatting
from qbench.quant.recipe import DYNAMIC_MIN_COVERAGE
from qbench.record.schema import Record

FP32_IN_EFFECT = "practically fp32"


def explain_fp32_in_effect(record: Record) -> str | None:
    """Why a case is practically fp32: ``0.1 % of its multiply-accumulates in int8, below the 1 % of
    quantize.dynamic.min_coverage``; None where it is int8, is no dynamic variant, or its share is not known.

    A record without ``recipe.min_coverage``, as older runs have, is judged by today's default.
    """
    coverage = record.artifact.coverage if record.artifact else None
    if record.case.mode != "dynamic" or coverage is None or coverage.macs_int8 is None:
        return None
    least = least_coverage(record)
    if coverage.macs_int8 >= least:
        return None
    share = formatting.share(coverage.macs_int8)
    return f"{share} of its multiply-accumulates in int8, below the {least * 100:g} % of quantize.dynamic.min_coverage"


def is_fp32_in_effect(record: Record) -> bool:
    """Whether a dynamic variant has less of its work in int8 than its ``min_coverage``."""
    return explain_fp32_in_effect(record) is not None


def least_coverage(record: Record) -> float:
    """The share of work in int8 from which a dynamic variant is one."""
    least = (record.recipe or {}).get("min_coverage")
    return float(least) if isinstance(least, int | float) else DYNAMIC_MIN_COVERAGE
