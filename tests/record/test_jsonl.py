"""Records and JSON Lines: one line a case, strict JSON, old files readable, newer ones refused by name."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qbench.errors import UsageError
from qbench.foreign_text import join_lines
from qbench.record import jsonl, schema
from qbench.record.schema import Accuracy, ArtifactFacts, CalibrationSeeds, CaseKey, Latency, Record, Speedup
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
