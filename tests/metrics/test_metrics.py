"""Metrics: one contract for all that are registered, then what each one counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from qbench import registry
from qbench.errors import UnknownName
from qbench.metrics.base import MeanMetric, Metric
from qbench.metrics.classes import BALANCED_ACCURACY, F1, PRECISION, RECALL
from qbench.metrics.detection import BoxScore
from qbench.metrics.next_token import NextToken
from qbench.metrics.regression import MAE, R2, RMSE, SPEARMAN
from qbench.metrics.segmentation import MaskScore
from qbench.metrics.texts import ErrorRate
from qbench.metrics.topk import TOP1, TOP5, TopK

NAMES = registry.names("metric")
CLASSES = 8
LABELS = np.arange(40) % CLASSES


def metric_of(name: str) -> Metric:
    """The registered metric."""
    metric = registry.load("metric", name)
    assert isinstance(metric, Metric)
    return metric


def fitting(metric: Metric, *, perfect: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Outputs and what they are held against: fp32's outputs, class labels for percentages, numbers otherwise."""
    random = np.random.default_rng(0)
    if isinstance(metric, NextToken):
        labels = np.concatenate(
            [np.arange(len(LABELS))[:, None], random.integers(0, CLASSES, (len(LABELS), 4))], axis=1
        )
        fp32 = 60 * np.eye(CLASSES, dtype=np.float32)[labels[:, 1:]]
        noise = random.normal(size=fp32.shape).astype(np.float32)
        outputs, reference = (metric.summarize([each], labels) for each in (fp32 if perfect else 50 * noise, fp32))
        return outputs, (labels if metric.against == "labels" else reference)
    if metric.against == "fp32":
        fp32 = random.normal(size=(len(LABELS), CLASSES)).astype(np.float32)
        return (fp32.copy() if perfect else fp32 + random.normal(size=fp32.shape).astype(np.float32)), fp32
    if isinstance(metric, MaskScore):
        masks = (np.arange(len(LABELS) * 24).reshape(len(LABELS), 4, 6) // 5) % CLASSES
        noise = random.normal(size=(len(LABELS), CLASSES, 4, 6)).astype(np.float32)
        return (np.eye(CLASSES)[masks].transpose(0, 3, 1, 2).astype(np.float32) if perfect else noise), masks
    if isinstance(metric, BoxScore):
        corners = random.integers(0, 40, (len(LABELS), 3, 2)) + np.arange(3)[:, None] * 50.0
        boxes = np.concatenate([corners, corners + 20, (LABELS[:, None] + np.arange(3))[..., None] % CLASSES], axis=2)
        labels = np.concatenate([boxes, np.zeros((len(LABELS), 3, 1))], axis=2).astype(np.float32)
        rows = np.insert(boxes, 4, random.random((len(LABELS), 3)), axis=2).astype(np.float32)
        rows[..., :4] += 0 if perfect else random.normal(size=(len(LABELS), 3, 4)) * 5
        return rows, labels
    if isinstance(metric, ErrorRate):
        texts = 97 + (np.arange(len(LABELS) * 6).reshape(len(LABELS), 6) * 7 + LABELS[:, None]) % 20
        return (texts if perfect else texts + random.integers(0, 2, texts.shape)).astype(np.float32), texts
    if metric.percent:
        noise = random.normal(size=(len(LABELS), CLASSES))
        return (np.eye(CLASSES)[LABELS] if perfect else noise).astype(np.float32), LABELS
    values = LABELS.astype(np.float64)
    return (values if perfect else values + random.normal(size=len(values)))[:, None].astype(np.float32), values


@pytest.mark.parametrize("name", NAMES)
class TestContract:
    """What every registered metric keeps."""

    def test_it_has_the_name_it_is_registered_under(self, name: str) -> None:
        """A record names the metric by the name in the suite."""
        assert metric_of(name).name == name

    def test_perfect_outputs_fit_and_get_the_best_score(self, name: str) -> None:
        """Outputs equal to the reference have no problem and score 1, or 0 where less is better; against fp32 exactly
        what the metric calls perfect."""
        metric = metric_of(name)
        outputs, reference = fitting(metric)
        content = None if metric.against == "fp32" else reference
        assert metric.problem(outputs, content, CLASSES if metric.percent else None) is None
        if metric.against == "fp32":
            assert metric.value(outputs, reference) == metric.perfect
        else:
            assert metric.value(outputs, reference) == pytest.approx(1.0 if metric.higher_is_better else 0.0, abs=1e-6)
            assert metric.perfect is None  # the fp32 model's own score is not known before it is measured

    def test_worse_outputs_score_worse(self, name: str) -> None:
        """`higher_is_better` says in which direction a worse model moves."""
        metric = metric_of(name)
        best, worse = (metric.value(*fitting(metric, perfect=perfect)) for perfect in (True, False))
        assert worse < best if metric.higher_is_better else worse > best

    def test_the_value_is_the_mean_of_the_examples_where_it_has_them(self, name: str) -> None:
        """`per_example` is None or n numbers whose mean is the value."""
        metric = metric_of(name)
        outputs, labels = fitting(metric, perfect=False)
        each = metric.per_example(outputs, labels)
        if each is not None:
            assert each.shape == (len(labels),)
            assert metric.value(outputs, labels) == pytest.approx(each.mean())

    def test_what_a_bootstrap_draws_scores_as_the_outputs_do(self, name: str) -> None:
        """A metric that is no mean scores any resample from the facts of its examples, as it scores their outputs."""
        metric = metric_of(name)
        outputs, reference = fitting(metric, perfect=False)
        index = np.random.default_rng(1).integers(0, len(outputs), len(outputs))
        facts = metric.facts(outputs, reference)
        assert (facts is None) == isinstance(metric, MeanMetric)
        if facts is not None:
            assert len(facts) == len(outputs)
            expected = metric.value(outputs[index], reference[index])
            assert metric.of_facts(facts[index]) == pytest.approx(expected)

    def test_the_value_is_a_plain_number(self, name: str) -> None:
        """A record is JSON, so a numpy number would not do."""
        metric = metric_of(name)
        assert type(metric.value(*fitting(metric, perfect=False))) is float

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_nan_outputs_are_a_problem_with_the_examples(self, name: str, bad: float) -> None:
        """A network that overflows is told by its first bad examples, not scored."""
        metric = metric_of(name)
        outputs, labels = fitting(metric)
        outputs[[3, 5]] = bad
        assert metric.problem(outputs, labels, None) == ("2 of 40 outputs are NaN or infinite, first at examples 3, 5")

    def test_missing_labels_and_lengths_that_differ_are_problems(self, name: str) -> None:
        """Without one label for each output there is no score; where the metric takes none, labels do not matter."""
        metric = metric_of(name)
        outputs, labels = fitting(metric)
        if metric.against == "fp32":
            assert metric.problem(outputs, None, None) is None
            assert metric.problem(outputs, LABELS[1:] + 99, None) is None
            assert "no examples" in str(metric.problem(outputs[:0], None, None))
            return
        assert "has no labels" in str(metric.problem(outputs, None, None))
        assert "39 outputs for 40 labels" in str(metric.problem(outputs[1:], labels, None))
        assert "no examples" in str(metric.problem(outputs[:0], labels[:0], None))


@pytest.mark.parametrize("metric", [TOP1, TOP5, F1, PRECISION, RECALL, BALANCED_ACCURACY], ids=lambda m: m.name)
class TestClassProblems:
    """What class metrics refuse, with the words a user reads."""

    def test_another_number_of_classes(self, metric: Metric) -> None:
        """Outputs for 8 classes on data of 10 are a mismatch, not a low score."""
        outputs, labels = fitting(metric)
        assert metric.problem(outputs, labels, 10) == "outputs have the shape (40, 8), but the data set has 10 classes"

    def test_images_as_outputs(self, metric: Metric) -> None:
        """A network that gives a map per example does not classify."""
        problem = metric.problem(np.ones((40, CLASSES, 2, 2)), LABELS, CLASSES)
        expected = "outputs have the shape (40, 8, 2, 2); expected (n, classes); for a class of each pixel choose miou"
        assert problem == f"{expected} or pixel_accuracy"

    def test_labels_outside_the_outputs(self, metric: Metric) -> None:
        """Labels 1 to 8 for outputs 0 to 7 are the classic off-by-one."""
        outputs, labels = fitting(metric)
        expected = "5 labels are outside the model's 8 classes 0 to 7, first: 8"
        assert metric.problem(outputs, labels + 1, None) == expected

    def test_labels_that_are_not_whole(self, metric: Metric) -> None:
        """Regression targets are no classes."""
        outputs, labels = fitting(metric)
        assert "expected one whole number per example" in str(metric.problem(outputs, labels * 0.5, None))

    def test_labels_that_are_one_hot(self, metric: Metric) -> None:
        """A column for each class is told from targets of other kinds, with the line that makes it classes."""
        outputs, labels = fitting(metric)
        problem = str(metric.problem(outputs, np.eye(CLASSES, dtype=np.float32)[labels], None))
        assert problem.startswith("labels are one-hot")
        assert problem.endswith("`labels.argmax(axis=1)`")
        assert "one-hot" not in str(metric.problem(outputs, np.ones((len(labels), CLASSES)), None))


@given(
    outputs=hnp.arrays(np.float32, (12, 6), elements=st.floats(-3, 3, width=16)),
    labels=hnp.arrays(np.int64, 12, elements=st.integers(0, 5)),
)
def test_top1_is_argmax_also_with_ties(outputs: np.ndarray, labels: np.ndarray) -> None:
    """The highest output wins, the lower class at a tie, exactly as argmax decides."""
    assert (TOP1.per_example(outputs, labels) == (outputs.argmax(axis=1) == labels)).all()


@given(
    outputs=hnp.arrays(np.float32, (12, 6), elements=st.floats(-3, 3, width=16)),
    labels=hnp.arrays(np.int64, 12, elements=st.integers(0, 5)),
    k=st.integers(1, 5),
)
def test_topk_is_the_first_k_of_a_stable_sort(outputs: np.ndarray, labels: np.ndarray, k: int) -> None:
    """Exactly k classes are hits, however many outputs are equal."""
    best = np.argsort(-outputs, axis=1, kind="stable")[:, :k]
    assert (TopK(k).per_example(outputs, labels) == (best == labels[:, None]).any(axis=1)).all()


def test_top5_of_five_classes_is_refused() -> None:
    """A score that cannot be below 100 % would pass every gate."""
    problem = TOP5.problem(np.eye(5), np.arange(5), 5)
    assert problem == "top5 of 5 classes is always 100 %; choose top1"


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
@pytest.mark.parametrize("metric", [TOP1, F1, BALANCED_ACCURACY], ids=lambda m: m.name)
def test_one_output_is_a_logit_of_class_1(shape: tuple[int, ...], metric: Metric) -> None:
    """A binary model may give one logit: class 1 above 0, class 0 otherwise."""
    logits = np.array([-2.0, 3.0, 0.5, -0.1]).reshape(shape)
    labels = np.array([0, 1, 1, 0])
    assert metric.problem(logits, labels, 2) is None
    assert metric.value(logits, labels) == 1.0
    assert metric.value(-logits, labels) == 0.0


def test_one_output_between_0_and_1_is_refused_as_a_probability() -> None:
    """A sigmoid's output with a logit's threshold would call everything class 1."""
    problem = TOP1.problem(np.array([0.2, 0.9, 0.4]), np.array([0, 1, 0]), 2)
    assert problem is not None
    assert "return the logit, or one column per class" in problem


def test_one_output_on_more_than_two_classes_does_not_fit() -> None:
    """A single logit cannot tell ten classes apart."""
    assert "data set has 10 classes" in str(TOP1.problem(np.array([-1.0, 2.0]), np.array([0, 1]), 10))


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_one_output_chooses_between_two_classes(shape: tuple[int, ...]) -> None:
    """A label 2 can never be met, also where the data set does not say how many classes it has."""
    outputs = np.array([-1.0, 2.0, 3.0]).reshape(shape)
    assert TOP1.problem(outputs, np.array([0, 1, 1]), None) is None
    problem = TOP1.problem(outputs, np.array([0, 1, 2]), None)
    assert problem == "1 labels are outside the model's 2 classes 0 to 1, first: 2"


@pytest.mark.parametrize(("low", "high", "refused"), [(0.0, 1.0, True), (-0.01, 1.0, False), (0.0, 1.01, False)])
def test_one_output_is_refused_where_all_lie_between_0_and_1(low: float, high: float, refused: bool) -> None:
    """The ends are probabilities, too; one number outside says that they are none."""
    problem = TOP1.problem(np.array([low, 0.5, high]), np.array([0, 1, 1]), None)
    assert (problem is not None) is refused


@settings(max_examples=25)
@given(labels=hnp.arrays(np.int64, 30, elements=st.integers(0, 3)), seed=st.integers(0, 99))
def test_class_scores_equal_scikit_learns_when_all_classes_occur(labels: np.ndarray, seed: int) -> None:
    """Over data that has every class, macro scores are scikit-learn's own."""
    from sklearn.metrics import balanced_accuracy_score, f1_score, precision_score, recall_score

    labels[:4] = np.arange(4)
    outputs = np.random.default_rng(seed).normal(size=(30, 4))
    predicted = outputs.argmax(axis=1)
    options = {"average": "macro", "zero_division": 0.0}
    assert F1.value(outputs, labels) == pytest.approx(f1_score(labels, predicted, **options))
    assert PRECISION.value(outputs, labels) == pytest.approx(precision_score(labels, predicted, **options))
    assert RECALL.value(outputs, labels) == pytest.approx(recall_score(labels, predicted, **options))
    assert BALANCED_ACCURACY.value(outputs, labels) == pytest.approx(balanced_accuracy_score(labels, predicted))


@settings(max_examples=25)  # scikit-learn takes a millisecond a call
@given(labels=hnp.arrays(np.int64, 30, elements=st.integers(0, 3)), seed=st.integers(0, 99), label=st.integers(0, 3))
def test_scores_of_one_class_equal_scikit_learns(labels: np.ndarray, seed: int, label: int) -> None:
    """`recall:3` is what scikit-learn gives for the label 3 alone."""
    from sklearn.metrics import f1_score, precision_score, recall_score

    labels[:4] = np.arange(4)
    outputs = np.random.default_rng(seed).normal(size=(30, 4))
    options = {"labels": [label], "average": "macro", "zero_division": 0.0}
    for name, expected in (("f1", f1_score), ("precision", precision_score), ("recall", recall_score)):
        metric = metric_of(f"{name}:{label}")
        value = metric.value(outputs, labels)
        assert value == pytest.approx(expected(labels, outputs.argmax(axis=1), **options))
        each = metric.per_example(outputs, labels)
        assert (each is None) == (name != "recall")
        if each is not None:
            assert (len(each), each.mean()) == ((labels == label).sum(), pytest.approx(value))


def test_a_class_that_the_model_lacks_is_a_problem() -> None:
    """`recall:8` of a model with classes 0 to 7 is a slip of the pen, not 0 %."""
    outputs, labels = fitting(TOP1)
    assert metric_of("recall:8").problem(outputs, labels, None) == "the model has 8 classes, 0 to 7"
    assert metric_of("recall:7").problem(outputs, labels, None) is None


@pytest.mark.parametrize("name", ["top1", "top3", "top17"])
def test_top_k_is_there_for_any_k(name: str) -> None:
    """`top3` needs no line in the registry: the number in the name is k, and the record has the name."""
    metric = metric_of(name)
    assert isinstance(metric, TopK)
    assert (metric.name, f"top{metric.k}") == (name, name)


@pytest.mark.parametrize("name", ["top0", "top", "top-1", "top1x", "recall:", "recall:-1", "recall:03", "top<k>"])
def test_what_only_looks_like_such_a_name_is_unknown(name: str) -> None:
    """The error names what can be written, the families too."""
    with pytest.raises(UnknownName, match=r"recall:<class>, .* top<k>, wer, \{python: file.py:function\}"):
        registry.load("metric", name)


def test_a_stray_prediction_does_not_change_what_is_averaged() -> None:
    """The mean is over the classes of the labels, so that two variants are averaged over the same ones."""
    labels = np.array([0, 0, 1, 1])
    clean, stray = np.eye(3)[[0, 0, 1, 1]], np.eye(3)[[0, 0, 1, 2]]
    assert RECALL.value(clean, labels) == 1.0
    assert RECALL.value(stray, labels) == pytest.approx(0.75)  # (2/2 + 1/2) / 2, not / 3


def test_mae_known_answer_and_several_values_for_an_example() -> None:
    """The mean absolute difference, averaged over an example's values first."""
    assert MAE.value(np.array([[1.0], [4.0]]), np.array([2.0, 2.0])) == 1.5
    outputs, labels = np.array([[1.0, 3.0], [5.0, 5.0]]), np.array([[1.0, 1.0], [5.0, 1.0]])
    assert MAE.per_example(outputs, labels).tolist() == [1.0, 2.0]


def test_r2_of_the_mean_is_0_and_of_constant_labels_undefined() -> None:
    """The labels' own mean scores 0; labels that do not vary give no score."""
    labels = np.array([1.0, 2.0, 3.0])
    assert R2.value(np.full((3, 1), 2.0), labels) == pytest.approx(0.0)
    problem = R2.problem(labels, np.ones(3), None)
    assert problem == "all labels are the same, so r2 is undefined; choose mae"


def test_regression_needs_as_many_values_as_labels() -> None:
    """Class scores against one number per example do not fit."""
    assert "expected the same numbers of values" in str(MAE.problem(np.ones((3, 10)), np.ones(3), None))


def test_rmse_known_answer_and_the_weight_of_large_errors() -> None:
    """The root of the mean square: one error of 2 counts more than two of 1."""
    labels = np.zeros(4)
    assert RMSE.value(np.array([1.0, 1.0, 0.0, 0.0])[:, None], labels) == pytest.approx(np.sqrt(0.5))
    assert RMSE.value(np.array([2.0, 0.0, 0.0, 0.0])[:, None], labels) == 1.0
    assert MAE.value(np.array([2.0, 0.0, 0.0, 0.0])[:, None], labels) == 0.5


@given(
    outputs=hnp.arrays(np.float64, (20, 3), elements=st.floats(-3, 3)),
    labels=hnp.arrays(np.float64, (20, 3), elements=st.floats(-3, 3), unique=True),
)
def test_r2_equals_scikit_learns(outputs: np.ndarray, labels: np.ndarray) -> None:
    """Also of several values for an example: the mean of their coefficients."""
    from sklearn.metrics import r2_score

    assert R2.value(outputs, labels) == pytest.approx(r2_score(labels, outputs))


@given(
    outputs=hnp.arrays(np.float64, 20, elements=st.floats(-3, 3, width=16)),
    labels=hnp.arrays(np.float64, 20, elements=st.floats(-3, 3, width=16)),
)
def test_spearman_equals_scipys_also_with_ties(outputs: np.ndarray, labels: np.ndarray) -> None:
    """The correlation of the mean ranks; outputs that are all equal order nothing, which is 0."""
    from scipy.stats import spearmanr

    labels[:2] = (-4.0, 4.0)
    constant = np.ptp(outputs) == 0
    expected = 0.0 if constant else spearmanr(outputs, labels).statistic
    assert SPEARMAN.value(outputs[:, None], labels) == pytest.approx(expected, abs=1e-12)


def test_spearman_takes_one_number_each_and_labels_that_vary() -> None:
    """A row of outputs has no rank, and equal labels have no order."""
    labels = np.arange(3.0)
    assert "one number for each example" in str(SPEARMAN.problem(np.ones((3, 2)), np.ones((3, 2)), None))
    assert "all labels are the same, so spearman is undefined" in str(SPEARMAN.problem(labels, np.ones(3), None))


def test_class_metrics_on_numbers_name_the_metrics_for_numbers() -> None:
    """A regression under the default metric is told what to write."""
    assert "choose mae, rmse, r2 or spearman" in str(TOP1.problem(np.eye(3), np.array([0.5, 1.5, 2.0]), None))


@pytest.mark.parametrize("name", ["recall:3", "precision:3", "f1:3"])
def test_a_resample_without_the_one_class_scores_0(name: str) -> None:
    """It is neither a label there nor chosen, whether a higher class is or not."""
    metric = metric_of(name)
    for facts in ([[0, 0], [2, 1]], [[4, 4], [0, 1]]):
        assert metric.of_facts(np.array(facts)) == 0.0
    assert metric.of_facts(np.array([[3, 3], [0, 0]])) == 1.0


@pytest.mark.parametrize("metric", [RECALL, BALANCED_ACCURACY], ids=lambda m: m.name)
def test_recalls_of_examples_have_their_mean_whatever_classes_there_are(metric: Metric) -> None:
    """Of one example, of none, and of several."""
    outputs, labels = np.eye(6)[[0, 1, 0, 2, 4, 5]], np.array([0, 0, 0, 2, 4, 4])
    each = metric.per_example(outputs, labels)
    assert each is not None
    assert each.mean() == pytest.approx(metric.value(outputs, labels)) == pytest.approx((2 / 3 + 1 + 1 / 2) / 3)


def test_one_logit_has_two_classes_of_which_one_may_be_asked_for() -> None:
    """`recall:1` of a binary model; there is no class 2."""
    logits, labels = np.array([[-2.0], [3.0]]), np.array([0, 1])
    assert metric_of("recall:1").problem(logits, labels, 2) is None
    assert metric_of("recall:2").problem(logits, labels, 2) == "the model has 2 classes, 0 to 1"


def test_r2_is_of_numbers_of_any_size() -> None:
    """Also where they vary by less than 1; labels of which a column does not vary have none."""
    random = np.random.default_rng(0)
    outputs, labels = random.normal(size=(20, 2)), random.normal(size=(20, 2))
    assert R2.value(2.0**-10 * outputs, 2.0**-10 * labels) == pytest.approx(R2.value(outputs, labels))
    labels[:, 1] = 3.0
    assert "all labels are the same, so r2 is undefined" in str(R2.problem(outputs, labels, None))


@pytest.mark.parametrize(("wrong", "score"), [(0.0, 1.0), (0.01, 0.0)])
def test_a_resample_whose_labels_do_not_vary_is_perfect_or_worth_nothing(wrong: float, score: float) -> None:
    """There is no mean that it could be better than."""
    assert R2.of_facts(np.array([[[wrong], [5.0]]] * 3)) == score
