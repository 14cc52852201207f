"""Rules of decide/cases: the settings of a run, and what of a record counts as what."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_records import accuracy, case_key, failed, fp32, int8, latency

from qbench.decide import cases
from qbench.record.schema import Coverage, Fastest, Memory, OutputScore, Record


def test_the_typical_call_is_the_median_and_the_mean_where_there_is_none() -> None:
    """A run of protocol sequential may know a mean alone; what was not timed has no time."""
    both = replace(latency(0.002), mean_seconds=0.003)
    assert cases.p50(int8(latency=both)) == 0.002
    assert cases.p50(int8(latency=replace(both, p50_seconds=None))) == 0.003
    assert cases.p50(int8(latency=None)) is None
    assert cases.p50(failed()) is None


def scored(*outputs: OutputScore, judged: int = 0) -> Record:
    """A case of a network that returns these."""
    return int8(accuracy=replace(accuracy(), outputs=outputs, judged=judged))


def output(name: str, judged: bool | None = True, value: float | None = 0.9) -> OutputScore:
    """One of several outputs."""
    return OutputScore(name=name, judged=judged, value=value)


@pytest.mark.parametrize(
    ("record", "unjudged", "named"),
    [
        (int8(), (), ""),
        (failed(), (), ""),
        (scored(output("a"), output("b", False)), ("b",), "the first of 2 outputs"),
        (scored(output("a", False), output("b", False)), ("a", "b"), ""),
        (scored(output("a"), output("b", None), output("c", False)), ("c",), ""),
        (scored(output("a"), output("b"), judged=1), (), "b, the worst of 2 outputs"),
        (scored(output("0"), output("1.0"), judged=1), (), "output 1.0, the worst of 2 outputs"),
        (
            scored(output("a"), output("b"), output("c", False), judged=1),
            ("c",),
            "b, the worst of the 2 outputs that are judged",
        ),
        (scored(output("a"), output("b", value=None), judged=1), (), ""),
    ],
)
def test_a_score_says_which_output_it_is_of(record: Record, unjudged: tuple[str, ...], named: str) -> None:
    """Where the network returns several, and neither the suite nor a function of the user's settles it."""
    assert cases.list_unjudged(record) == unjudged
    assert cases.name_judged(record) == named


@pytest.mark.parametrize(
    ("share", "layers", "expected"), [(0.02, 0, True), (0.0, 3, False), (None, 1, True), (None, 0, False)]
)
def test_a_variant_runs_as_named_where_its_work_is_seen_to(share: float | None, layers: int, expected: bool) -> None:
    """By its share of the work; by its layers where that cannot be counted. What is not known is not seen."""
    facts = int8().artifact
    assert facts is not None
    counted = Coverage(macs_int8=share, layers_int8=layers, layers_total=9)
    assert cases.runs_as_named(int8(artifact=replace(facts, coverage=counted))) is expected
    assert not cases.runs_as_named(int8(artifact=replace(facts, coverage=None)))
    assert not cases.runs_as_named(int8(artifact=None))
    assert not cases.runs_as_named(int8("net/dynamic/onednn/t1/b1", coverage=0.009))


def test_memory_is_the_peak_and_what_is_loaded_where_none_is_known() -> None:
    """A process that was not watched has neither."""
    memory = Memory(loaded_rss_bytes=100, peak_rss_bytes=150)
    assert cases.resident_bytes(int8(memory=memory)) == 150
    assert cases.resident_bytes(int8(memory=replace(memory, peak_rss_bytes=None))) == 100
    assert cases.resident_bytes(int8()) is None


def test_the_fastest_fp32_is_what_the_run_named_else_the_least_median() -> None:
    """Of those that are measured, timed, and no twins."""
    slow, fast = fp32(), replace(fp32("net/fp32/onnxruntime/t1/b1"), latency=latency(0.001))
    twin_key = replace(case_key("net/fp32/x86/t2/b1"), recipe="twin")
    twin = replace(fp32(), case=twin_key, latency=latency(0.0001))
    others = [twin, int8(latency=latency(0.0001)), failed("net/fp32/x86/t1/b1"), replace(fp32(), latency=None)]
    named = int8(speedup_fastest=Fastest(baseline=slow.case.id, value=2.0, low=1.9, high=2.1))
    assert cases.fastest_fp32([slow, fast, *others]) is fast
    assert cases.fastest_fp32([slow, fast, named]) is slow
    assert cases.fastest_fp32([fast, named]) is fast
    assert cases.fastest_fp32(others[1:]) is None


def test_settings_of_this_machine_come_first() -> None:
    """Then those of other hosts; each in the order of the records, with what has none yet at the end."""
    native, batched = case_key("net/static/x86/t2/b1"), case_key("net/static/x86/t1/b8")
    hosted = replace(native, host="elsewhere")
    records = [replace(int8(), case=key) for key in (hosted, native, native)]
    shared_settings = cases.settings(records, [native, batched])
    assert shared_settings == tuple(cases.setting_of(key) for key in (native, batched, hosted))
    assert [cases.setting_name(setting) for setting in shared_settings] == [
        "net, 2 threads, batch 1",
        "net, 1 thread, batch 8",
        "net, 2 threads, batch 1, on elsewhere",
    ]
    assert cases.of_setting(shared_settings[0], records) == records[1:]
