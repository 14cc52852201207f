"""Which cases race to the end, and which are only screened."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_records import fp32, info, int8

from qbench import suite as suites
from qbench.plan.planner import make_plan
from qbench.record.schema import CaseKey
from qbench.record.stored_run import StoredRun
from qbench.running import measure_stage
from qbench.running.measure_stage import enter_race

SUITE = """
suite: small
models: [digits-cnn]
data: {dataset: digits}
matrix: {modes: [fp32, static, qat], backends: [torch, onednn]}
gate: {size: {max_ratio: 0.3}}
quantize: {qat: {fp32_twin: true}}
"""


@pytest.fixture
def planned():
    suite = suites.parse(SUITE, file="<test>")
    return make_plan(suite, cores=2).cases


def describe(planned, **sizes: int):
    """A record for each case, built and evaluated, not measured; ``sizes`` by mode."""

    def one(key: CaseKey):
        record = fp32(key.id) if key.mode == "fp32" else int8(key.id, size_bytes=sizes.get(key.mode, 260_000))
        return replace(record, case=key, latency=None, speedup=None)

    return [one(each.case.key) for each in planned]


def enter(planned, monkeypatch, **sizes: int):
    suite = suites.parse(SUITE, file="<test>")
    monkeypatch.setattr(measure_stage, "read_run", lambda folder: StoredRun(folder=folder, info=info(), records=()))
    return {arm.case: arm for arm in enter_race(planned, describe(planned, **sizes), suite, Path())}


def test_what_fails_a_limit_is_screened_and_no_more(planned, monkeypatch):
    """A qat artifact that is too large cannot be shipped; a static one within the limit may be."""
    arms = enter(planned, monkeypatch, qat=400_000)
    assert arms["digits-cnn/qat/onednn/t1/b1"].role == "screened_only"
    assert arms["digits-cnn/static/onednn/t1/b1"].role == "candidate"
    assert arms["digits-cnn/static/onednn/t1/b1"].baseline == "digits-cnn/fp32/torch/t1/b1"
    assert next(iter(arms.values())).role == "fp32"


def test_an_fp32_twin_is_no_candidate(planned, monkeypatch):
    """It is there for its accuracy: it neither leads the int8 nor is their reference."""
    arms = enter(planned, monkeypatch)
    twins = [each for each in planned if each.case.variant.mode == "fp32" and each.reference is not None]
    assert len(twins) == 1
    assert arms[twins[0].case.id].role == "screened_only"


def test_a_run_that_cannot_be_read_keeps_everyone_in(planned, tmp_path):
    """Nothing is known to fail: every int8 case races; what is wrong with the folder is for the report to say."""
    suite = suites.parse(SUITE, file="<test>")
    roles = {arm.role for arm in enter_race(planned, describe(planned), suite, tmp_path) if "/fp32" not in arm.case}
    assert roles == {"candidate"}
