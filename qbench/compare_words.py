"""A comparison of two runs for a program; its table for a reader is in ``report.text``. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from qbench.compare import Delta

SCHEMA = 1


def as_json(base: str, contender: str, deltas: Sequence[Delta], *, incomparable: str | None) -> str:
    """Every delta with both records, numbers raw; ``incomparable`` is the field in which the machines differ."""
    data = {
        "schema": SCHEMA,
        "base": base,
        "contender": contender,
        "incomparable": incomparable,
        "deltas": [asdict(delta) for delta in deltas],
    }
    return json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False) + "\n"
