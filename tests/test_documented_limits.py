"""Limits, levels and shares that the guide states are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

import qbench
from qbench.compare import host_share
from qbench.decide import probability
from qbench.evaluate import as_called, one_output, runtime_difference
from qbench.explain import trial
from qbench.gating import markdown, sequential_test
from qbench.machine import canary, noise
from qbench.measure import paired_difference, percentiles, race_rules
from qbench.metrics import agreement
from qbench.models import trainer
from qbench.quant import recipe
from qbench.quant.analysis import input_drift
from qbench.quant.onnx import needed_inputs
from qbench.quant.onnx.formats import rules
from qbench.report.plots import cases
from qbench.stats import examples_needed, mean_limits, multiple_testing
from qbench.suite.models_and_data import CalibrateSpec

GUIDE = Path(qbench.__file__).parent / "guide"
_FIRST, *_LATER = sequential_test.ANALYSES
_ERROR = multiple_testing.FAMILY_ERROR
_COUNTS = f"{', '.join(map(str, _LATER[:-1]))} or {_LATER[-1]}"


def percent(share: float) -> str:
    """``0.1 %``"""
    return f"{100 * share:.6g} %"


def relative(decibels: float) -> str:
    """The share of the signal that an error of so many decibels is."""
    return percent(10 ** (-decibels / 20))


SENTENCES = [
    ("accuracy", f"as many as {as_called.SECONDS:g} s allow"),
    ("accuracy", f"differ (by {percent(as_called.SAME)} of the largest output)"),
    ("accuracy", f"at most {as_called.FEW * 100:g} example in 100 differs, a warning says so"),
    ("accuracy", f"{agreement.MOST_DECIBELS:g} dB (the upper limit of `sqnr`)"),
    ("accuracy", f"fewer than {mean_limits.UNSEEN} examples never PASS"),
    ("accuracy", f"beyond {examples_needed.MOST_TIMES} times the examples at hand"),
    ("evidence/accuracy", f"scored on {one_output.RESAMPLES_OF_OWN} resamples"),
    ("accuracy", f"more than {runtime_difference.MORE_DECIBELS:g} dB"),
    (
        "accuracy",
        f"exceed {relative(runtime_difference.ENOUGH_INT8)} (for fp32, {relative(runtime_difference.ENOUGH_FP32)})",
    ),
    ("ci", f"less than {markdown.MOST_CHARACTERS:,} characters"),
    ("data", f"`calibrate` draws {CalibrateSpec().samples} examples unless"),
    ("data", f"more than {percent(input_drift.CLIPPED)} of the values are clipped"),
    ("decision", f"(Holm, {percent(paired_difference.SHOWN_ERROR)})"),
    ("decision", f"drawn {probability.DRAWS:,} times"),
    ("evidence/explain", f"from one race to the next by {percent(trial.RACE_SPREAD)} (one standard deviation)"),
    ("gate", f"There are {_FIRST} generations of processes, or {_COUNTS} if that is needed"),
    (
        "gate",
        f"{percent(sequential_test.LEVEL)}: up to four steps of measuring share {percent(_ERROR)}",
    ),
    ("latency", f"(at {percent(1 - race_rules.LEAVE_SCREENING)}, shared over the cases)"),
    ("latency", f"more than half of the tie slower (at {percent(1 - race_rules.LEAVE)})"),
    ("latency", f"{canary.DISTURBED:g} times as long as on a calm core"),
    ("latency", f"with a warning from {percent(host_share.HIGH)} on"),
    ("latency", f"From {percent(host_share.OFF_CORE)} of the time on a run warns"),
    ("latency", f"where there are several processes, from {percentiles.PARTS} processes on"),
    ("latency", f"a gate of {percent(noise.TOLERANCE)} can be decided here"),
    ("onnx", f"By default {rules.EXAMPLES} examples are used"),
    ("onnx", f"less than {percent(needed_inputs.LEAST_SHARE)} of the work"),
    ("python", f"At most {cases.MOST} rows are drawn"),
    ("quantization", f"(default {percent(recipe.DYNAMIC_MIN_COVERAGE)}) is practically fp32"),
    ("suites", f"A checkpoint is kept every {trainer.CHECKPOINT_SECONDS:g} seconds"),
]


@pytest.mark.parametrize(("page", "sentence"), SENTENCES, ids=lambda text: text[:50])
def test_the_guide_states_the_limit_that_the_code_has(page: str, sentence: str) -> None:
    """Whoever changes one changes the other: no test of behaviour tells 20 s from 21 s, a reader does."""
    text = " ".join((GUIDE / f"{page}.md").read_text(encoding="utf-8").split())
    assert sentence in text
