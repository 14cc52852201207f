"""Whether a variant is what it is called in more than name: a dynamic one may leave nearly all of its work in float,
and so may one of 16-bit floats or of weights of few bits; pure.

A static or qat variant below its ``min_coverage`` fails when it is built. These others are built, measured and shown,
and are no candidates: what they gain or keep is fp32's.
"""

from __future__ import annotations

from qbench import formatting
from qbench.quant.recipe import DYNAMIC_MIN_COVERAGE
from qbench.record.schema import Record

FP32_IN_EFFECT = "practically fp32"


def explain_fp32_in_effect(record: Record) -> str | None:
    """Why a case is practically fp32: ``0.1 % of its multiply-accumulates in int8, below the 1 % of
    quantize.dynamic.min_coverage``; None where it is not, is static or qat, or its share is not known.

    A record without ``recipe.min_coverage``, as older runs have, is judged by today's default.
    """
    coverage, mode = record.artifact.coverage if record.artifact else None, record.case.mode
    share = None if coverage is None else coverage.share_of(mode)
    if mode in ("static", "qat") or coverage is None or share is None:
        return None
    least = least_coverage(record) if mode == "dynamic" else DYNAMIC_MIN_COVERAGE
    if share >= least:
        return None
    format_ = coverage.describe_format(mode).partition(" (")[0]
    bound = f"{least * 100:g} % of quantize.dynamic.min_coverage" if mode == "dynamic" else f"{least * 100:g} %"
    below = f"below the {bound}" if mode == "dynamic" else f"below {bound}"
    return f"{formatting.share(share)} of its multiply-accumulates {format_}, {below}"


def is_fp32_in_effect(record: Record) -> bool:
    """Whether a variant has so little of its work in what its mode names."""
    return explain_fp32_in_effect(record) is not None


def least_coverage(record: Record) -> float:
    """The share of work in int8 from which a dynamic variant is one."""
    least = (record.recipe or {}).get("min_coverage")
    return float(least) if isinstance(least, int | float) else DYNAMIC_MIN_COVERAGE
