"""A record as a line of a committed baseline: what a later run is held against and no more, in few digits, so that a
change of a baseline can be read in a pull request; pure.

Times and ratios have 4 significant digits, which their limits do not bear out any more; scores and shares 6, so that
one example of a million still shows. What is as by default is left out. The line is a record like any other.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any

from qbench.record.schema import Record

# Parts of a record that no rule and no comparison of a baseline reads.
_LEFT_OUT: dict[str, Any] = {
    "reference": False,
    "recipe": None,
    "observed": None,
    "speedup_fastest": None,
    "sequential": None,
    "interference": None,
    "throughput_per_second": None,
    "roofline": None,
    "samples": None,
    "predictions": None,
    "layers": None,
    "started": None,
    "elapsed_seconds": {},
}
_LEFT_OUT_OF_ACCURACY: dict[str, Any] = {
    "inputs": None,
    "calibration": None,
    "other_runtime": None,
    "twin": None,
    "interval": None,
}
_DIGITS, _DIGITS_OF_SCORES = 4, 6
_SCORES = ("accuracy", "coverage")


def strip(record: Record) -> Record:
    """The record with what a baseline keeps of it."""
    bare = replace(record, **_LEFT_OUT)
    if bare.accuracy is not None:
        bare = replace(bare, accuracy=replace(bare.accuracy, **_LEFT_OUT_OF_ACCURACY))
    if bare.artifact is not None:
        bare = replace(bare, artifact=replace(bare.artifact, cached=None, rewrites=(), rewrite_difference=None))
    return bare


def to_line(record: Record) -> str:
    """One line of strict JSON with sorted keys, without the newline."""
    return json.dumps(_list_changed(strip(record)), ensure_ascii=False, allow_nan=False, sort_keys=True)


def _list_changed(value: Any, digits: int = _DIGITS) -> Any:
    """The value as JSON has it, without the fields that are as by default; a schema number always stays."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, tuple):
        return [_list_changed(item, digits) for item in value]
    if not is_dataclass(value):
        return value
    changed = {}
    for part in fields(value):
        current = getattr(value, part.name)
        default = part.default_factory() if part.default_factory is not MISSING else part.default
        if part.name == "schema" or default is MISSING or current != default:
            changed[part.name] = _list_changed(current, _DIGITS_OF_SCORES if part.name in _SCORES else digits)
    return changed
