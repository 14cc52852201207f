"""Rules of what qbench/check/check_file.py says of what a runtime made of a file: at its edges, without a runtime."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from people_files import node, write

from qbench.check import check_file as judging
from qbench.check.beside_fp32 import Beside
from qbench.check.finding import CauseTrial, FileCheck, Finding, Race, RuntimeCheck
from qbench.machine import fingerprint
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.artifacts.node_profile import CallProfile, NodeTime
from qbench.stats.interval_type import Interval


def run(
    runtime: str = "onnxruntime", *, call_seconds: float = 0.01, conversion: float = 0.0, **facts: Any
) -> RuntimeCheck:
    """A runtime that runs the file: seconds of a call, and of its conversions."""
    kinds = (("c", "conversion", conversion), ("p", "int8 product", 0.01 - conversion))
    nodes = tuple(NodeTime(layer=name, operator=name, kind=kind, seconds=each) for name, kind, each in kinds)  # type: ignore[arg-type]
    profile = CallProfile(nodes=nodes, call_seconds=call_seconds, watched_seconds=call_seconds)
    return RuntimeCheck(runtime=runtime, version="1", profile=profile, **facts)


REFUSES = RuntimeCheck(runtime="onnxruntime", version="1", refused="no kernel", advice="export it")
ABSENT = RuntimeCheck(runtime="openvino", version=None, refused="is not installed")


def severities(*checks: RuntimeCheck) -> list[tuple[str, str]]:
    """What is said of runtimes that refuse."""
    return [(finding.severity, finding.code) for finding in judging._judge_loading(checks)]


def test_a_runtime_that_refuses_is_a_fault_where_it_is_the_first_or_none_runs_the_file() -> None:
    """Another one's refusal is a warning; what is not installed says nothing of the file."""
    other = replace(REFUSES, runtime="openvino")
    assert severities(run(), run("openvino")) == []
    assert severities(REFUSES, run("openvino")) == [("fault", "refused")]
    assert severities(run(), other) == [("warning", "refused-elsewhere")]
    assert severities(REFUSES, other) == [("fault", "refused")] * 2
    assert severities(ABSENT, other) == [("fault", "refused")]
    assert severities(ABSENT, run()) == []
    (finding,) = judging._judge_loading([REFUSES])
    assert (finding.text, finding.advice) == ("ONNX Runtime 1 does not run it: no kernel", "export it")


@pytest.mark.parametrize(
    ("decibels", "severities"),
    [(None, []), (100.0, []), (10.0, []), (9.9, ["fault", "warning"]), (-100.0, ["fault", "warning"])],
)
def test_answers_that_break_by_a_known_batch_size_are_a_fault_of_the_first_runtime(
    decibels: float | None, severities: list[str]
) -> None:
    """Below 10 dB, where little is left of them; of another runtime a warning."""
    checks = [run(known_batch_db=decibels), run("openvino", known_batch_db=decibels)]
    findings = list(judging._judge_known_batch(checks))
    assert [finding.severity for finding in findings] == severities
    if findings:
        assert findings[1].code == "known-batch"
        assert findings[1].text == (
            f"compiled for one batch size, OpenVINO gives other answers than compiled for any: {decibels:.1f} dB apart"
        )


def layers(int8: int, floats: int, **facts: Any) -> tuple[Layer, ...]:
    """Layers of which so many multiply in int8, so many in float, those that are larger later."""
    return tuple(
        Layer(
            name=f"l{place}", operator="Conv", macs=1000 + place, precision="int8" if place < int8 else "fp32", **facts
        )
        for place in range(int8 + floats)
    )


def say_layers(judged_layers: tuple[Layer, ...], told: tuple[str, ...] = (), *, first: bool = True) -> list[Finding]:
    """What is said of a quantized file with these layers, where these findings are told."""
    findings = [Finding(severity="fault", code=code, text="") for code in told]
    return list(judging._judge_layers(run(layers=judged_layers), findings, first=first))


@pytest.mark.parametrize(
    ("judged_layers", "told", "first", "said"),
    [
        (layers(0, 2), (), True, ("fault", "folded")),
        (layers(0, 2), (), False, ("warning", "folded-elsewhere")),
        (layers(1, 2), (), True, ("fault", "folded")),
        (layers(2, 1), (), True, None),
        ((replace(layers(1, 0)[0], macs=1), replace(layers(0, 1)[0], macs=1)), (), True, None),
        ((), (), True, None),
        (layers(0, 2), ("tables-only",), True, None),
        (layers(0, 2), ("weights-only",), True, None),
        (layers(0, 2), ("refused",), True, ("fault", "folded")),
        (layers(0, 2, weight_bits=4), (), True, ("note", "weight-only")),
        (layers(0, 2, weight_bits=4), (), False, None),
    ],
)
def test_a_quantized_file_of_which_less_than_half_runs_in_int8_is_folded_back(
    judged_layers: tuple[Layer, ...], told: tuple[str, ...], first: bool, said: tuple[str, str] | None
) -> None:
    """A fault on the runtime that is raced; not where the cause is told already, or few bits are what was wanted."""
    findings = [(each.severity, each.code) for each in say_layers(judged_layers, told, first=first)]
    assert findings == ([] if said is None else [said])


def test_the_largest_layers_in_float_are_named() -> None:
    """First; and whether all went or a part."""
    (nothing,), (part,) = say_layers(layers(0, 4)), say_layers(layers(1, 3))
    assert (
        "0 % of the multiply-accumulates run in int8 on ONNX Runtime: its bytes are folded back to floats"
        in nothing.text
    )
    assert "l3 (Conv), l2 (Conv), l1 (Conv) and 1 more run in float" in nothing.text
    assert nothing.layers == ("l3", "l2", "l1", "l0")
    assert part.text.startswith("25 % of the multiply-accumulates run in int8")
    assert "part of them is folded back to floats" in part.text
    assert part.layers == ("l3", "l2", "l1")


RACE = Race(runtime="onnxruntime", opponent="its own fp32", ratio=1.2, low=1.1, high=1.3, processes=5, sqnr_db=None)


def codes(check: RuntimeCheck, raced: Race | None = None) -> list[str]:
    """What is said of time."""
    return [finding.code for finding in judging._judge_time(check, raced)]


def test_conversions_are_told_where_they_take_much_of_a_call() -> None:
    """15 % of it; where nothing was timed nothing is."""
    assert codes(run(conversion=0.0015)) == ["conversions"]
    assert codes(run(conversion=0.00149)) == []
    assert codes(replace(run(), profile=CallProfile(nodes=(), call_seconds=1.0, watched_seconds=1.0))) == []
    product = NodeTime(layer="p", operator="p", kind="int8 product", seconds=0.01)
    assert codes(replace(run(), profile=CallProfile(nodes=(product,), call_seconds=1.0, watched_seconds=1.0))) == []
    (finding,) = judging._judge_time(run(conversion=0.0015), None)
    assert finding.text.startswith("15 % of a call on ONNX Runtime only converts")


def test_slower_is_what_is_shown_to_be_slower() -> None:
    """By its limits; of a call that is short that is told as well."""
    assert codes(run(), RACE) == ["slower"]
    assert codes(run(), replace(RACE, low=1.0)) == []
    long, short = (next(judging._judge_time(run(call_seconds=each), RACE)).text for each in (2e-4, 1.9e-4))
    assert long == "it takes 1.20 [1.10, 1.30] times as long as its own fp32 on ONNX Runtime"
    assert short == f"{long}: a call is so short that int8 has little to gain"


def trial(gain: Interval | None, reason: str | None = None) -> CauseTrial:
    """A cause that was tried, or why not."""
    return CauseTrial(cause="c", title="t", text="batches of 8", gain=gain, reason=reason)


@pytest.mark.parametrize(
    ("trials", "advice"),
    [
        ((trial(Interval(value=1.3, low=1.2, high=1.4)),), "batches of 8: see the causes below; or ship fp32"),
        ((trial(Interval(value=1.0, low=0.9, high=1.1)),), "ship fp32 on this CPU, or mend what stands above"),
        ((trial(None, "no data"),), "what may help and was not tried: batches of 8"),
        ((trial(None, "no data"), trial(Interval(value=1.0, low=0.9, high=1.1))), "or mend what stands above"),
        ((), "ship fp32 on this CPU, or mend what stands above"),
    ],
)
def test_what_is_slower_gets_the_advice_that_was_tried(trials: tuple[CauseTrial, ...], advice: str) -> None:
    """Of a cause that is confirmed; else what was not tried, else what stands above."""
    assert advice in judging._advise_slower(replace(RACE, trials=trials))


@pytest.mark.parametrize(("value", "low", "is_told"), [(1.02, 1.001, True), (1.019, 1.001, False), (1.02, 1.0, False)])
def test_a_gain_is_worth_telling_from_two_per_cent_on(value: float, low: float, is_told: bool) -> None:
    """And where it is shown to be one."""
    assert trial(Interval(value=value, low=low, high=2.0)).confirmed == is_told


def test_causes_come_before_what_they_cause() -> None:
    """Faults first among them; what other runtimes say, and that it is a float model, last."""
    wanted = [
        ("fault", "folded"), ("warning", "overflow"), ("note", "weight-only"), ("fault", "far-on-data"),
        ("warning", "conversions"), ("fault", "slower"), ("warning", "folded-elsewhere"), ("note", "float"),
    ]  # fmt: skip
    findings = [Finding(severity=severity, code=code, text="") for severity, code in reversed(wanted)]  # type: ignore[arg-type]
    assert [(each.severity, each.code) for each in sorted(findings, key=judging._rank)] == wanted


@pytest.mark.parametrize(
    ("isa", "words"), [((), ", and this is one"), (("avx512_vnni",), ", and this one has it: answers differ there")]
)
def test_sums_that_overflow_elsewhere_are_told(monkeypatch: pytest.MonkeyPatch, isa: Any, words: str) -> None:
    """And whether this CPU adds in 32 bits; where nothing overflows, nothing is."""
    told: list[tuple[str, ...]] = [("a", "b", "c", "d"), ()]
    monkeypatch.setattr(judging, "call", lambda *_, **__: told.pop(0))
    monkeypatch.setattr(fingerprint, "isa", lambda: isa)
    monkeypatch.setattr(fingerprint, "ADD_IN_32_BITS", ("avx512_vnni",))
    file = Path("m.onnx")
    contest = judging.Contest(file=file, against=None, threads=1, seconds=1.0, budget=judging.open_budget(file))
    (finding,) = judging._find_overflow(contest)
    assert (finding.severity, finding.code, finding.layers) == ("warning", "overflow", ("a", "b", "c", "d"))
    assert finding.text.startswith("sums of a, b, c and 1 more can leave 16 bits")
    assert words in finding.text
    assert list(judging._find_overflow(contest)) == []


def test_a_file_is_sound_without_a_fault() -> None:
    """Warnings and notes are none."""
    told = [Finding(severity=severity, code="c", text="") for severity in ("warning", "note", "fault")]  # type: ignore[arg-type]
    check = FileCheck(file="m", format="ONNX", bytes=1)
    assert check.sound
    assert replace(check, findings=tuple(told[:2])).sound
    assert not replace(check, findings=tuple(told)).sound


def test_what_is_not_known_of_a_runtime_is_none() -> None:
    """Without a profile there are no times, without layers no share; kinds that took no time are there all the same."""
    bare = RuntimeCheck(runtime="onnxruntime", version="1")
    assert (bare.call_seconds, bare.seconds, bare.int8_share) == (None, {}, None)
    assert run(call_seconds=0.02).call_seconds == 0.02
    assert run().seconds == {"conversion": 0.0, "int8 product": 0.01}
    assert run(layers=layers(1, 0)).int8_share == 1.0


def test_weights_beside_an_onnx_file_are_counted(tmp_path: Path) -> None:
    """Once; of another format nothing else is looked at."""
    weights = {name: np.ones((4, 4), np.float32) for name in ("a", "b")}
    nodes = [node("MatMul", ["x", "a"], "h"), node("MatMul", ["h", "b"], "y")]
    file = write(tmp_path / "m.ONNX", nodes, weights, inputs=(("x", ["n", 4]),))
    alone = judging._count_bytes(file)
    assert alone == file.stat().st_size
    onnx.save(
        onnx.load(file, format="protobuf"), file, "protobuf", save_as_external_data=True, location="w", size_threshold=0
    )
    assert judging._count_bytes(file) == file.stat().st_size + (tmp_path / "w").stat().st_size
    other = tmp_path / "m.pt"
    other.write_bytes(file.read_bytes())
    assert judging._count_bytes(other) == file.stat().st_size


@pytest.mark.parametrize(("seconds", "told"), [(0.0066, True), (0.67 * 0.01, False), (0.02, False), (0.0, False)])
def test_another_runtime_is_named_where_it_is_much_faster(seconds: float, told: bool) -> None:
    """By a third at least: they are timed one after the other."""
    raced = run()
    findings = list(judging._find_faster([raced, run("openvino", call_seconds=seconds)], raced))
    assert [finding.code for finding in findings] == ["faster-elsewhere"] * told
    assert not told or findings[0].text.startswith("a call takes 6.60 ms on OpenVINO, 10.0 ms on ONNX Runtime: ")
    assert list(judging._find_faster([ABSENT, raced], raced)) == []
    assert list(judging._find_faster([run("openvino")], REFUSES)) == []
    assert list(judging._find_faster([raced], run(call_seconds=0.0))) == []


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The inputs that each runtime was asked to run, in place of running them, and the batch of each share of a peak;
    it has a layer where the file is called ``layers``."""
    given: list[Any] = []

    def check_runtime(backend: str, file: Path, inputs: Any, threads: int, budget: Any) -> RuntimeCheck:
        given.append([array.shape for array in inputs])
        return run(backend, layers=layers(0, 1) if file.stem == "layers" else ())

    def add_share(check: RuntimeCheck, batch: int, peak: Any) -> RuntimeCheck:
        given.append(f"{peak} of {batch}")
        return check

    monkeypatch.setattr(judging.runtimes, "check_runtime", check_runtime)
    monkeypatch.setattr(judging.core_peak, "find_peak", lambda: given.append("peak") or "share")
    monkeypatch.setattr(judging.core_peak, "add_share", add_share)
    return given


def save_product(path: Path, *shapes: list[Any]) -> Path:
    """A file of floats with inputs of these shapes."""
    inputs = [(f"x{place}", shape) for place, shape in enumerate(shapes)]
    names = [name for name, _ in inputs]
    return write(path, [node("Add", [*names, names[0]][:2], "y")], {}, inputs=inputs)


@pytest.mark.parametrize(
    ("shapes", "batch"), [([["n", 3]], 1), ([[4, 3]], 4), ([[], [4, 3]], 1)], ids=["free", "fixed", "scalar"]
)
def test_the_share_of_a_peak_is_that_of_all_examples_of_a_call(
    tmp_path: Path, asked: list[Any], shapes: list[Any], batch: int
) -> None:
    """On one thread, of a file whose layers are known; a scalar says nothing of how many there are."""
    judging.check_file(save_product(tmp_path / "layers.onnx", *shapes))
    assert asked[2:] == ["peak", f"share of {batch}", f"share of {batch}"]
    asked.clear()
    judging.check_file(tmp_path / "layers.onnx", threads=2)
    judging.check_file(save_product(tmp_path / "none.onnx", *shapes))
    assert "peak" not in asked


@pytest.mark.parametrize(("sizes", "count"), [(["n", 3], 1), ([4, 3], 4)])
def test_a_call_takes_as_many_of_the_examples_as_the_file_demands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[Any], sizes: list[Any], count: int
) -> None:
    """The first ones, one where it takes any number; too few are told."""
    monkeypatch.chdir(tmp_path)
    arrays = {"train_inputs": np.ones((8, 3), np.float32), "test_inputs": np.zeros((count, 3), np.float32)}
    np.savez("d.npz", **arrays)
    check = judging.check_file(save_product(tmp_path / "m.onnx", sizes), data="d.npz")
    assert (asked[0], check.inputs) == ([(count, 3)], (f"x0 {count}x3 float32",))
    other = tmp_path / "m.pt2"
    other.write_bytes(b"")
    np.savez("one.npz", **arrays | {"test_inputs": np.zeros((1, 3), np.float32)})
    assert judging.check_file(other, data="one.npz").inputs == ("input 0 1x3 float32",)
    assert asked[-1] == [(1, 3)]


def test_inputs_that_are_named_keep_their_names(tmp_path: Path, asked: list[Any]) -> None:
    """Of a format that tells them to its runtime alone; one without a name is the only one."""
    file = tmp_path / "m.pt2"
    file.write_bytes(b"")
    check = judging.check_file(file, shapes=("ids=1x8", "mask=1x8"))
    assert check.inputs == ("ids 1x8 float32", "mask 1x8 float32")
    assert judging.check_file(file, shapes=("1x8",)).inputs == ("the input 1x8 float32",)


def test_what_no_runtime_runs_is_told_by_what_stands_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file that is quantized; of floats there is nothing to say."""
    monkeypatch.setattr(judging.runtimes, "check_runtime", lambda *_: REFUSES)
    monkeypatch.setattr(
        judging.graph_faults, "find_faults", lambda model: iter([Finding(severity="fault", code="scale-zero", text="")])
    )
    plain = judging.check_file(save_product(tmp_path / "m.onnx", ["n", 3]))
    assert [each.code for each in plain.findings] == ["refused", "refused"]
    assert plain.no_race == "no installed runtime runs it"
    nodes = [node("QuantizeLinear", ["x", "s", "z"], "q"), node("DequantizeLinear", ["q", "s", "z"], "y")]
    constants = {"s": np.float32(0.1), "z": np.uint8(0)}
    quantized = judging.check_file(write(tmp_path / "q.onnx", nodes, constants, inputs=(("x", ["n", 3]),)))
    assert [each.code for each in quantized.findings] == ["refused", "refused", "scale-zero"]


SLOWER = Beside(race=RACE, findings=(Finding(severity="fault", code="far-on-data", text=""),))


def test_whatever_is_said_of_a_float_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runtimes refuse and answer, that it is a float model, its time and what it answers: nothing takes the place
    of what was found before."""
    first = run(known_batch_db=1.0, conversion=0.005)
    checks = {"onnxruntime": first, "openvino": replace(REFUSES, runtime="openvino")}
    monkeypatch.setattr(judging.runtimes, "check_runtime", lambda backend, *_: checks[backend])
    monkeypatch.setattr(judging, "race_files", lambda *_: SLOWER)
    check = judging.check_file(save_product(tmp_path / "m.onnx", ["n", 3]), against=Path("fp32.onnx"))
    wanted = ["known-batch", "far-on-data", "refused-elsewhere", "conversions", "slower", "float"]
    assert [each.code for each in check.findings] == wanted
    checks |= {"fbgemm": first, "qnnpack": replace(REFUSES, runtime="qnnpack")}
    monkeypatch.setattr(judging, "_explain_other_archive", lambda file: None)
    (tmp_path / "m.pt").write_bytes(b"")
    other = judging.check_file(tmp_path / "m.pt", against=Path("fp32.pt"), shapes=("1x3",))
    assert [each.code for each in other.findings] == wanted[:-1]


def test_whatever_is_said_of_a_quantized_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside that what stands in it, what overflows, what runs in float on each runtime, and which is faster."""

    def say(code: str) -> Finding:
        return Finding(severity="warning", code=code, text="")

    @contextlib.contextmanager
    def open_opponent(contest: Any, model: Any) -> Iterator[str]:
        yield judging.Opponent(file=Path("fp32.onnx"), name="its own fp32", own=True)

    checks = {
        "onnxruntime": run(known_batch_db=1.0, conversion=0.005, layers=layers(0, 2)),
        "openvino": run("openvino", call_seconds=0.001, layers=layers(0, 2)),
    }
    monkeypatch.setattr(judging.runtimes, "check_runtime", lambda backend, *_: checks[backend])
    monkeypatch.setattr(judging.core_peak, "find_peak", lambda: None)
    monkeypatch.setattr(judging, "_find_overflow", lambda contest: iter([say("overflow")]))
    monkeypatch.setattr(judging.graph_faults, "find_faults", lambda model: iter([say("scale-zero")]))
    monkeypatch.setattr(judging, "open_opponent", open_opponent)
    monkeypatch.setattr(judging, "race_onnx", lambda *_: SLOWER)
    nodes = [node("QuantizeLinear", ["x", "s", "z"], "q"), node("DequantizeLinear", ["q", "s", "z"], "y")]
    constants = {"s": np.float32(0.1), "z": np.uint8(0)}
    check = judging.check_file(write(tmp_path / "q.onnx", nodes, constants, inputs=(("x", ["n", 3]),)))
    assert [each.code for each in check.findings] == [
        "known-batch", "folded", "scale-zero", "overflow", "far-on-data", "conversions", "slower", "folded-elsewhere",
        "faster-elsewhere",
    ]  # fmt: skip
    assert (check.race, check.no_race) == (RACE, None)
