"""The keys of a record."""

from __future__ import annotations

import json

from qbench.record import jsonl, schema
from qbench.record.schema import CaseKey, Record

STATIC = CaseKey(id="m/static/x86/t1/b1", model="m", mode="static", backend="x86", threads=1, batch_size=1)


def test_the_keys_are_the_contract():
    """design.md section 5, by name and place; what is unknown is null."""
    data = json.loads(jsonl.to_line(Record(case=STATIC, status="ok")))
    assert list(data)[:2] == ["case", "status"]
    assert data["schema"] == schema.SCHEMA == 1
    assert data["case"] == {
        "id": "m/static/x86/t1/b1",
        "model": "m",
        "mode": "static",
        "backend": "x86",
        "threads": 1,
        "recipe": "default",
        "batch_size": 1,
    }
    unknown = {"stage", "reason", "recipe", "artifact", "observed", "latency", "speedup", "throughput_per_second"}
    unknown |= {"cold_start", "memory", "accuracy", "roofline", "samples", "predictions", "started"}
    assert all(data[name] is None for name in unknown)


def test_every_leaf_has_a_dotted_name():
    """Tables see one flat row, with null where nothing is known."""
    row = dict(schema.flatten(Record(case=STATIC, status="ok", throughput_per_second=2.0)))
    assert row["case.id"] == "m/static/x86/t1/b1"
    assert row["throughput_per_second"] == 2.0
    assert row["latency"] is None
