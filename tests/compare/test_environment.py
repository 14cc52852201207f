"""Rules of qbench/compare/environment.py: what differs between two runs beside their cases."""

from __future__ import annotations

from dataclasses import replace

from made_records import CASE, fp32, info, int8, latency

from qbench.compare.environment import differences, is_same_run, suite_changes
from qbench.record.commit import Commit
from qbench.record.schema import Memory
from qbench.record.stored_run import QuickInfo, SuiteInfo


def test_only_what_differs_is_listed() -> None:
    """Machine, versions, commit and digests, each before and after; what is not known is said so."""
    old = info(versions={"torch": "2.12", "numpy": "2.0"}, digests={"data": "a" * 64})
    new = info(
        versions={"torch": "2.13", "numpy": "2.0", "onnx": None},
        environment=old.environment | {"cpu": "CPU B", "isa": ["avx2", "vnni"]},
        commit=Commit(sha="1" * 40, subject="quant: x", changed=True),
        digests={"data": "b" * 64},
        quick=QuickInfo(),
    )
    assert differences(old, old) == ()
    assert differences(old, new) == (
        ("commit", "not known", "111111111+ quant: x"),
        ("cpu", "CPU A", "CPU B"),
        ("isa", "avx2", "avx2, vnni"),
        ("torch", "2.12", "2.13"),
        ("data", f"{'a' * 12}…", f"{'b' * 12}…"),
        ("kind of run", "a run proper", "a quick look"),
    )


def test_values_are_said_as_they_are_but_for_digests() -> None:
    """A list without items is none, a digest is cut, a long sentence is not; what changes with every run is not
    listed."""
    words = "many words " * 8
    old = info(versions={"onnx": "1.20"}, environment={"isa_switches": ["A=1"], "note": words, "load_average": 1.0})
    new = info(
        environment={"isa_switches": [], "note": f"{words}.", "load_average": 2.0, "key": "f" * 64, "hex": "f" * 63}
    )
    assert differences(old, new) == (
        ("isa switches", "A=1", "none"),
        ("note", words, f"{words}."),
        ("key", "not known", f"{'f' * 12}…"),
        ("hex", "not known", "f" * 63),
        ("onnx", "1.20", "not known"),
    )


def test_a_suite_is_compared_line_by_line() -> None:
    """Changed lines and overrides with what stands around them; nothing where the text is the same."""
    text = "".join(f"line{number}\n" for number in range(20))
    old = replace(info(), suite=SuiteInfo(name="demo", text=text))
    new = replace(info(), suite=SuiteInfo(name="demo", text=text.replace("line9\n", "changed\n"), overrides=("a=1",)))
    around = [" line7", " line8"], [" line10", " line11"]
    added = (" line18", " line19", "+--set a=1")
    assert suite_changes(old, old) == ()
    assert suite_changes(old, new) == (
        *("@@ -8,5 +8,5 @@", *around[0], "-line9", "+changed", *around[1]), *("@@ -19,2 +19,3 @@", *added)
    )  # fmt: skip


def test_what_a_suite_no_longer_says_is_told_whatever_it_begins_with() -> None:
    """An override begins with two hyphens, and a line of YAML may."""
    old, new = (
        replace(info(), suite=SuiteInfo(name="demo", text=f"{line}\n", overrides=overrides))
        for line, overrides in (("-- a", ("a=1",)), ("++ b", ()))
    )
    assert suite_changes(old, new)[1:] == ("--- a", "---set a=1", "+++ b")


def test_a_run_is_known_as_itself() -> None:
    """Also a baseline's rounded records of it; a run of the same second with other figures is another."""
    own, other = [fp32(), int8(latency=latency(0.00123456))], [fp32(), int8(latency=latency(0.00123501))]
    rounded = [int8(latency=latency(0.001235)), fp32()]
    assert is_same_run(info(), info(), own, own)
    assert is_same_run(info(), info(), own, rounded)
    assert is_same_run(info(), info(), other, rounded)
    assert not is_same_run(info(), info(), own, [fp32(), int8(latency=latency(0.0013))])
    assert not is_same_run(info(), info(), own, own[:1])
    assert not is_same_run(info(started="2026-01-02T00:00:00Z"), info(), own, own)
    assert not is_same_run(info(quick=QuickInfo()), info(), own, own)
    median, none = replace(latency(1.0), p50_seconds=1.0), replace(latency(1.0), p50_seconds=None)
    assert not is_same_run(info(), info(), [int8(latency=median)], [int8(latency=none)])
    facts = int8().artifact
    assert facts is not None
    assert facts.coverage is not None
    shares = [replace(facts, coverage=replace(facts.coverage, macs_int8=share)) for share in (0.0, None)]
    assert not is_same_run(info(), info(), *([int8(artifact=artifact)] for artifact in shares))
    assert not is_same_run(info(), info(environment={"cpu": "CPU B"}), own, own)
    without = [replace(int8(), accuracy=None, artifact=None, speedup=None, latency=None)]
    assert is_same_run(info(), info(), without, without)
    assert not is_same_run(info(), info(), without, [replace(without[0], accuracy=int8().accuracy)])
    used = [
        [replace(without[0], memory=Memory(loaded_rss_bytes=10**6, peak_rss_bytes=peak))] for peak in (10**6, 2 * 10**6)
    ]
    assert not is_same_run(info(), info(), *used)
    assert not is_same_run(info(), info(), without, used[0])
    names = [[replace(int8(), artifact=replace(facts, size_bytes=size))] for size in (1_000_000, 1_000_001)]
    assert not is_same_run(info(), info(), *names)
    bf16 = "net/bf16/openvino/t1/b1"
    for case in (CASE, bf16):
        sides = [[int8(case, coverage=share)] for share in (0.98, 0.9801)]
        assert not is_same_run(info(), info(), *sides)
        assert is_same_run(info(), info(), sides[0], [int8(case, coverage=0.98 + 1e-9)])
