"""The keys of a record."""

from __future__ import annotations

import json

import pytest

from qbench.record import jsonl, schema
from qbench.record.schema import CaseKey, Coverage, Record

STATIC = CaseKey(id="m/static/x86/t1/b1", model="m", mode="static", backend="x86", threads=1, batch_size=1)


def test_the_keys_are_the_contract():
    """Other tools read the keys by name and place; what is unknown is null."""
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
        "host": "native",
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


@pytest.mark.parametrize(
    ("case", "model", "host"),
    [
        ("m/static@eager/x86/t1/b8", "m", "native"),
        ("a/b/static/x86/t1/b8/avx2", "a/b", "avx2"),
        ("m/fp32/torch/t2/b1/qemu:Haswell", "m", "qemu:Haswell"),
    ],
)
def test_an_id_says_its_host(case, model, host):
    """It stands last, and an id without one is of this machine as it is."""
    key = schema.read_case_id(case)
    assert key is not None
    assert (key.id, key.model, key.host) == (case, model, host)


def test_what_older_records_lack_is_what_was_true_of_them():
    """Of one process, with limits at 95 %; counts of what nobody looked at are 0."""
    speedup = schema.Speedup(baseline="b", value=2.0, low=None, high=None)
    assert (speedup.level, speedup.processes, speedup.protocol) == (0.95, 1, "paired")
    assert schema.ColdStart(load_seconds=1.0, first_call_seconds=1.0).processes == 1
    target = schema.TargetFacts(cpus=("avx2",))
    assert (target.layers, target.layers_narrowed, target.channels_narrowed) == (0, 0, 0)
    assert schema.Accuracy(metric="top1", value=1.0, low=None, high=None, n=1).judged == 0
    assert not Record(case=STATIC, status="ok").reference


def test_a_record_without_a_host_is_native():
    """Runs and baselines of before hosts were there keep loading."""
    data = json.loads(jsonl.to_line(Record(case=STATIC, status="ok")))
    del data["case"]["host"], data["host"]
    record = jsonl.from_line(json.dumps(data))
    assert (record.case.host, record.host) == ("native", None)


@pytest.mark.parametrize(
    ("macs_int8", "arithmetic"), [(0.75, "int8"), (0.5, "int8 and fp32"), (0.0, "fp32"), (None, "fp32")]
)
def test_weights_of_few_bits_are_told_with_the_arithmetic_that_runs_on_them(macs_int8, arithmetic):
    """In int8 where all of the layers whose weights these are multiply so, in both where some do."""
    coverage = Coverage(
        macs_int8=macs_int8, layers_int8=3, layers_total=4, macs_weights=0.75, layers_weights=3, weight_bits=4
    )
    assert coverage.describe_format("weight_only") == f"with weights of 4 bits (arithmetic in {arithmetic})"
    bare = Coverage(macs_int8=1.0, layers_int8=4, layers_total=4, weight_bits=4)
    assert bare.describe_format("weight_only") == "with weights of 4 bits (arithmetic in int8)"


def test_coverage_is_of_the_format_that_a_mode_names():
    """int8 for the modes that quantize, 16 bits for a half, few bits of the weights; what is not known is no share, and
    no layer."""
    coverage = Coverage(
        macs_int8=0.25, layers_int8=1, layers_total=9, macs_half=0.5, layers_half=2, macs_weights=0.75, layers_weights=3
    )
    told = {mode: (coverage.share_of(mode), coverage.layers_of(mode)) for mode in ("static", "fp16", "weight_only")}
    assert told == {"static": (0.25, 1), "fp16": (0.5, 2), "weight_only": (0.75, 3)}
    unknown = Coverage(macs_int8=None, layers_int8=0, layers_total=9)
    assert [(unknown.share_of(mode), unknown.layers_of(mode)) for mode in told] == [(None, 0)] * 3
    assert [coverage.describe_format(mode) for mode in ("qat", "bf16")] == ["in int8", "in bf16"]


def test_a_case_is_named_by_what_it_is():
    """Its recipe stands there where it is not the default, and its host where it is not this machine as it is."""
    plain = schema.make_case_key("m", "static", "x86", 2, 8)
    assert (plain.id, plain.variant, plain.is_twin) == ("m/static/x86/t2/b8", "static \u00b7 x86", False)
    eager = schema.make_case_key("m", "static", "x86", 2, 8, "eager", "avx2")
    assert (eager.id, eager.variant) == ("m/static@eager/x86/t2/b8/avx2", "static@eager \u00b7 x86")
    assert schema.read_case_id(eager.id) == eager
    assert schema.place_on(eager, "native").id == "m/static@eager/x86/t2/b8"
    assert schema.find_fp32(eager, "torch").id == "m/fp32/torch/t2/b8/avx2"
    assert schema.find_fp32(plain, "torch", "twin").id == "m/fp32@twin/torch/t2/b8"


@pytest.mark.parametrize(
    ("case", "twin"), [("m/fp32@twin/torch/t1/b1", True), ("m/fp32/torch/t1/b1", False), ("m/qat@a/x86/t1/b1", False)]
)
def test_an_fp32_of_a_recipe_is_a_twin(case, twin):
    """The default's is the network itself."""
    key = schema.read_case_id(case)
    assert key is not None
    assert key.is_twin is twin


def test_what_is_empty_is_a_leaf():
    """A table has a column for it."""
    row = dict(schema.flatten(Record(case=STATIC, status="ok", observed={"a": {"b": 1}, "c": {}})))
    assert (row["observed.a.b"], row["observed.c"], row["elapsed_seconds"]) == (1, {}, {})
