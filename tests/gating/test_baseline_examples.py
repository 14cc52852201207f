"""What a baseline keeps of its examples, and the gate against such a baseline."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from made_records import CASE, FP32, fp32, info, int8
from made_runs import run_folder

from qbench.cli.compare import compare
from qbench.datasets import overlap
from qbench.datasets.base import Examples
from qbench.errors import UsageError
from qbench.gating import baseline_examples, gate
from qbench.gating.baseline import examples_file, read_baseline, write_baseline
from qbench.gating.rules import judge_records
from qbench.gating.verdict import Verdict
from qbench.record.example_scores import ExampleScores
from qbench.record.schema import Accuracy, Record
from qbench.record.stored_run import MetricInfo, SuiteInfo, read_run
from qbench.stats.interval_type import Interval

N = 1000
RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (N, 12)).astype(np.uint8)
LABELS = RANDOM.integers(0, 3, N)
SUITE = """suite: demo
models: [digits-cnn]
data: {dataset: digits}
matrix: {}
gate:
  accuracy: {metric: METRIC, margin: 1.0}
"""


def outputs(wrong: int, seed: int) -> np.ndarray:
    """Scores of three classes; so many of the examples are wrong."""
    places = np.random.default_rng(seed).permutation(N)[:wrong]
    changed = LABELS.copy()
    changed[places] = (changed[places] + 1) % 3
    return np.eye(3, dtype=np.float32)[changed]


def run(folder: Path, wrong: int, *, metric: str = "top1", seed: int = 1, order: Any = slice(None)) -> Path:
    """A run on disk: fp32 and int8 with the same answers, so many of them wrong."""
    from qbench import registry

    judge = registry.load("metric", metric)
    arguments = outputs(wrong, seed)[order]
    value = float(judge.value(arguments, LABELS[order]))
    own_metric = MetricInfo(name=metric, percent=judge.percent, higher_is_better=judge.higher_is_better)
    described = info(
        (FP32, CASE), metric=own_metric, suite=SuiteInfo(name="demo", text=SUITE.replace("METRIC", metric))
    )
    plain = Accuracy(metric=metric, value=value, low=None, high=None, n=N)
    changed = replace(plain, delta=Interval(value=0.0, low=-0.001, high=0.001))
    records = [replace(fp32(), accuracy=plain), replace(int8(accuracy=changed), predictions="predictions/int8.npz")]
    path = run_folder(folder, [replace(records[0], predictions="predictions/fp32.npz"), records[1]], described)
    (path / "predictions").mkdir()
    arrays = {
        "outputs": arguments,
        "labels": LABELS[order],
        "ids": np.arange(N).astype(str),
        "contents": overlap.digest_examples(Examples(inputs=(IMAGES[order],), labels=None)),
    }
    for name in ("fp32", "int8"):
        np.savez(path / "predictions" / f"{name}.npz", **arrays)
    return path


def regression(folder: Path, baseline: Path) -> Verdict:
    """The verdict of the metric against the baseline's int8."""
    gated = gate.gate_run(folder, baseline)
    (verdict,) = (verdict for verdict in gated.verdicts if verdict.rule.endswith("regression"))
    return verdict


@pytest.mark.parametrize("metric", ["top1", "f1", "balanced_accuracy", "recall:1"])
def test_a_loss_of_both_is_found_by_every_metric_of_classes(tmp_path: Path, metric: str) -> None:
    """Twelve points less for fp32 and int8 alike is FAIL, the same answers in another order PASS, whether the metric is
    a mean over examples or made from all of them."""
    baseline = write_baseline(run(tmp_path / "old", 20, metric=metric), tmp_path)
    worse = regression(run(tmp_path / "worse", 140, metric=metric, seed=2), baseline)
    assert worse.outcome == "FAIL"
    assert worse.value == pytest.approx(-0.12, abs=0.03)
    order = np.random.default_rng(5).permutation(N)
    same = regression(run(tmp_path / "same", 20, metric=metric, order=order), baseline)
    assert same.outcome == "PASS"
    assert "identical" in same.text


def test_the_file_is_small_and_the_same_for_the_same_run(tmp_path: Path) -> None:
    """A bit an example and case, and keys once: 8.5 kB for 1,000 examples; nothing depends on the folder's name."""
    file = examples_file(write_baseline(run(tmp_path / "a", 20), tmp_path / "x"))
    two = examples_file(write_baseline(run(tmp_path / "b", 20), tmp_path / "y"))
    assert file.read_bytes() == two.read_bytes()
    assert file.stat().st_size < 8600
    content = baseline_examples.read(file)
    assert list(content) == [CASE]
    assert content[CASE].values.sum() == N - 20


def test_a_baseline_without_predictions_keeps_no_examples_and_none_of_a_former_one(tmp_path: Path) -> None:
    """What an earlier baseline left beside it must not be held against another run's records."""
    file = write_baseline(run(tmp_path / "a", 20), tmp_path)
    bare = run_folder(tmp_path / "b", [fp32(), int8()], info())
    assert write_baseline(bare, tmp_path) == file
    assert not examples_file(file).exists()
    assert read_baseline(file).examples == {}


def test_examples_of_a_case_that_differ_or_have_no_number_are_not_kept() -> None:
    """One file has one list of examples, that of the first case; a score that is not a number is none. fp32 and what
    failed are not judged."""
    cases = ["net/static/a/t1/b1", "net/static/b/t1/b1", "net/static/c/t1/b1", "net/static/d/t1/b1", FP32]
    keys = np.arange(3, dtype=np.uint64)
    kept = dict.fromkeys(cases, ExampleScores(values=np.array([1.0, 0.0, 1.0]), contents=keys))
    kept[cases[1]] = ExampleScores(values=np.array([1.0, np.nan, 1.0]), contents=keys)
    kept[cases[2]] = ExampleScores(values=np.array([1.0, 0.0, 1.0]), contents=keys + 1)
    records = [*(int8(case) for case in cases[:3]), replace(int8(cases[3]), status="failed"), fp32()]
    run: Any = SimpleNamespace(records=records, examples=lambda record, fp32: kept[record.case.id])
    text = baseline_examples.to_text(run)
    assert text is not None
    assert list(json.loads(text)["cases"]) == cases[:1]


def test_examples_are_those_of_the_first_case_by_number_and_by_name() -> None:
    """Fewer examples, other names, or keys where the first case has none are other examples; equal ones are kept. The
    file has a field a line, and letters are letters."""
    values, ids = np.array([1.0, 0.0, 1.0]), np.arange(3, dtype=np.uint64)
    others = {
        "net/static/a/t1/b1": ExampleScores(values=values, ids=ids),
        "net/static/b/t1/b1": ExampleScores(values=values[:2], ids=ids[:2]),
        "net/static/c/t1/b1": ExampleScores(values=values, ids=ids + 1),
        "net/static/d/t1/b1": ExampleScores(values=values),
        "net/static/e/t1/b1": ExampleScores(values=values, ids=ids, contents=ids),
        "nét/static/f/t1/b1": ExampleScores(values=1 - values, ids=ids.copy()),
    }

    def keep(*cases: str) -> str:
        records = [int8(case) for case in cases]
        run: Any = SimpleNamespace(records=records, examples=lambda record, fp32: others[record.case.id])
        return str(baseline_examples.to_text(run))

    first, *rest = others
    assert list(json.loads(keep(*others))["cases"]) == [first, rest[-1]]
    assert list(json.loads(keep(rest[2], rest[0]))["cases"]) == [rest[0]]
    assert keep(*others).startswith('{\n "schema": 1,\n "n": 3,\n "contents": null,\n "ids": "')
    assert "nét" in keep(*others)


def test_a_file_may_hold_as_many_numbers_as_anybody_has(tmp_path: Path) -> None:
    """A hundred million: for so many the bytes are missed; of more nothing is unpacked."""
    file = tmp_path / "demo.examples.json"
    for shape, words in (
        ([2, 50_000_000], "has 0 bytes of values, expected 400000000 for"),
        ([2, 50_000_001], "more numbers than anybody has"),
        ([2, 100_000_001], "less than or equal to 100000000;"),
    ):
        case = {"form": "f4", "shape": shape, "facts": True, "values": ""}
        file.write_text(damaged(lambda content, case=case: content["cases"].update({CASE: case})))
        with pytest.raises(UsageError, match=words):
            baseline_examples.read(file)


@pytest.mark.parametrize(
    ("values", "facts", "form"),
    [
        (np.array([1.0, 0.0, 1.0]), False, "bits"),
        (np.arange(9) % 2, False, "bits"),
        (np.array([1.0, 0.5, 0.0]), False, "f4"),
        (np.array([2, -3, 2**31 - 1]), False, "i4"),
        (np.array([2.0, 3.0, 4.0]), False, "f4"),
        (np.array([2, 3, 2**31]), False, "f4"),
        (np.array([[1, 0], [0, 1], [1, 1]]), True, "i4"),
        (np.array([[1.5, 0], [0, 1], [1, 1]]), True, "f4"),
        (np.ones((3, 2, 2)), True, "f4"),
    ],
)
def test_values_are_kept_in_the_smallest_form_that_holds_them(
    tmp_path: Path, values: np.ndarray, facts: bool, form: str
) -> None:
    """And come back as they were, those of several axes unpacked."""
    case = baseline_examples._encode_case(ExampleScores(values=values, facts=facts))
    assert (case["form"], "deflated" in case) == (form, values.ndim == 3)
    content = {"schema": 1, "n": len(values), "contents": None, "ids": None, "cases": {CASE: case}}
    file = tmp_path / "demo.examples.json"
    file.write_text(json.dumps(content))
    scores = baseline_examples.read(file)[CASE]
    assert np.array_equal(scores.values, values)
    assert scores.facts is facts


def damaged(change: Any) -> str:
    """The text of a kept file of two examples after a change to it."""
    content: dict[str, Any] = {
        "schema": 1,
        "n": 2,
        "contents": "AAAAAAABAAAAAAAC",
        "ids": None,
        "cases": {CASE: {"form": "f4", "shape": [2], "facts": False, "values": "AACAPwAAAAA="}},
    }
    change(content)
    return json.dumps(content)


DAMAGE = {
    "NaN or infinite": lambda content: content["cases"][CASE].update(values="AADAfwAAAAA="),
    "expected 8 for the shape": lambda content: content["cases"][CASE].update(values="AACAPw=="),
    "expected 2 examples": lambda content: content["cases"][CASE].update(shape=[3]),
    "contents: 6 bytes, expected 12": lambda content: content.update(contents="AAAAAAAB"),
    "cases.*values: ": lambda content: content["cases"][CASE].update(values=5),
    "schema": lambda content: content.update(schema=7),
    "greater than": lambda content: content.update(n=0),
    "less than": lambda content: content["cases"][CASE].update(shape=[2, 10**12]),
    "base64|padding|characters": lambda content: content["cases"][CASE].update(values="?"),
}


@pytest.mark.parametrize("said", DAMAGE)
def test_a_damaged_file_is_one_message(tmp_path: Path, said: str) -> None:
    """NaN, wrong lengths and types are said with the file and what to do; nothing is taken on trust."""
    file = tmp_path / "demo.examples.json"
    file.write_text(damaged(lambda content: None))
    assert baseline_examples.read(file)[CASE].values.tolist() == [1.0, 0.0]
    file.write_text(damaged(DAMAGE[said]))
    with pytest.raises(UsageError, match=rf"demo\.examples\.json: .*(?:{said}).*write the baseline again"):
        baseline_examples.read(file)


def test_facts_of_boxes_are_kept_small_and_come_back(tmp_path: Path) -> None:
    """500 scenes of 100 boxes, as they are in a run, take less than half of their bytes; nothing of them is lost."""
    random = np.random.default_rng(0)
    facts = np.full((500, 104, 4), -1.0)
    facts[:, :100, 0] = random.integers(0, 3, (500, 100))
    facts[:, :100, 1] = random.random((500, 100)).astype(np.float32)
    facts[:, :100, 2:] = random.integers(0, 2, (500, 100, 2)) * 1023
    case = baseline_examples._encode_case(ExampleScores(values=facts, facts=True))
    assert len(case["values"]) < 0.5 * facts.size * 4
    content = {"schema": 1, "n": 500, "contents": None, "ids": None, "cases": {CASE: case}}
    file = tmp_path / "demo.examples.json"
    file.write_text(json.dumps(content))
    assert np.array_equal(baseline_examples.read(file)[CASE].values, facts)


@pytest.mark.parametrize(
    ("shape", "words"),
    [([2, 4], "has 33 bytes of values, expected 32"), ([2, 10**8], "more numbers than anybody has")],
)
def test_no_more_is_unpacked_than_a_shape_says(tmp_path: Path, shape: list[int], words: str) -> None:
    """A few bytes may stand for gigabytes: what a pull request brings is data."""
    packed = base64.b64encode(zlib.compress(b"\0" * 10**7)).decode()
    case = {"form": "f4", "shape": shape, "facts": True, "deflated": True, "values": packed}
    file = tmp_path / "demo.examples.json"
    file.write_text(damaged(lambda content: content["cases"].update({CASE: case})))
    with pytest.raises(UsageError, match=words):
        baseline_examples.read(file)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, "\x00"])
def test_text_that_is_no_kept_file_is_one_message(tmp_path: Path, text: str) -> None:
    """Cut, empty, nested too deep: a usage error, without an empty place where the whole text is at fault."""
    file = tmp_path / "demo.examples.json"
    file.write_text(text)
    with pytest.raises(UsageError, match="write the baseline again") as raised:
        baseline_examples.read(file)
    assert ": :" not in str(raised.value)


def test_examples_of_another_run_than_the_records_are_invalid(tmp_path: Path) -> None:
    """After a merge that took one file of each side their scores differ: the case is INVALID (exit code 3), and held
    against nothing of the baseline; so is one whose examples have no record."""
    first, second = run(tmp_path / "a", 20), run(tmp_path / "b", 80)
    file = write_baseline(first, tmp_path / "x")
    examples_file(file).write_bytes(examples_file(write_baseline(second, tmp_path / "y")).read_bytes())
    with pytest.raises(
        UsageError, match=r"examples score 0\.92, its record in the baseline 0\.98: they are of two runs;"
    ):
        compare(str(file), str(first))
    gated = gate.gate_run(first, file, as_run=True)
    said = {verdict.rule: f"{verdict.text}; {verdict.reason}" for verdict in gated.verdicts}
    assert [verdict.rule for verdict in gated.verdicts].count("baseline") == 1
    assert gated.exit_code == 3
    assert said["baseline"].startswith("its examples score 0.92, its record in the baseline 0.98; they are of two runs")
    assert not any(rule.endswith((" regression", "growth")) for rule in said)
    examples_file(file).write_text(damaged(lambda content: content["cases"].update({"x": content["cases"].pop(CASE)})))
    gated = gate.gate_run(first, file, as_run=True)
    (wrong,) = (verdict for verdict in gated.verdicts if verdict.outcome == "INVALID")
    assert (gated.exit_code, wrong.case, wrong.rule) == (3, "x", "baseline")
    assert "no record in the baseline" in wrong.text


def test_a_metric_in_its_own_unit_is_tested_by_its_values(tmp_path: Path) -> None:
    """An error of each example (lower is better) is kept as a number; equal errors of another artifact leave the room
    that so many examples may hide."""
    values = np.abs(np.random.default_rng(3).normal(1.0, 0.1, N))
    verdicts = []
    for shift, sha in ((0.0, "0"), (0.0, "1"), (0.5, "1")):
        verdicts.append(_own(values, values + shift, sha))
    assert [verdict.outcome for verdict in verdicts] == ["PASS", "PASS", "FAIL"]
    assert verdicts[0].text.startswith("1, identical") or "identical" in verdicts[0].text
    assert verdicts[1].low is not None
    assert verdicts[1].low < 0
    assert verdicts[2].value == pytest.approx(-0.5, abs=1e-6)


def _own(old: np.ndarray, new: np.ndarray, sha: str) -> Verdict:
    from qbench import suite
    from qbench.gating.baseline import Baseline
    from qbench.record.example_scores import ExampleScores

    keys = np.arange(N, dtype=np.uint64)
    policy = suite.parse(SUITE.replace("METRIC", "mae").replace("1.0", "0.1"), file="s.yaml")
    own_info = info(metric=MetricInfo(name="mae", percent=False, higher_is_better=False))

    def record(values: np.ndarray, name: str) -> Record:
        value = float(values.mean())
        record = int8(accuracy=Accuracy(metric="mae", value=value, low=value, high=value, n=N))
        assert record.artifact is not None
        return replace(record, artifact=replace(record.artifact, sha256=name * 64))

    baseline = Baseline(
        info=own_info, records=(record(old, "0"),), examples={CASE: ExampleScores(values=old, contents=keys)}
    )
    verdicts = judge_records(
        [fp32(), record(new, sha)],
        own_info,
        policy.gate,
        place=policy.place,
        baseline=baseline,
        examples=lambda record: ExampleScores(values=new, contents=keys),
    )
    (verdict,) = (verdict for verdict in verdicts if verdict.rule == "mae regression")
    return verdict


def search_run(folder: Path, noise: float, *, extra: int = 0, of: slice = slice(None)) -> Path:
    """A run of 300 queries over 400 documents, its embeddings so noisy; ``extra``: documents more, ``of``: its rows."""
    from qbench.metrics.retrieval import RankScore

    random, queries, documents = np.random.default_rng(3), 300, 400 + extra
    texts = random.normal(size=(400, 16)), random.normal(size=(100, 16))
    vectors = np.concatenate([texts[0], texts[1][:extra], texts[0][:queries] + 0.9 * random.normal(size=(queries, 16))])
    labels = np.full((documents + queries, 2, 2), -1, dtype=np.int64)
    labels[:documents, 0, 0] = np.arange(documents)
    labels[documents:, 1, 0], labels[documents:, 1, 1] = np.arange(queries), 1
    names = [f"document {n}" for n in range(documents)] + [f"query {n}" for n in range(queries)]
    stored = {
        "outputs": (vectors + noise * np.random.default_rng(4).normal(size=vectors.shape)).astype(np.float32)[of],
        "labels": labels[of],
        "ids": np.array(names)[of],
        "contents": overlap.digest_examples(Examples(inputs=(vectors,), labels=None))[of],
    }
    value = RankScore("ndcg", 10).value(stored["outputs"], stored["labels"])
    metric = MetricInfo(name="ndcg@10")
    described = info((FP32, CASE), metric=metric, suite=SuiteInfo(name="demo", text=SUITE.replace("METRIC", "ndcg@10")))
    plain = Accuracy(metric="ndcg@10", value=value, low=value - 0.05, high=value + 0.05, n=queries)
    changed = replace(plain, delta=Interval(value=0.0, low=-0.001, high=0.001))
    records = [replace(fp32(), accuracy=plain), replace(int8(accuracy=changed), predictions="predictions/int8.npz")]
    path = run_folder(folder, [replace(records[0], predictions="predictions/fp32.npz"), records[1]], described)
    (path / "predictions").mkdir()
    for name in ("fp32", "int8"):
        np.savez(path / "predictions" / f"{name}.npz", **stored)
    return path


def test_queries_are_paired_with_those_that_the_baseline_keeps(tmp_path: Path) -> None:
    """A loss of fp32 and int8 alike is found by query, far inside the limits of two scores that are not paired; the
    same answers, in another order, are identical."""
    baseline = write_baseline(search_run(tmp_path / "old", 0.0), tmp_path)
    assert len(baseline_examples.read(examples_file(baseline))[CASE].values) == 300
    worse = regression(search_run(tmp_path / "worse", 0.3), baseline)
    assert worse.outcome == "FAIL"
    assert "not paired" not in worse.text
    assert worse.high is not None
    assert worse.low is not None
    assert worse.high - worse.low < 0.05
    same = regression(search_run(tmp_path / "same", 0.0, of=slice(None, None, -1)), baseline)
    assert same.outcome == "PASS"
    assert "identical" in same.text


def test_a_query_over_other_documents_is_the_same_by_its_name_alone(tmp_path: Path) -> None:
    """A document more makes every query another task, which the verdict says; a query that is gone is not paired."""
    baseline = write_baseline(search_run(tmp_path / "old", 0.0), tmp_path)
    more = regression(search_run(tmp_path / "more", 0.0, extra=1), baseline)
    assert "300 of them the same by id alone" in more.text
    fewer = regression(search_run(tmp_path / "fewer", 0.0, of=slice(0, 650)), baseline)
    assert "on 250 shared examples (baseline 300, run 250)" in fewer.text


def test_compare_pairs_queries_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two runs, and a run and a baseline: by query, as JSON says."""
    old, new = search_run(tmp_path / "old", 0.0), search_run(tmp_path / "worse", 0.3)
    baseline = write_baseline(old, tmp_path)
    for base in (old, baseline):
        compare(str(base), str(new), as_json=True)
        (delta,) = (d for d in json.loads(capsys.readouterr().out)["deltas"] if d["case"] == CASE)
        assert delta["paired"] == 300


def test_a_stored_run_is_read_as_it_was_judged_where_the_index_stays(tmp_path: Path) -> None:
    """What a baseline keeps is of int8's queries over fp32's documents: its mean is the record's score."""
    from qbench.metrics.retrieval import BY_FP32, RankScore

    folder = search_run(tmp_path / "run", 0.0)
    with np.load(folder / "predictions" / "fp32.npz") as stored:
        arrays = dict(stored)
    arrays["labels"][:400, 0, 1] = BY_FP32
    np.savez(folder / "predictions" / "fp32.npz", **arrays)
    noisy = arrays["outputs"] + np.random.default_rng(4).normal(size=arrays["outputs"].shape).astype(np.float32)
    np.savez(folder / "predictions" / "int8.npz", **{**arrays, "outputs": noisy})
    mixed = np.concatenate([arrays["outputs"][:400], noisy[400:]])
    kept = baseline_examples.to_text(read_run(folder))
    assert kept is not None
    (tmp_path / "kept.json").write_text(kept)
    values = baseline_examples.read(tmp_path / "kept.json")[CASE].values
    assert values.mean() == pytest.approx(RankScore("ndcg", 10).value(mixed, arrays["labels"]), abs=1e-6)
    (folder / "predictions" / "fp32.npz").unlink()
    assert baseline_examples.to_text(read_run(folder, lenient=True)) is None
