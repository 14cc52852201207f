"""Metrics against fp32's outputs: what each says of known distances, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from qbench.metrics import agreement
from qbench.metrics.agreement import COSINE, KL, SQNR, TOP1_AGREEMENT

tables = hnp.arrays(np.float32, (6, 5), elements=st.floats(-8, 8, width=32))


def test_top1_agreement_counts_equal_choices() -> None:
    """Only the choice counts, not how sure it is; at a tie both take the lower class."""
    fp32 = np.array([[1.0, 2.0, 0.0], [3.0, 1.0, 1.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]], np.float32)
    int8 = np.array([[0.0, 9.0, 8.0], [1.0, 2.0, 1.0], [-1.0, -1.0, -0.5], [5.0, 5.0, 0.0]], np.float32)
    assert TOP1_AGREEMENT.per_example(int8, fp32).tolist() == [1.0, 0.0, 1.0, 1.0]
    assert TOP1_AGREEMENT.value(int8, fp32) == 0.75


def test_top1_agreement_of_one_logit_is_that_of_its_sign() -> None:
    """A binary model with one output chooses class 1 above 0."""
    fp32, int8 = np.array([[2.0], [-1.0], [0.1]]), np.array([[0.3], [-9.0], [-0.1]])
    assert TOP1_AGREEMENT.per_example(int8, fp32).tolist() == [1.0, 1.0, 0.0]


def test_outputs_that_are_no_classes_are_sent_to_other_metrics() -> None:
    """Maps have no top-1 class; cosine and SQNR take them."""
    maps = np.ones((3, 2, 4, 4), np.float32)
    assert "choose cosine or sqnr" in str(TOP1_AGREEMENT.problem(maps, None, None))
    assert "choose cosine or sqnr" in str(TOP1_AGREEMENT.problem(maps[..., 0], None, None))
    assert KL.problem(maps, None, None) is not None
    assert (COSINE.problem(maps, None, None), SQNR.problem(maps, None, None)) == (None, None)
    assert (COSINE.value(maps, maps), SQNR.value(maps, maps)) == (1.0, 100.0)


def test_cosine_known_answers() -> None:
    """A factor changes nothing, a right angle is 0, the opposite -1; zeros are like zeros and like nothing else."""
    fp32 = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 0.0], [1.0, 2.0], [0.0, 0.0], [1.0, 0.0]], np.float32)
    int8 = np.array([[3.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, -2.0], [0.0, 0.0], [0.0, 0.0]], np.float32)
    assert COSINE.per_example(int8, fp32) == pytest.approx([1.0, np.sqrt(0.5), 0.0, -1.0, 1.0, 0.0])


def test_short_rows_have_a_direction() -> None:
    """However small the numbers are."""
    fp32 = np.array([[0.1, 0.0], [1e-9, 1e-9], [0.5, 0.0]])
    assert COSINE.per_example(fp32[:, ::-1] / 2, fp32) == pytest.approx([0.0, 1.0, 0.0])
    assert COSINE.per_example(fp32 / 2, fp32) == pytest.approx([1.0, 1.0, 1.0])


def test_scores_that_are_none_are_not_sent_to_other_metrics() -> None:
    """NaN is no answer by any of them, and a probability of one class is a matter of the network."""
    for outputs in (np.full((2, 3), np.nan), np.full((2, 1), 0.5)):
        problem = TOP1_AGREEMENT.problem(outputs, None, None)
        assert problem is not None
        assert "sqnr" not in problem
    assert TOP1_AGREEMENT.problem(np.ones((2, 3)), None, None) is None


@pytest.mark.parametrize("lowest", [0.0, 1e-9, -1e-9])
def test_only_rows_without_a_negative_number_that_add_up_to_1_are_probabilities(lowest: float) -> None:
    """A 0 is one; of logits the softmax is taken."""
    fp32 = np.array([[1.0 - lowest, lowest, 0.0], [0.2, 0.3, 0.5]])
    int8 = np.array([[0.5, 0.25, 0.25], [0.2, 0.3, 0.5]])
    of_shares = KL.per_example(int8, fp32)[0] == pytest.approx(np.log(2), abs=1e-4)
    assert of_shares == (lowest >= 0)
    assert KL.per_example(int8, 1.01 * fp32)[0] < 0.2, "what adds up to 1.01 is no probability"


def test_sqnr_known_answers() -> None:
    """A tenth of the signal as error is 20 dB; equal outputs are cut at 100 dB, and an error on no signal at -100."""
    fp32 = np.array([[3.0, 4.0], [3.0, 4.0], [3.0, 4.0], [3.0, 4.0], [0.0, 0.0], [0.0, 0.0]])
    int8 = np.array([[3.0, 4.5], [3.0, 4.0 + 5 * 10**-4.95], [3.0, 4.0], [0.0, 0.0], [0.0, 0.0], [1e-9, 0.0]])
    for factor in (1.0, 2.0**-10):  # a ratio, however small the signal is
        each = SQNR.per_example(factor * int8, factor * fp32)
        assert each == pytest.approx([20.0, 99.0, 100.0, 0.0, 100.0, -100.0])


def test_sqnr_of_rounding_to_b_bits_is_six_decibels_a_bit() -> None:
    """The textbook's 6.02 b + 10.8 - 20 log10(range / sd) dB, which no other scaling of the ratio gives."""
    values = np.random.default_rng(0).uniform(-1, 1, (20, 4096))
    for bits in (8, 10):
        step = 2 / 2**bits
        assert SQNR.value(np.round(values / step) * step, values) == pytest.approx(6.02 * bits, abs=0.05)


def test_kl_equals_scipys_of_the_softmax() -> None:
    """sum p (ln p - ln q) in nats, with p fp32's."""
    from scipy.special import softmax
    from scipy.stats import entropy

    random = np.random.default_rng(0)
    fp32, int8 = random.normal(0, 4, (7, 5)), random.normal(0, 4, (7, 5))
    expected = entropy(softmax(fp32, axis=1), softmax(int8, axis=1), axis=1)
    assert KL.per_example(int8, fp32) == pytest.approx(expected)
    assert KL.per_example(int8 + 1000.0, fp32 - 1000.0) == pytest.approx(expected)  # a softmax knows no offset


def test_kl_takes_probabilities_as_they_are() -> None:
    """The softmax of probabilities would make any two of them look alike; a probability of 0 stays finite."""
    fp32, int8 = np.array([[0.9, 0.1], [1.0, 0.0]]), np.array([[0.5, 0.5], [0.0, 1.0]])
    per_example = KL.per_example(int8, fp32)
    assert per_example[0] == pytest.approx(0.9 * np.log(0.9 / 0.5) + 0.1 * np.log(0.1 / 0.5))
    assert per_example[1] == pytest.approx(24 * np.log(2), abs=1e-4)  # half a unit in the last place for the 0


@given(fp32=tables, int8=tables)
def test_no_finite_outputs_give_what_a_record_cannot_hold(fp32: np.ndarray, int8: np.ndarray) -> None:
    """Zeros, equal rows and opposite rows included, every value is finite and inside the metric's range."""
    ranges = {TOP1_AGREEMENT: (0, 1), COSINE: (-1, 1), SQNR: (-100, 100), KL: (0, np.inf)}
    for metric, (low, high) in ranges.items():
        each, itself = metric.per_example(int8, fp32), metric.per_example(fp32, fp32)
        assert np.isfinite(each).all()
        assert (each >= low).all()
        assert (each <= high).all()
        assert (itself == metric.perfect).all()


def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large outputs are worked through in blocks, whose seams cannot be seen."""
    random = np.random.default_rng(0)
    fp32, int8 = random.normal(size=(10, 3, 2)).astype(np.float32), random.normal(size=(10, 3, 2)).astype(np.float32)
    whole = SQNR.per_example(int8, fp32)
    monkeypatch.setattr(agreement, "BLOCK", 18)
    assert (SQNR.per_example(int8, fp32) == whole).all()


@pytest.mark.parametrize("factor", [3.0, -3.0])
def test_rounding_puts_no_cosine_beyond_the_ends(factor: float) -> None:
    """Of parallel rows it is 1, or -1, and never more."""
    fp32 = np.random.default_rng(0).normal(size=(1000, 7))
    each = COSINE.per_example(factor * fp32, fp32)
    assert each == pytest.approx(np.sign(factor))
    assert (np.abs(each) <= 1).all()


@pytest.mark.parametrize(
    ("values", "rows", "blocks"),
    [(2**16, 9, [4, 4, 1]), (2**18, 2, [1, 1]), (2**18 + 1, 2, [1, 1]), (1, 2**18 + 1, [2**18, 1])],
)
def test_so_many_values_are_held_in_double_precision_at_a_time(values: int, rows: int, blocks: list[int]) -> None:
    """A quarter of a million, or one row where that has more: outputs of segmentation are gigabytes."""
    sizes: list[int] = []

    def measure(ours: np.ndarray, fp32: np.ndarray) -> np.ndarray:
        assert ours.dtype == fp32.dtype == np.float64
        sizes.append(len(ours))
        return ours[:, 0]

    table = np.zeros((rows, values), np.float32)
    agreement.agree_by_blocks(measure, table, table)
    assert sizes == blocks
