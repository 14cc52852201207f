"""Rules of qbench/evaluate/flips.py and qbench/report/flips.py: which answers and which classes change."""

from __future__ import annotations

import csv
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_records import CASE, FP32, RUN_V1, accuracy, fp32, info, int8
from made_runs import predictions, run_folder, write_with_predictions
from scipy import stats as scipy_stats

from qbench import suite
from qbench.compare.compare import like_for_like
from qbench.evaluate import flips
from qbench.evaluate.flips import Flip
from qbench.record import jsonl
from qbench.record.schema import Record
from qbench.record.stored_run import MetricInfo, StoredRun, read_run
from qbench.report import flips as report_flips
from qbench.report.build import build_report, judge
from qbench.report.flips import CaseFlips, classes_told, of_run
from qbench.stats import multiple_testing


def test_flips_are_the_answers_whose_correctness_changed_the_surest_first() -> None:
    """Right to wrong and wrong to right, with both answers; from wrong to wrong is none; a big lead of fp32 leads."""
    labels = [0, 1, 2, 3, 4, 5]
    base = flips.answers(predictions([0, 1, 2, 9, 9, 5], labels, [1.0, 5.0, 3.0, 2.0, 4.0, 6.0]))
    own = flips.answers(predictions([7, 8, 2, 3, 8, 5], labels))
    assert base is not None
    assert own is not None
    actual = flips.flips(own, base)
    assert [(entry.kind, entry.id, entry.label, entry.fp32, entry.int8) for entry in actual] == [
        ("harmful", "photo/1", 1, 1, 8),
        ("harmful", "photo/0", 0, 0, 7),
        ("beneficial", "photo/3", 3, 9, 3),
    ]
    assert [entry.sure for entry in actual] == [4 / 6, 0.0, 1 / 6]


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_an_answer_is_the_surer_the_more_it_leads_the_second(classes: int) -> None:
    """By the share of all answers that lead by less, whatever the scores of the others are."""
    outputs = np.random.default_rng(classes).normal(size=(40, classes))
    actual = flips.answers({"outputs": outputs, "labels": np.zeros(40, dtype=int)})
    assert actual is not None
    lead = np.diff(np.sort(outputs, axis=1)[:, -2:])[:, 0]
    assert actual.rank.tolist() == [(lead < own).mean() for own in lead]


def test_without_labels_every_other_answer_is_a_change() -> None:
    """Nobody knows which of the two is right, so neither is called harmful; there are no classes to compare."""
    base, own = flips.answers(predictions([0, 1, 2], None)), flips.answers(predictions([0, 5, 2], None))
    assert base is not None
    assert own is not None
    assert [(flip.kind, flip.position, flip.label) for flip in flips.flips(own, base)] == [("changed", 1, None)]
    assert flips.by_class(own, base) == ()


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"outputs": np.zeros((3, 1)), "labels": np.array([0.5, 1.5, 2.5])},
        {"outputs": np.zeros((3, 4)), "labels": np.zeros((3, 4))},
        {"outputs": np.full((3, 4), np.nan), "labels": np.zeros(3, dtype=int)},
        {"outputs": np.zeros((3, 4, 4)), "labels": np.zeros(3, dtype=int)},
        {"outputs": np.zeros((3, 1))},
        {"outputs": np.zeros((3, 4)), "labels": np.zeros(2, dtype=int)},
    ],
    ids=["nothing", "regression", "many labels", "not finite", "pictures", "one number", "labels of others"],
)
def test_what_is_no_answer_has_no_flips(stored: dict[str, np.ndarray]) -> None:
    """Numbers to be met, pictures and values that are no numbers choose no class."""
    assert flips.answers(stored) is None


def test_two_scores_choose_without_labels_and_one_logit_with_them() -> None:
    """Class 1 above 0; ids that are not one for each example name none."""
    pair = flips.answers({"outputs": np.array([[0.0, 1.0], [3.0, 2.0]]), "ids": np.array(["a", "b", "c"])})
    logit = flips.answers({"outputs": np.array([[0.5], [-2.0]]), "labels": np.array([1, 1])})
    for actual in (pair, logit):
        assert actual is not None
        assert (actual.classes.tolist(), actual.ids) == ([1, 0], ("0", "1"))


def test_other_examples_are_not_compared() -> None:
    """Two files whose ids differ are of different examples: no pair, no flip."""
    base, own = flips.answers(predictions([0, 1], [0, 1])), flips.answers(predictions([5, 1], [0, 1]))
    assert base is not None
    assert own is not None
    other = replace(own, ids=("x", "y"))
    assert flips.flips(other, base) == () == flips.by_class(other, base)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(2, 300), st.integers(2, 6))
def test_classes_add_up_and_their_p_values_are_exact(seed: int, n: int, count: int) -> None:
    """Each class's counts are its own examples', all classes together are the whole, and every p-value is the exact
    binomial's with half the weight on what was seen, adjusted over all classes."""
    rng = np.random.default_rng(seed)
    labels, was, now = (rng.integers(0, count, n) for _ in range(3))
    ids = tuple(map(str, range(n)))
    own, base = (flips.Answers(classes=choice, rank=np.zeros(n), ids=ids, labels=labels) for choice in (now, was))
    changes = flips.by_class(own, base)
    assert sum(change.n for change in changes) == n
    assert sum(change.int8_right for change in changes) == int((now == labels).sum())
    for change in changes:
        mine = labels == change.label
        assert change.harmful == int((mine & (was == labels) & (now != labels)).sum())
        total, fewer = change.harmful + change.beneficial, min(change.harmful, change.beneficial)
        ways = 2 * sum(math.comb(total, k) for k in range(fewer)) + math.comb(total, fewer)
        assert change.p_value == pytest.approx(ways / 2**total)
    assert tuple(change.p_adjusted for change in changes) == multiple_testing.adjust_by_holm(
        [change.p_value for change in changes]
    )


# --- of a stored run -----------------------------------------------------------------------------------------


def recount(run: StoredRun, record: Record) -> tuple[int, int, int, float]:
    """Harmful, beneficial, n and the least loss that a paired t test rejects, from two files alone."""
    base = like_for_like(record, run.records)
    assert base is not None
    with np.load(run.folder / str(record.predictions)) as own, np.load(run.folder / str(base.predictions)) as fp32_file:
        labels = own["labels"]
        now, was = own["outputs"].argmax(1) == labels, fp32_file["outputs"].argmax(1) == labels
    change = now.astype(float) - was
    low = change.mean() - scipy_stats.t.ppf(0.95, change.size - 1) * change.std(ddof=1) / change.size**0.5
    return int((was & ~now).sum()), int((now & ~was).sum()), change.size, low


def test_verdicts_agree_with_an_independent_computation_from_the_predictions() -> None:
    """Flips are those that numpy counts in the stored files, and where a plain paired t test is clear of the margin by
    half a point the verdict is its."""
    run = read_run(RUN_V1)
    margin = suite.parse(run.info.suite.text, file="x.yaml").gate.accuracy.margin / 100
    verdict, listed = judge(run), {case.record.case.id: case for case in of_run(run)}
    values = set()
    tested = {record.case.id: test for record in run.records if (test := verdict.test_of(record)) is not None}
    assert tested
    for case, test in tested.items():
        harmful, beneficial, n, low = recount(run, run.by_id[case])
        assert (listed[case].count("harmful"), listed[case].count("beneficial")) == (harmful, beneficial)
        assert test.delta.value == pytest.approx((beneficial - harmful) / n)
        if abs(low + margin) > 0.005:
            values.add(test.outcome)
            assert (test.outcome == "PASS") == (low > -margin)
    assert values == {"PASS", "FAIL"} or values == {"PASS", "INCONCLUSIVE", "FAIL"}


def test_every_flip_and_class_is_in_a_table_beside_the_results(tmp_path: Path) -> None:
    """flips.csv has one row per flip of each case and classes.csv one per class, under the ids of results.csv."""
    folder = tmp_path / "run"
    shutil.copytree(RUN_V1, folder)
    build_report(folder)
    tables = {}
    for name in ("results", "flips", "classes"):
        with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            tables[name] = list(csv.DictReader(file))
    for row in tables["results"]:
        counted = row["accuracy.flips.harmful"], row["accuracy.flips.beneficial"]
        mine = [table for table in tables["flips"] if table["case.id"] == row["case.id"]]
        shown = tuple(sum(table["kind"] == kind for table in mine) for kind in ("harmful", "beneficial"))
        assert shown == (tuple(int(float(count)) for count in counted) if counted[0] else (0, 0))
        classes = [table for table in tables["classes"] if table["case.id"] == row["case.id"]]
        assert len(classes) == (10 if counted[0] else 0)
        assert sum(int(table["harmful"]) for table in classes) == shown[0]


def small_run(folder: Path, lost: int, *, counted: int | None = None) -> Path:
    """A run of 1,000 examples whose int8 case loses the first ``lost`` of class 3, and its record's own count."""
    labels = [i % 10 for i in range(1000)]
    answers = [9 if label == 3 and i < 10 * lost else label for i, label in enumerate(labels)]
    run_folder(folder, [], info((FP32, CASE)))
    counts = accuracy(harmful=lost if counted is None else counted, right=1000)
    records = [
        write_with_predictions(folder, fp32(), predictions(labels, labels)),
        write_with_predictions(folder, int8(accuracy=counts), predictions(answers, labels)),
    ]
    jsonl.write(folder / "records.jsonl", records)
    return folder


def test_a_class_that_loses_is_named_in_the_report(tmp_path: Path) -> None:
    """Twelve harmful flips in one class of ten: lost, with Holm's p; and the answer's table names the first ids."""
    folder = small_run(tmp_path / "run", 12)
    page = build_report(folder).read_text(encoding="utf-8")
    summary = (folder / "summary.md").read_text(encoding="utf-8")
    assert (
        "| net/static/onednn/t1/b1 | 3 | 100 | 100 to 88 (-12.0 points) | 12 / 0 | &lt; 0.001 | 0.002 | lost |"
        in summary
    )
    assert "photo/3 (3\xa0→\xa09)" in page
    assert "Classes that changed by more than chance" in page


def test_one_flip_is_no_change_of_a_class(tmp_path: Path) -> None:
    """A single flip is listed, and the class it falls in is named as the nearest, not as lost."""
    folder = small_run(tmp_path / "run", 1)
    page = build_report(folder).read_text(encoding="utf-8")
    assert "No class changed by more than chance; nearest to it is class 3" in classes_told(of_run(read_run(folder)))
    assert "Classes that changed by more than chance" not in page


def test_predictions_that_are_not_those_of_the_run_are_doubted(tmp_path: Path) -> None:
    """Where the stored files give other flips than the record counted, the report says so and lists none."""
    folder = small_run(tmp_path / "run", 5, counted=7)
    page = build_report(folder).read_text(encoding="utf-8")
    assert "the stored predictions give 5 harmful and 0 beneficial flips, the record counted 7 and 0" in page
    assert (folder / "flips.csv").read_text(encoding="utf-8").count("\n") == 1


def test_outputs_without_a_value_have_no_answer() -> None:
    """A file of predictions that somebody else wrote may hold examples of no values at all."""
    assert flips.answers({"outputs": np.empty((20, 0)), "labels": np.zeros(20, dtype=np.int64)}) is None


@pytest.mark.parametrize(
    ("p", "harmful", "beneficial", "changed"),
    [
        (flips.CLASS_ERROR, 9, 1, "lost"),
        (flips.CLASS_ERROR, 1, 9, "gained"),
        (flips.CLASS_ERROR * 1.001, 9, 1, None),
    ],
)
def test_a_class_has_changed_where_that_is_no_chance(p: float, harmful: int, beneficial: int, changed: str) -> None:
    """At the very level of the test it has."""
    change = flips.ClassChange(
        label=0, n=20, fp32_right=15, harmful=harmful, beneficial=beneficial, p_value=p / 2, p_adjusted=p
    )
    assert change.changed == changed


def case_of(name: str, *kinds: str, **more: str) -> CaseFlips:
    """A case with a flip of each of these kinds."""
    own_flips = tuple(
        Flip(position=i, id=f"photo/{i}", kind=kind, label=None, fp32=3, int8=5, sure=0.5)  # type: ignore[arg-type]
        for i, kind in enumerate(kinds)
    )
    return CaseFlips(record=int8(f"net/static/{name}/t1/b1"), flips=own_flips, classes=(), **more)


def test_flips_are_a_row_for_each_variant_that_has_some() -> None:
    """With the first five of each kind and how many more there are; words stand to the left, numbers to the right."""
    cases = [case_of("a", *["harmful"] * 6, "beneficial"), case_of("b"), case_of("c", "harmful", same_as="x")]
    listed = report_flips.table(cases)
    (row,) = listed.rows
    assert (row[0], row[1]) == ("net/static/a/t1/b1", "6 lost, 1 gained")
    assert row[3].startswith("photo/0 (3\N{NO-BREAK SPACE}→\N{NO-BREAK SPACE}5), photo/1 ")
    assert row[3].endswith("photo/4 (3\N{NO-BREAK SPACE}→\N{NO-BREAK SPACE}5) and 1 more")
    assert row[4] == "photo/6 (3\N{NO-BREAK SPACE}→\N{NO-BREAK SPACE}5)"
    assert [listed.columns[place] for place in listed.words] == [
        "case", "examples", "lost: right to wrong", "gained: wrong to right",
    ]  # fmt: skip
    assert report_flips.meaning(cases).startswith("Lost: ")
    assert report_flips.without(cases) == "No answer changes in net/static/b/t1/b1."


def test_without_labels_flips_are_changes() -> None:
    """Neither lost nor gained; a variant whose flips are doubted is not said to have none."""
    cases = [case_of("a", "changed", "changed"), case_of("b", doubt="another run's")]
    listed = report_flips.table(cases)
    assert [row[:2] for row in listed.rows] == [("net/static/a/t1/b1", "2")]
    assert [listed.columns[place] for place in listed.words] == ["case", "the first, surest first"]
    assert report_flips.meaning(cases).startswith("Without labels: ")
    assert report_flips.without(cases) == ""
    many = [case_of(f"n{number}") for number in range(7)]
    assert report_flips.without(many).endswith("net/static/n4/t1/b1 and 2 more.")


def write_unlabelled(folder: Path, metric: MetricInfo, **changes: Any) -> StoredRun:
    """A run without labels whose int8 case answers one of ten otherwise."""
    run_folder(folder, [], info((FP32, CASE), metric=metric))
    records = [
        write_with_predictions(folder, fp32(), predictions(list(range(10)), None)),
        write_with_predictions(folder, int8(**changes), predictions([*range(9), 0], None)),
    ]
    jsonl.write(folder / "records.jsonl", records)
    return read_run(folder)


def test_answers_without_labels_are_classes_where_the_run_was_judged_by_them(tmp_path: Path) -> None:
    """Of another metric the outputs may be no classes; a case that was not judged has no flips either."""
    (case,) = of_run(write_unlabelled(tmp_path / "a", MetricInfo(name="top1_agreement", against="fp32")))
    assert (case.count("changed"), case.doubt) == (1, None)
    assert of_run(write_unlabelled(tmp_path / "b", MetricInfo(name="sqnr", percent=False, against="fp32"))) == ()
    unjudged = write_unlabelled(tmp_path / "c", MetricInfo(name="top1_agreement", against="fp32"), accuracy=None)
    assert of_run(unjudged) == ()


def classes_of(*p_values: float) -> CaseFlips:
    """A case that loses in a class of each of these p-values."""
    changes = [
        flips.ClassChange(label=n, n=20, fp32_right=15, harmful=9, beneficial=1, p_value=p, p_adjusted=p)
        for n, p in enumerate(p_values)
    ]
    return replace(case_of("a", "harmful"), classes=tuple(changes))


def test_ten_classes_of_a_case_are_listed() -> None:
    """The surest first, then how many more there are."""
    rising = [flips.CLASS_ERROR * 0.01 * (20 - n) for n in range(11)]
    rows = report_flips.classes_table([classes_of(*rising)]).rows
    assert [row[1] for row in rows] == [*map(str, range(10, 0, -1)), "1 more in classes.csv"]
    assert {len(row) for row in rows} == {len(report_flips.classes_table([]).columns)}
    rows = report_flips.classes_table([classes_of(*rising[1:])]).rows
    assert len(rows) == 10
    assert "more" not in rows[-1][1]


def test_the_nearest_class_is_named_where_one_is_near() -> None:
    """None is, where every p-value is 1; five variants without a flip are all named."""
    assert classes_told([classes_of(1.0, 1.0)]).endswith("No class changed by more than chance.")
    assert "nearest to it is class 1 of net/static/a/t1/b1" in classes_told([classes_of(1.0, 0.5)])
    assert report_flips.without([case_of(f"n{number}") for number in range(5)]).endswith("net/static/n4/t1/b1.")


def test_how_sure_fp32_was_has_six_decimals_in_its_file() -> None:
    """More say nothing, and a file has the same bytes on other machines."""
    flip = replace(case_of("a", "harmful").flips[0], sure=0.123456789)
    (row,) = report_flips.flips_frame([replace(case_of("a"), flips=(flip,))]).to_numpy().tolist()
    assert row[-1] == 0.123457
