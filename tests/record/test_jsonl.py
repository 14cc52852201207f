"""Records and JSON Lines: one line a case, strict JSON, old files readable, newer ones refused by name."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qbench.errors import UsageError
from qbench.foreign_text import join_lines
from qbench.record import jsonl, schema
from qbench.record.schema import (
    Accuracy,
    ArtifactFacts,
    CalibrationSeeds,
    CaseKey,
    ColdStart,
    Latency,
    Memory,
    Record,
    Speedup,
)
from qbench.stats.interval_type import LARGEST, Interval

OLD = sorted((Path(__file__).parent.parent / "data/records").glob("*/records.jsonl"))


def key(name="m/static/x86/t1/b1"):
    model, mode, backend, _, _ = name.split("/")
    return CaseKey(id=name, model=model, mode=mode, backend=backend, threads=1, batch_size=1)


finite = st.floats(allow_nan=False, allow_infinity=False)
score = st.floats(-LARGEST, LARGEST)
line = st.text().map(join_lines)  # what is a name, or a setting, is one line once it is read
positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
latencies = st.builds(
    Latency,
    **{
        name: st.none() | positive
        for name in ("p50_seconds", "p50_low", "p50_high", "p90_seconds", "p99_seconds", "mean_seconds")
    },
    n=st.integers(0, 10**6),
)
speedups = st.builds(
    Speedup,
    baseline=line,
    value=positive,
    low=st.none() | positive,
    high=st.none() | positive,
    control=st.none() | st.builds(Interval, value=positive),
)
seed_scores = st.integers(1, 4).flatmap(
    lambda n: st.builds(
        CalibrationSeeds,
        seeds=st.tuples(*[st.integers(0, 2**32)] * n),
        values=st.tuples(*[st.none() | score] * n),
        predictions=st.just(()) | st.tuples(*[st.none() | st.sampled_from(["predictions/a.npz", "b"])] * n),
        reasons=st.just(()) | st.tuples(*[st.none() | st.text()] * n),
    )
)
accuracies = st.builds(
    Accuracy,
    metric=line,
    value=score,
    low=st.none() | score,
    high=st.none() | score,
    n=st.integers(1, 10**6),
    calibration=st.none() | seed_scores,
    shared_examples=st.none() | st.integers(0, 10**6),
)
records = st.builds(
    Record,
    case=st.just(key()),
    status=st.sampled_from(["ok", "failed", "skipped"]),
    reason=st.none() | st.text(),
    latency=st.none() | latencies,
    speedup=st.none() | speedups,
    accuracy=st.none() | accuracies,
    observed=st.none() | st.dictionaries(line, st.integers() | line | st.none()),
    elapsed_seconds=st.dictionaries(st.sampled_from(["build", "measure"]), finite),
)


@given(records)
@example(Record(case=key(), status="failed", reason="two\nlines\tof it"))
def test_a_record_survives_its_line(record):
    """Written and read again it is equal, whatever the text in it; the line has no line break."""
    line = jsonl.to_line(record)
    assert "\n" not in line
    assert jsonl.from_line(line) == record


@given(st.text())
@example("a\nb\tc")
def test_a_name_is_one_line_once_it_is_read(text):
    """Somebody else may have made it: told in a table or a log, it begins no line of its own."""
    stored = Record(
        case=key(),
        status="ok",
        speedup=Speedup(baseline=text, value=1.0, low=None, high=None),
        observed={text: text},
    )
    read = jsonl.from_line(jsonl.to_line(stored))
    assert (read.speedup.baseline, read.observed) == (join_lines(text), {join_lines(text): join_lines(text)})


@pytest.mark.parametrize("file", OLD, ids=lambda path: path.parent.name)
def test_files_of_every_schema_are_read(file):
    """Real files of every version that was ever written stay readable, line by line."""
    stored = jsonl.read(file)
    assert len(stored) == sum(1 for line in file.read_text().splitlines() if line)
    assert all(record.schema <= schema.SCHEMA for record in stored)


def test_every_schema_number_has_a_file():
    """A new number needs a fixture of the old one first."""
    assert {record.schema for file in OLD for record in jsonl.read(file)} == set(range(1, schema.SCHEMA + 1))


def test_each_calibration_seed_of_a_record_has_a_value():
    """A line where a seed lacks its value is named as damaged, instead of failing a report later."""
    scores = CalibrationSeeds(seeds=(0, 1), values=(0.5, None), predictions=("a", None), reasons=(None, "why"))
    accuracy = Accuracy(metric="top1", value=0.5, low=None, high=None, n=2, calibration=scores)
    line = jsonl.to_line(Record(case=key(), status="ok", accuracy=accuracy))
    assert jsonl.from_line(line).accuracy.calibration == scores
    with pytest.raises(UsageError, match=r"<text>:1: accuracy\.calibration: .*differ in length"):
        jsonl.from_line(line.replace('"values": [0.5, null]', '"values": [0.5]'))


def test_added_keys_are_ignored():
    """Keys may be added within a schema number: an older reader passes over them."""
    data = json.loads(jsonl.to_line(Record(case=key(), status="ok")))
    data["new"] = {"a": 1}
    data["case"]["new"] = 2
    assert jsonl.from_line(json.dumps(data)) == Record(case=key(), status="ok")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", r"f\.jsonl:3:2: not JSON"),
        ("[]", "no schema number"),
        ('{"schema": 99}', "has schema 99, this qbench reads up to 1"),
        ('{"schema": 1, "status": "ok"}', r"f\.jsonl:3: case: "),
        ('{"schema": 1, "status": "fine", "case": {}}', r"f\.jsonl:3: "),
    ],
)
def test_a_line_that_is_no_record_is_named(line, words):
    """File, line and field, and for a newer schema what to do."""
    with pytest.raises(UsageError, match=words):
        jsonl.from_line(line, file="f.jsonl", number=3)


@pytest.mark.parametrize(
    ("part", "changes", "words"),
    [
        ("speedup", {"value": 0.0}, "speedup.value: Input should be greater than 0"),
        ("speedup", {"low": -1.0}, "speedup.low: Input should be greater than 0"),
        ("speedup", {"level": 1.0}, "speedup.level: Input should be less than 1"),
        ("speedup", {"value": "nan"}, "speedup.value: Input should be a finite number"),
        (
            "speedup",
            {"control": {"value": 1.0, "low": 0.0}},
            "speedup: .*control: a ratio of two times must be above 0",
        ),
        ("accuracy", {"n": 0}, "accuracy.n: Input should be greater than or equal to 1"),
        ("accuracy", {"delta": {"value": "-Infinity"}}, "accuracy.delta.value: Input should be a finite number"),
        ("accuracy", {"agreement": 1.5}, "accuracy.agreement: Input should be less than or equal to 1"),
        ("artifact", {"size_bytes": 0}, "artifact.size_bytes: Input should be greater than or equal to 1"),
        ("case", {"threads": 0}, "case.threads: Input should be greater than or equal to 1"),
        ("accuracy", {"n": 2**63}, "accuracy.n: Input should be less than or equal to 1000000000000000000"),
        ("accuracy", {"only_answer": 10**400}, "accuracy.only_answer: Input should be less than or equal to 10"),
    ],
)
def test_a_value_that_no_measurement_gives_is_refused_with_its_field(part, changes, words):
    """No ratio, logarithm or share exists of a time of 0 or of 0 examples, and no column of a table holds a count
    of more than 64 bits: the line is refused when it is read, not by a traceback of whoever divides by it."""
    full = Record(
        case=key(),
        status="ok",
        speedup=Speedup(baseline="b", value=2.0, low=1.9, high=2.1),
        accuracy=Accuracy(metric="top1", value=0.5, low=None, high=None, n=2),
        artifact=ArtifactFacts(format="onnx", sha256="0" * 64, size_bytes=1),
    )
    data = json.loads(jsonl.to_line(full))
    data[part] |= changes
    with pytest.raises(UsageError, match=f"<text>:1: {words}"):
        jsonl.from_line(json.dumps(data))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("1e999", "the number 1e999 is beyond what a float holds"),
        ("NaN", "NaN is no number of JSON"),
        ("[" * 100_000, "nested too deep"),
        ("9" * 5_000, "Exceeds the limit"),
    ],
)
def test_a_line_that_only_python_accepts_as_json_is_refused(value, words):
    """Python reads NaN and makes 1e999 infinite; brackets alone end its recursion."""
    line = jsonl.to_line(Record(case=key(), status="ok")).replace('"observed": null', f'"observed": {{"a": {value}}}')
    with pytest.raises(UsageError, match=f"<text>:1.*: not JSON: {words}"):
        jsonl.from_line(line)


@pytest.mark.parametrize("changes", [{"value": -1e200}, {"high": 1e200}, {"delta": {"value": 0.0, "low": -1e200}}])
def test_a_score_whose_square_no_float_holds_is_refused(changes):
    """Whoever decides by it takes squares of scores and of their changes."""
    accuracy = Accuracy(metric="far", value=LARGEST, low=None, high=None, n=2, delta=Interval(value=-LARGEST))
    data = json.loads(jsonl.to_line(Record(case=key(), status="ok", accuracy=accuracy)))
    assert jsonl.from_line(json.dumps(data)).accuracy == accuracy
    data["accuracy"] |= changes
    with pytest.raises(UsageError, match=f"<text>:1: accuracy\\.{next(iter(changes))}: "):
        jsonl.from_line(json.dumps(data))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_is_refused(value):
    """NaN is not JSON and not a measurement; null is for what is unknown."""
    with pytest.raises(ValueError, match="JSON"):
        jsonl.to_line(Record(case=key(), status="ok", throughput_per_second=value))


def test_the_last_record_of_a_case_wins(tmp_path):
    """A case that was tried again has one record."""
    file = tmp_path / "records.jsonl"
    for status in ("failed", "ok"):
        jsonl.append(file, Record(case=key(), status=status))
    assert [record.status for record in jsonl.read(tmp_path)] == ["ok"]


def test_a_torn_last_line_is_dropped_and_mended(tmp_path):
    """What a kill leaves is passed over when reading and cut off when writing."""
    file = tmp_path / "records.jsonl"
    jsonl.append(file, Record(case=key(), status="ok"))
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:50])
    assert len(jsonl.read(file)) == 1
    jsonl.append(file, Record(case=key("m/qat/x86/t1/b1"), status="ok"))
    assert len(jsonl.read(file)) == 2
    assert len(file.read_bytes().splitlines()) == 2


def test_a_damaged_line_inside_is_an_error(tmp_path):
    """Only the end can be torn; anything else is damage that nobody should overlook."""
    file = tmp_path / "records.jsonl"
    line = jsonl.to_line(Record(case=key(), status="ok"))
    file.write_text(f"{line}\n{line[:40]}\n{line}\n")
    with pytest.raises(UsageError, match=r"records\.jsonl:2:"):
        jsonl.read(file)


def test_a_missing_file_is_a_message(tmp_path):
    """No traceback for a wrong path."""
    with pytest.raises(UsageError, match="cannot read records"):
        jsonl.read(tmp_path / "nowhere")


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    """write() replaces; nothing temporary stays."""
    file = tmp_path / "r.jsonl"
    jsonl.write(file, [Record(case=key(), status="ok")])
    jsonl.write(file, [Record(case=key(), status="failed")])
    assert [record.status for record in jsonl.read(file)] == ["failed"]
    assert list(tmp_path.iterdir()) == [file]


GOOD = jsonl.to_line(Record(case=key(), status="ok"))
FINE = GOOD.replace('"ok"', '"fine"')  # no status


@pytest.mark.parametrize(
    ("line", "advice", "said"),
    [
        ("{", None, "f:2:2: not JSON: Expecting property name enclosed in double quotes; remove the line, or its case "
                    "is lost to every command"),
        ("[" * 100_000, None, "f:2: not JSON: nested too deep; remove the line, or its case is lost to every command"),
        ("[" * 100_000, "do this", "f:2: not JSON: nested too deep; do this"),
        ("[]", None, "f:2: not a qbench record: it has no schema number"),
        ('{"schema": 0}', "do this", "f:2: not a qbench record: it has no schema number; do this"),
        ('{"schema": "1"}', None, "f:2: not a qbench record: it has no schema number"),
        (FINE, None, "f:2: status: Input should be 'ok', 'failed' or 'skipped'"),
        (FINE, "do this", "f:2: status: Input should be 'ok', 'failed' or 'skipped'; do this"),
        ('{"schema": 1, "status": "fine"}', None, "f:2: case: Field required"),
    ],
)  # fmt: skip
def test_a_refusal_is_place_reason_and_advice_and_nothing_else(line, advice, said):
    """Of several faults the first one is told; where nobody gave an advice none stands there."""
    with pytest.raises(UsageError) as caught:
        jsonl.from_line(line, file="f", number=2, advice=advice)
    assert str(caught.value) == said


def test_a_file_that_was_written_at_once_has_each_case_once(tmp_path):
    """A case that stands there twice, and a line that was cut off, are what a merge or an edit left; empty lines are
    none."""
    file, other = tmp_path / "b.jsonl", jsonl.to_line(Record(case=key("m/qat/x86/t1/b1"), status="ok"))
    file.write_text(f"{GOOD}\n\n{other}\n")
    assert [record.case.id for record in jsonl.read_whole(file, "do this")] == [key().id, "m/qat/x86/t1/b1"]
    file.write_text(f"{other}\n{GOOD}\n{GOOD}\n")
    with pytest.raises(UsageError) as caught:
        jsonl.read_whole(file, "do this")
    assert str(caught.value) == f"{file}:3: {key().id} stands in line 2, too, as after a merge; do this"
    file.write_text(f"{GOOD}\n{other[:40]}")
    with pytest.raises(UsageError, match=r"b\.jsonl:2:.*; do this$"):
        jsonl.read_whole(file, "do this")


def test_a_file_that_cannot_be_read_says_why(tmp_path):
    """In the words of the system, or by the byte that is no UTF-8."""
    with pytest.raises(UsageError) as caught:
        jsonl.read(tmp_path / "nowhere")
    assert str(caught.value) == f"{tmp_path / 'nowhere'}: cannot read records: No such file or directory"
    (tmp_path / "bytes").write_bytes(b"ab\xff")
    with pytest.raises(UsageError, match="bytes: not a records file: invalid start byte at byte 2$"):
        jsonl.read(tmp_path / "bytes")


def test_an_added_record_is_on_disk_before_the_next_begins(tmp_path, monkeypatch):
    """What is forced there is the whole line: a machine that loses its power loses no case that was measured."""
    forced, file = [], tmp_path / "records.jsonl"
    monkeypatch.setattr(os, "fsync", lambda descriptor: forced.append(os.fstat(descriptor).st_size))
    for _ in range(2):
        jsonl.append(file, Record(case=key(), status="ok"))
    assert forced == [len(GOOD) + 1, 2 * (len(GOOD) + 1)]
    assert file.read_text() == f"{GOOD}\n" * 2


def test_letters_of_any_language_stand_in_a_line_as_they_are():
    """It is read by people, too."""
    assert '"reason": "n\u00e4t"' in jsonl.to_line(Record(case=key(), status="ok", reason="n\u00e4t"))


@pytest.mark.parametrize(
    ("part", "changes", "words"),
    [
        ("memory", {"peak_rss_bytes": -1}, "memory.peak_rss_bytes: Input should be greater than or equal to 0"),
        ("cold_start", {"load_seconds": -0.1}, "cold_start.load_seconds: Input should be greater than or equal to 0"),
        ("speedup", {"level": 0.0}, "speedup.level: Input should be greater than 0"),
        ("speedup", {"control": {"value": 0.0}}, "speedup: Value error, control: a ratio of two times"),
        ("accuracy", {"agreement": -0.1}, "accuracy.agreement: Input should be greater than or equal to 0"),
    ],
)
def test_the_least_that_a_measurement_gives_is_read_and_less_is_refused(part, changes, words):
    """Nothing where nothing can be, and all of it as a share."""
    full = Record(
        case=key(),
        status="ok",
        speedup=Speedup(baseline="b", value=1e-9, low=1e-9, high=1e-9, level=1e-9, control=Interval(value=1e-9)),
        accuracy=Accuracy(metric="top1", value=0.5, low=None, high=None, n=10**18, agreement=1.0, only_answer=0),
        cold_start=ColdStart(load_seconds=0.0, first_call_seconds=1e-9),
        memory=Memory(loaded_rss_bytes=0, peak_rss_bytes=0),
    )
    assert jsonl.from_line(jsonl.to_line(full)) == full
    data = json.loads(jsonl.to_line(full))
    data[part] |= changes
    with pytest.raises(UsageError, match=words.replace("Value error, ", "(Value error, )?")):
        jsonl.from_line(json.dumps(data))


def test_every_text_of_what_a_library_said_is_one_line():
    """However deep it stands; numbers stay numbers."""
    said = {"a": ["x\ny", {"k\nl": "v\tw"}, 3], "n": {"deep": None}}
    stored = Record(case=key(), status="ok", observed=said)
    joined = [join_lines(text) for text in ("x\ny", "k\nl", "v\tw")]
    read = jsonl.from_line(jsonl.to_line(stored)).observed
    assert read == {"a": [joined[0], {joined[1]: joined[2]}, 3], "n": {"deep": None}}
    assert joined[0] != "x\ny"


@pytest.mark.parametrize(
    ("seeds", "values", "predictions", "reasons"),
    [
        ([0, 1], [0.5, 0.5], ["a"], []),
        ([0, 1], [0.5, 0.5], [], ["why"]),
        ([], [0.5], [], []),
        ([0], [], [], []),
        ([], [], [], []),
    ],
)
def test_seeds_of_a_record_have_all_or_none_of_each_kind(seeds, values, predictions, reasons):
    """And there is one at least."""
    with pytest.raises(ValueError, match="differ in length"):
        CalibrationSeeds(
            seeds=tuple(seeds), values=tuple(values), predictions=tuple(predictions), reasons=tuple(reasons)
        )
