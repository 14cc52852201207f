"""Rules of qbench/check/text.py: the verdict first, what was timed and tried behind it, and all of it as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from made_checks import CHECK, hostile_check
from made_runs import HOSTILE

from qbench.check import text
from qbench.check.finding import FileCheck, RuntimeCheck
from qbench.foreign_text import CONTROL
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.artifacts.node_profile import CallProfile

FIRST, OTHER = CHECK.runtimes
BARE = FileCheck(file="m.onnx", format="ONNX", bytes=4050)


def test_the_verdict_comes_first_and_causes_before_figures() -> None:
    """Each with what to do, then what each runtime makes of it, then how it does beside its fp32."""
    lines = list(text.list_lines(CHECK))
    assert lines == [
        "models/model-int8.onnx: 2 faults (ONNX, 4.05 kB)",
        "fault: 0 % of the multiply-accumulates run in int8",
        "  an int8 kernel needs Q and DQ around the whole layer",
        "warning: OpenVINO 2026.4.1 does not run it",
        "fault: it takes 1.22 times as long",
        "  ship fp32",
        "ONNX Runtime 1.32.0: 7.08 ms a call; of its time conversion 4 %, float product 65 %, other 31 %",
        "OpenVINO 2026.4.1: does not run it",
        "speed: 1.22 [1.20, 1.23] times as long as its own fp32 on ONNX Runtime, 5 processes",
        "cause: a call has too little work (little-work). Batches of 8, where examples can wait for each other: "
        "1.31 [1.25, 1.38] times as fast",
        "tried, no gain shown: in float: stem.conv (slower-in-int8): 1.00 [0.97, 1.03] times as fast",
        "not tried: in float: gate (conversions): no node goes by gate",
        "data: 64 examples: 5 dB from its own fp32, 10 get another class, 7 right (its own fp32: 3)",
        "inputs: x 1x32x48x48 float32, of photos",
    ]


@pytest.mark.parametrize(("count", "said"), [(0, "sound: no fault was found"), (1, "1 fault"), (2, "2 faults")])
def test_faults_are_counted(count: int, said: str) -> None:
    """Warnings are none."""
    findings = (CHECK.findings[1], *(CHECK.findings[0],) * count)
    assert text.sum_up(replace(BARE, findings=findings)) == f"{said} (ONNX, 4.05 kB)"


def test_what_was_not_compared_says_why() -> None:
    """Speed alone without data; on random inputs the distance stands beside the speed."""
    assert list(text.list_comparisons(BARE)) == []
    alone = replace(BARE, no_race="name its fp32")
    assert list(text.list_comparisons(alone)) == ["speed: not compared with fp32: name its fp32"]
    (line,) = text.list_comparisons(replace(alone, data="photos"))
    assert line == "speed and answers on the data: not compared with fp32: name its fp32"
    assert CHECK.race is not None
    raced = replace(BARE, race=replace(CHECK.race, trials=()), no_race="never said", inputs=("x 1x3 float32",))
    lines = list(text.list_comparisons(raced))
    assert lines[0].endswith("5 processes, 20 dB on random inputs")
    assert lines[1:] == ["inputs: x 1x3 float32, random"]
    same = replace(raced, race=replace(CHECK.race, sqnr_db=None))
    assert next(text.list_comparisons(same)).endswith("5 processes")


def test_one_example_gets_another_class() -> None:
    """Where outputs are no classes, and where there are no labels, nothing is said of these; notes are assumptions."""
    assert CHECK.change is not None
    once = replace(CHECK.change, flips=1, right=None, notes=("bytes become 0 to 1",))
    lines = list(text.list_comparisons(replace(BARE, change=once)))
    assert lines == [
        "data: 64 examples: 5 dB from its own fp32, 1 gets another class", "assumed: bytes become 0 to 1",
    ]  # fmt: skip
    (line,) = text.list_comparisons(replace(BARE, change=replace(once, flips=None, notes=())))
    assert line == "data: 64 examples: 5 dB from its own fp32"


def test_what_a_runtime_made_of_a_file_is_one_line() -> None:
    """What is in int8 and how far from the peak, where that is known; kinds of work from half a per cent on."""
    assert (
        text.describe_runtime(RuntimeCheck(runtime="openvino", version=None, refused="x"))
        == "OpenVINO: is not installed"
    )
    assert FIRST.profile is not None
    int8 = (Layer(name="a", operator="QLinearConv", macs=10, precision="int8"),)
    known = replace(FIRST, layers=int8, peak_share=0.415)
    assert "7.08 ms a call, 100 % of its multiply-accumulates in int8, 42 % of the core's peak; of" in (
        text.describe_runtime(known)
    )
    part = replace(FIRST, layers=(*int8, Layer(name="b", operator="Conv", macs=30)))
    assert "a call, 25 % of its multiply-accumulates in int8; of" in text.describe_runtime(part)
    nodes = FIRST.profile.nodes
    for seconds, is_told in ((0.00505, True), (0.005, True), (0.0049, False)):
        small = (replace(nodes[0], seconds=seconds), replace(nodes[1], seconds=1 - seconds))
        described = text.describe_runtime(replace(FIRST, profile=replace(FIRST.profile, nodes=small)))
        assert ("conversion" in described) == is_told
    untimed = replace(FIRST, profile=replace(FIRST.profile, nodes=tuple(replace(each, seconds=0.0) for each in nodes)))
    assert text.describe_runtime(untimed).endswith("conversion, float product, other, too short to be timed")
    hidden = replace(FIRST, profile=CallProfile(nodes=(), call_seconds=1.0, watched_seconds=1.0), layers=())
    assert text.describe_runtime(hidden).endswith("a call; its kernels do not show, so what runs in int8 is not known")


def test_whatever_stands_in_a_file_stays_one_line() -> None:
    """Its names are somebody else's."""
    for line in text.list_lines(hostile_check()):
        assert not CONTROL.search(line)
        assert HOSTILE not in line


def test_a_program_gets_shares_and_seconds() -> None:
    """A share that is not known is null, and the nodes stand in the runtime's place of them."""
    data = json.loads(text.as_json(CHECK))
    first, other = data["runtimes"]
    assert (first["int8_share"], first["call_seconds"]) == (None, 7.08e-3)
    assert first["seconds"] == {"conversion": 3e-4, "float product": 4.6e-3, "other": 2.2e-3}
    assert [each["layer"] for each in first["nodes"]] == ["x_q", "stem.conv", "pool"]
    assert (other["nodes"], other["seconds"], other["call_seconds"]) == ([], {}, None)
    assert data["sound"] is False
    assert text.as_json(CHECK).startswith('{\n  "file": ')
