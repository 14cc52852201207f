"""Scores of predictions: the value with its interval, and the paired change against fp32."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from qbench import registry
from qbench.errors import EvaluateError
from qbench.evaluate import one_output as score
from qbench.metrics.base import Metric
from qbench.record import stored_run
from qbench.record.schema import CaseKey, Record
from qbench.stats.interval_type import Interval

TOP1 = registry.load("metric", "top1")
F1 = registry.load("metric", "f1")
AGREEMENT = registry.load("metric", "top1_agreement")
SQNR = registry.load("metric", "sqnr")


def predictions(classes, labels):
    outputs = np.eye(10, dtype=np.float32)[classes]
    return {"outputs": outputs, "labels": np.asarray(labels)}


def test_delta_flips_and_agreement_are_paired():
    """Harmful: right to wrong; beneficial: wrong to right; agreement counts equal classes, right or not."""
    labels = [0, 1, 2, 3, 4, 5]
    base = predictions([0, 1, 2, 3, 9, 9], labels)  # 4 right
    ours = predictions([0, 1, 2, 9, 4, 9], labels)  # 4 right: one harmful, one beneficial
    accuracy = score.score_predictions(TOP1, ours, base, 10)
    assert (accuracy.value, accuracy.delta.value) == (pytest.approx(4 / 6), 0.0)
    assert (accuracy.flips.harmful, accuracy.flips.beneficial) == (1, 1)
    assert accuracy.agreement == pytest.approx(4 / 6)
    assert accuracy.low < accuracy.value < accuracy.high
    assert accuracy.delta.low < 0 < accuracy.delta.high


def test_the_baseline_itself_has_no_delta():
    """fp32 is not compared with itself."""
    accuracy = score.score_predictions(TOP1, predictions([1, 2], [1, 3]), None, 10)
    assert (accuracy.delta, accuracy.agreement, accuracy.flips) == (None, None, None)


def test_a_metric_that_is_no_mean_uses_the_jackknife():
    """F1 has no per-example values: its delta's interval leaves the same examples out of both."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 300)
    base = predictions(np.where(rng.random(300) < 0.9, labels, 0), labels)
    accuracy = score.score_predictions(F1, predictions(np.where(rng.random(300) < 0.7, labels, 0), labels), base, 10)
    assert accuracy.delta.value == pytest.approx(accuracy.value - F1.value(base["outputs"], labels))
    assert accuracy.delta.low < accuracy.delta.value < accuracy.delta.high < 0


def test_nan_outputs_are_an_error():
    """A score of NaN outputs would be a number without meaning."""
    broken = predictions([1, 2], [1, 2])
    broken["outputs"][0, 0] = np.nan
    with pytest.raises(EvaluateError, match="NaN"):
        score.score_predictions(TOP1, broken, None, 10)


def test_missing_labels_are_an_error():
    """Without labels there is no accuracy."""
    with pytest.raises(EvaluateError, match="labels"):
        score.score_predictions(TOP1, {"outputs": np.eye(3, dtype=np.float32)}, None, None)


def noisy(n=200, classes=10, noise=0.3, seed=0):
    random = np.random.default_rng(seed)
    fp32 = random.normal(size=(n, classes)).astype(np.float32)
    return {"outputs": fp32 + noise * random.normal(size=fp32.shape).astype(np.float32)}, {"outputs": fp32}


def test_without_labels_fp32_stands_where_labels_stand():
    """The share of equal choices, and how far it is below fp32's own, which is 100 % without any doubt."""
    own, base = noisy()
    actual, itself = (
        score.score_predictions(AGREEMENT, own, base, None),
        score.score_predictions(AGREEMENT, base, None, None),
    )
    same = np.mean(own["outputs"].argmax(1) == base["outputs"].argmax(1))
    assert 0.5 < same < 1
    assert (actual.value, actual.agreement, actual.delta.value) == (same, same, pytest.approx(same - 1))
    assert (actual.delta.low, actual.delta.high) == (pytest.approx(actual.low - 1), pytest.approx(actual.high - 1))
    assert actual.delta.high < 0
    assert actual.flips is None
    assert (itself.value, itself.low, itself.high, itself.delta, itself.interval) == (1.0, None, None, None, None)


def test_labels_play_no_part_in_a_metric_against_fp32_but_flips_are_counted():
    """With labels the same score, and beside it which right answers became wrong."""
    own, base = noisy()
    labels = base["outputs"].argmax(1)
    accuracy = score.score_predictions(AGREEMENT, {**own, "labels": labels}, {**base, "labels": labels}, 10)
    assert accuracy.delta == score.score_predictions(AGREEMENT, own, base, None).delta
    assert accuracy.flips.harmful == round((1 - accuracy.value) * 200)


def test_sqnr_is_a_distance_from_what_fp32_has():
    """A finite change in dB, so that a gate can judge it: the mean of each example's, with its limits."""
    own, base = noisy()
    accuracy = score.score_predictions(SQNR, own, base, None)
    assert 9 < accuracy.low < accuracy.value < accuracy.high < 12  # 10 log10(1 / 0.3^2) = 10.5
    assert accuracy.delta.value == accuracy.value - 100
    assert (accuracy.delta.high - accuracy.delta.low) == pytest.approx(accuracy.high - accuracy.low)


def test_two_variants_are_both_held_against_fp32():
    """Of a metric against fp32 the other variant is no reference: the change is that of the two scores, and its sign
    turns with the sides."""
    random = np.random.default_rng(1)
    fp32 = random.standard_normal((100, 4))
    near, far = ({"outputs": fp32 + size * random.standard_normal(fp32.shape)} for size in (0.01, 0.1))
    better, worse = (
        score.score_predictions(SQNR, own, other, None, {"outputs": fp32}) for own, other in ((near, far), (far, near))
    )
    assert better.delta.value == pytest.approx(better.value - worse.value)
    assert worse.delta.value == pytest.approx(-better.delta.value)
    assert better.delta.low > 15


@pytest.mark.parametrize(
    ("fp32", "said"),
    [(np.ones((200, 9), np.float32), "those of its fp32"), (np.full((200, 10), np.nan, np.float32), "NaN or infinite")],
)
def test_an_fp32_that_nothing_can_be_held_against_is_an_error(fp32, said):
    """Other shapes and NaN give no score, not a bad one."""
    with pytest.raises(EvaluateError, match=said):
        score.score_predictions(AGREEMENT, noisy()[0], {"outputs": fp32}, None)


def test_how_the_limits_come_about_is_said():
    """Right or wrong, another mean, and what is no mean each have their own interval."""
    own, base = noisy()
    labels = base["outputs"].argmax(1)
    ways = [
        score.score_predictions(metric, {**own, "labels": labels}, base, None).interval for metric in (TOP1, SQNR, F1)
    ]
    assert ways == ["score", "weighted mean", "jackknife"]


def test_one_logit_has_flips_and_agreement_where_labels_are_two_classes():
    """A binary model's single output chooses class 1 above 0; of a regression's it says nothing."""
    base = {"outputs": np.array([[1.0], [-1.0], [2.0], [-3.0]]), "labels": np.array([1, 0, 0, 1])}
    own = {"outputs": np.array([[-1.0], [-1.0], [-2.0], [-3.0]]), "labels": base["labels"]}
    accuracy = score.score_predictions(TOP1, own, base, 2)
    assert (accuracy.agreement, accuracy.flips.harmful, accuracy.flips.beneficial) == (0.5, 1, 1)
    numbers = {"labels": np.array([0.5, 1.5, 2.5, 3.0])}
    accuracy = score.score_predictions(registry.load("metric", "mae"), {**own, **numbers}, {**base, **numbers}, None)
    assert (accuracy.agreement, accuracy.flips) == (None, None)


def test_one_class_is_scored_on_its_own_examples():
    """`recall:3` is a share of the examples of class 3: these are its n, and its interval is that of so few."""
    labels = np.repeat(np.arange(4), 25)
    own, base = predictions(np.where(np.arange(100) % 5 == 0, 9, labels), labels), predictions(labels, labels)
    accuracy = score.score_predictions(registry.load("metric", "recall:3"), own, base, 10)
    assert (accuracy.n, accuracy.value, accuracy.delta.value, accuracy.interval) == (
        25,
        0.8,
        pytest.approx(-0.2),
        "score",
    )
    assert accuracy.high - accuracy.low > 0.25
    with pytest.raises(EvaluateError, match="no evaluation example counts: none is of that class"):
        score.score_predictions(registry.load("metric", "recall:7"), own, base, 10)


class _Best(Metric):
    """A score without per-example values or facts that fails where the first example is missing, as an AUC fails
    without a class."""

    name = "best"
    calls = 0

    def __init__(self, needs_all):
        self.needs_all = needs_all

    def problem(self, outputs, labels, classes):
        return None

    def value(self, outputs, reference):
        self.calls += 1
        if self.needs_all and 0 not in reference:
            raise EvaluateError("no class 0")
        return float(outputs.max(axis=1).mean())


def test_a_score_of_nothing_but_a_number_is_resampled_less():
    """Each resample costs a call, so 400 serve; where one cannot be scored there are no limits, yet a value."""
    labels = np.arange(50)
    own, base = ({"outputs": entry["outputs"], "labels": labels} for entry in noisy(n=50))
    metric = _Best(needs_all=False)
    accuracy = score.score_predictions(metric, own, base, None)
    assert metric.calls == 2 * 401  # of both arms, for the score and for its change
    assert accuracy.low < accuracy.value < accuracy.high
    assert accuracy.delta.low < accuracy.delta.value < accuracy.delta.high
    accuracy = score.score_predictions(_Best(needs_all=True), own, base, None)
    assert accuracy.value == pytest.approx(own["outputs"].max(axis=1).mean())
    assert (accuracy.low, accuracy.delta.low) == (None, None)


@pytest.mark.parametrize("name", ["f1", "balanced_accuracy", "sqnr", "rmse"])
def test_outputs_that_are_all_equal_have_limits_as_wide_as_what_so_few_may_hide(name):
    """Nothing changed on n examples bounds the share that changes by 3.84 / n, so the change gets limits, narrower with
    more examples: else identical outputs would be undecided, and one flip would pass."""
    metric = registry.load("metric", name)
    reach = []
    for n in (100, 400):
        classes = 1 if name == "rmse" else 10
        base = noisy(n=n, classes=classes)[1]
        labels = np.arange(n) % 9 % 7 if metric.percent else np.arange(n) / n
        own = {**base, "labels": labels}
        accuracy = score.score_predictions(metric, own, base, None)
        assert (accuracy.delta.value, accuracy.delta.low) == (0.0, pytest.approx(-accuracy.delta.high))
        reach.append(accuracy.delta.high / abs(accuracy.value))
    assert 0.02 < reach[0] < (0.35 if name == "f1" else 0.15)  # of a low score a single example is a large share
    assert reach[1] < reach[0] / 2


def test_few_flips_are_not_taken_for_all_that_can_happen():
    """Resamples of one flip among 200 examples show a few of that one; the limits leave room for others, too."""
    labels = np.arange(200) % 10
    flipped = labels.copy()
    flipped[3] = 9
    accuracy = score.score_predictions(F1, predictions(flipped, labels), predictions(labels, labels), 10)
    top1 = score.score_predictions(TOP1, predictions(flipped, labels), predictions(labels, labels), 10)
    assert accuracy.delta.low < -3.5 / 200
    assert accuracy.delta.low == pytest.approx(top1.delta.low, rel=0.25)  # equal classes: both count much the same


@pytest.mark.parametrize(("name", "flipped", "paired"), [("recall", 0, False), ("recall", 1, True), ("top1", 0, True)])
def test_without_any_change_the_stored_limits_judge(tmp_path, name, flipped, paired):
    """Values that are all equal leave a t test nothing to judge by, so no pairs are read; right or wrong needs none of
    that, since its test knows how much so few examples may hide."""
    labels = np.arange(100) % 9 % 7
    (tmp_path / "predictions").mkdir()
    records = []
    for case, wrong in (("fp32", 0), ("int8", flipped)):
        classes = np.where(np.arange(100) < wrong, 9, labels)
        np.savez(tmp_path / "predictions" / f"{case}.npz", **predictions(classes, labels))
        key = CaseKey(id=case, model="m", mode=case, backend="fake", threads=1, batch_size=1)
        records.append(Record(case=key, status="ok", predictions=f"predictions/{case}.npz"))
    info = stored_run.RunInfo(suite=stored_run.SuiteInfo(name="s"), metric=stored_run.MetricInfo(name=name))
    run = stored_run.StoredRun(folder=tmp_path, info=info, records=tuple(records))
    assert (run.pairs(records[1], records[0]) is not None) == paired


@pytest.mark.parametrize(
    ("metric", "words"), [("rmse", "inf; a"), ("mae", r"1e\+200 for example 0, and no score for 39")]
)
def test_a_score_that_no_float_holds_the_square_of_is_refused(metric: str, words: str) -> None:
    """Outputs that are finite can give an error that is not, or one of which no interval can be made: the text names
    the metric, what it gave and of which example."""
    own = {"outputs": np.full((40, 1), 1e200), "labels": np.zeros(40)}
    with np.errstate(over="ignore"), pytest.raises(EvaluateError, match=f"^{metric} gives {words}"):
        score.score_predictions(registry.load("metric", metric), own, None, None)


@pytest.mark.parametrize(
    ("against", "perfect", "low", "high", "change"),
    [
        ("fp32", 100.0, 38.0, 40.0, (-61.0, -62.0, -60.0)),
        ("fp32", 0.0, 38.0, 40.0, (39.0, 38.0, 40.0)),
        ("fp32", None, 38.0, 40.0, None),
        ("fp32", 100.0, None, 40.0, None),
        ("fp32", 100.0, 38.0, None, None),
        ("labels", 100.0, 38.0, 40.0, None),
    ],
)
def test_how_far_a_score_is_from_what_fp32_has_by_definition(against, perfect, low, high, change):
    """With the limits of the score, moved by as much; nothing without one of them."""
    metric = SimpleNamespace(against=against, perfect=perfect)
    scaled = score._from_perfect(metric, Interval(value=39.0, low=low, high=high))
    assert (None if scaled is None else (scaled.value, scaled.low, scaled.high)) == change


@pytest.mark.parametrize(
    ("outputs", "labels", "percent", "answer"),
    [
        ([[0, 1], [0, 2]], [0, 1], True, 1),
        ([[0, 1], [3, 2]], [0, 1], True, None),
        ([[0, 1]], [0], True, None),
        ([[0, 1], [0, 2]], [0.5, 1.5], True, None),
        ([[0, 1], [0, 2]], [[0, 1], [1, 1]], True, None),
        ([[0, 1], [0, 2]], None, True, 1),
        ([[0, 1], [0, 2]], None, False, None),
        ([[1], [2]], [0, 1], False, 1),
        ([[1], [2]], [0, 2], False, None),
        ([[1], [2]], None, True, None),
    ],
)
def test_a_network_that_always_says_the_same_class_is_told_by_it(outputs, labels, percent, answer):
    """Of several examples whose outputs choose classes, by labels or by what is measured."""
    metric = SimpleNamespace(percent=percent)
    labels = None if labels is None else np.asarray(labels)
    assert score._only_answer(metric, np.asarray(outputs, dtype=np.float32), labels) == answer


SCORES = np.eye(3, dtype=np.float32)
OTHER = SCORES[[0, 1, 0]]


@pytest.mark.parametrize(
    ("outputs", "baseline", "labels", "agreement", "flips"),
    [
        (OTHER, SCORES, None, 2 / 3, None),
        (OTHER, SCORES, [0, 1, 2], 2 / 3, (1, 0)),
        (SCORES, OTHER, [0, 1, 2], 2 / 3, (0, 1)),
        (OTHER, SCORES, [0.0, 1.0, 2.0], 2 / 3, None),
        (OTHER, SCORES, [[0], [1], [2]], None, None),  # embeddings of texts
        (OTHER, SCORES[:, :2], [0, 1, 2], None, None),
        (OTHER[:, :1], SCORES[:, :1], None, None, None),
        (OTHER[:, :1], SCORES[:, :1], [0, 1, 2], None, None),
        (OTHER[..., None], SCORES[..., None], [0, 1, 2], None, None),
        (OTHER[:, :1, None], SCORES[:, :1, None], [0, 1, 1], None, None),
    ],
)
def test_agreement_and_flips_are_of_classes(outputs, baseline, labels, agreement, flips):
    """Of outputs in one form that are scores of classes; flips also want labels that are classes."""
    labels = None if labels is None else np.array(labels)
    shared = score._agreement(outputs, baseline, labels)
    changed = score._flips(outputs, baseline, labels)
    assert shared == (None if agreement is None else pytest.approx(agreement))
    assert (changed and (changed.harmful, changed.beneficial)) == flips


def test_a_perfect_score_that_did_not_change_has_limits():
    """Of a score of 1, as of any other, so few examples may hide a change."""
    labels = np.arange(60) % 10
    for name in ("f1", "balanced_accuracy"):
        delta = score.score_predictions(
            registry.load("metric", name), predictions(labels, labels), predictions(labels, labels), 10
        ).delta
        assert delta.value == 0
        assert delta.low < -0.01


@pytest.mark.parametrize(("changed", "is_widened"), [(29, True), (30, False)])
def test_thirty_changes_show_what_a_change_is_like(monkeypatch, changed, is_widened):
    """From then on the limits of what has no value for each example are those of the resamples alone."""
    labels = np.arange(300) % 10
    answers = np.where(np.arange(300) < changed, (labels + 1) % 10, labels)
    widened = []
    monkeypatch.setattr(score.intervals, "widen_for_unseen", lambda delta, *_: widened.append(1) or delta)
    score.score_predictions(F1, predictions(answers, labels), predictions(labels, labels), 10)
    assert bool(widened) == is_widened


def test_the_largest_score_is_one():
    """What lies beyond has no interval."""
    metric = SimpleNamespace(name="mine")
    assert score._require_score(metric, -1e100) == -1e100
    with pytest.raises(EvaluateError, match="^mine gives 1.1e\\+100; a score must be a finite number"):
        score._require_score(metric, 1.1e100)
