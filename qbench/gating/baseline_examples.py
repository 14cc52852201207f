"""What a baseline keeps of each example of each int8 case: one bit for right or wrong, else a number; a file to commit.

``<suite>.examples.json`` holds the examples' keys once and a line for each case, values as base64 of packed bits
(``bits``), little-endian whole numbers (``i4``) or floats (``f4``), the facts of boxes compressed (``deflated``). 1,000
examples take 8 to 16 kB and 170 bytes a case, 500 scenes with 100 boxes each 500 kB a case. The same run always gives
the same bytes.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from qbench.compare import compare
from qbench.errors import UsageError
from qbench.files import regular_file
from qbench.foreign_text import join_lines
from qbench.record.example_scores import KEY_BYTES, ExampleScores
from qbench.record.stored_run import StoredRun

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

SCHEMA = 1
_LEVEL = 9  # of the compression
_Form = Literal["bits", "i4", "f4"]
# A gate reads what a pull request brings: more examples than anybody has are a slip or an attack.
_MOST = 100_000_000
_Count = Annotated[int, Field(ge=0, le=_MOST)]


class _Case(BaseModel):
    """The values of one case: ``shape`` begins with the number of examples; ``facts`` as in ``ExampleScores``."""

    model_config = ConfigDict(strict=True)

    form: _Form
    shape: list[_Count]
    facts: bool
    values: str
    deflated: bool = False


class _File(BaseModel):
    """The whole file: ``n`` examples with their keys, and the cases, all of them on these examples."""

    model_config = ConfigDict(strict=True)

    schema_: Literal[1] = Field(alias="schema")
    n: Annotated[int, Field(ge=1, le=_MOST)]
    contents: str | None
    ids: str | None
    cases: dict[str, _Case]


def to_text(run: StoredRun) -> str | None:
    """What is to be kept of a run's int8 cases; None where no predictions are stored."""
    cases = {}
    for record in sorted(run.records, key=lambda record: record.case.id):
        if record.status == "ok" and record.case.mode != "fp32":
            scores = run.examples(record, compare.like_for_like(record, run.records))
            if scores is not None and np.isfinite(scores.values).all():
                cases[record.case.id] = scores
    if not cases:
        return None
    first = next(iter(cases.values()))
    same = {case: scores for case, scores in cases.items() if _same_keys(scores, first)}
    content = {
        "schema": SCHEMA,
        "n": len(first.values),
        "contents": _encode_keys(first.contents),
        "ids": _encode_keys(first.ids),
        "cases": {case: _encode_case(scores) for case, scores in same.items()},
    }
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def read(file: Path) -> dict[str, ExampleScores]:
    """What ``to_text`` said, by case; empty where there is no such file, as beside baselines of qbench before it had
    one. Raises ``UsageError`` where it is damaged."""
    try:
        text = regular_file.read_text(file)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: cannot be read: {error}") from error
    try:
        content = _File.model_validate_json(text)
        return {name: _decode_case(content, case) for name, case in content.cases.items()}
    except ValidationError as error:
        first = error.errors()[0]
        place = join_lines(".".join(str(part) for part in first["loc"]))  # empty where the whole text is at fault
        where = f"{file}: {place}" if place else str(file)
        raise UsageError(f"{where}: {first['msg']}; {AGAIN}") from error
    except (ValueError, binascii.Error, zlib.error) as error:
        raise UsageError(f"{file}: {error}; {AGAIN}") from error


AGAIN = "take it from where it was committed, or write the baseline again with `qbench baseline RUN`"


def find_contradictions(cases: Mapping[str, ExampleScores], scores: Mapping[str, float]) -> dict[str, str]:
    """By case, why its values are not those of its record: the files that lie beside each other are of two runs, as
    after a merge."""
    contradictions = {}
    for case, examples in cases.items():
        if case not in scores:
            contradictions[case] = "its examples have no record in the baseline beside them"
        elif not examples.facts and not math.isclose(
            mean := float(examples.values.mean()), scores[case], rel_tol=1e-5, abs_tol=1e-6
        ):
            contradictions[case] = f"its examples score {mean:g}, its record in the baseline {scores[case]:g}"
    return contradictions


def _same_keys(scores: ExampleScores, first: ExampleScores) -> bool:
    pairs = ((scores.contents, first.contents), (scores.ids, first.ids))
    return len(scores.values) == len(first.values) and all(
        (a is None) == (b is None) and (a is None or bool((a == b).all())) for a, b in pairs
    )


def _encode_keys(keys: Array | None) -> str | None:
    if keys is None:
        return None
    return _base64(np.ascontiguousarray(keys.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :KEY_BYTES]).tobytes())


def _decode_keys(text: str | None, n: int, name: str) -> Array | None:
    if text is None:
        return None
    raw = np.frombuffer(base64.b64decode(text, validate=True), dtype=np.uint8)
    if raw.size != n * KEY_BYTES:
        raise ValueError(f"{name}: {raw.size} bytes, expected {n * KEY_BYTES} for {n} examples")
    padded = np.zeros((n, 8), dtype=np.uint8)
    padded[:, :KEY_BYTES] = raw.reshape(n, KEY_BYTES)
    return padded.view("<u8").ravel().astype(np.uint64)


def _encode_case(scores: ExampleScores) -> dict[str, Any]:
    values = scores.values
    form: _Form = "f4"
    if not scores.facts and np.isin(values, (0, 1)).all():
        form = "bits"
    elif values.dtype.kind in "biu" and np.abs(values).max(initial=0) < 2**31:
        form = "i4"
    raw = np.packbits(values.astype(bool)) if form == "bits" else values.astype(f"<{form}")
    described = {"form": form, "shape": list(values.shape), "facts": scores.facts}
    if values.ndim < 3:
        return {**described, "values": _base64(raw.tobytes())}
    return {**described, "deflated": True, "values": _base64(zlib.compress(raw.tobytes(), _LEVEL))}


def _decode_case(content: _File, case: _Case) -> ExampleScores:
    if not case.shape or case.shape[0] != content.n:
        raise ValueError(f"a case has the shape {case.shape}, expected {content.n} examples")
    raw, count = base64.b64decode(case.values, validate=True), math.prod(case.shape)
    expected = -(-count // 8) if case.form == "bits" else 4 * count
    if count > _MOST:
        raise ValueError(f"a case has the shape {case.shape}, more numbers than anybody has")
    if case.deflated:  # of a small file no more is unpacked than its shape says
        raw = zlib.decompressobj().decompress(raw, expected + 1)
    if len(raw) != expected:
        raise ValueError(f"a case has {len(raw)} bytes of values, expected {expected} for the shape {case.shape}")
    if case.form == "bits":
        values = np.unpackbits(np.frombuffer(raw, dtype=np.uint8))[:count].astype(np.float64)
    else:
        values = np.frombuffer(raw, dtype=f"<{case.form}").astype(np.int64 if case.form == "i4" else np.float64)
    if not np.isfinite(values).all():
        raise ValueError("a value is NaN or infinite")
    return ExampleScores(
        values=values.reshape(case.shape),
        facts=case.facts,
        contents=_decode_keys(content.contents, content.n, "contents"),
        ids=_decode_keys(content.ids, content.n, "ids"),
    )


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")
