"""The scores of language models: what each token adds, and the document as the unit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import log_softmax, rel_entr, softmax

from qbench.errors import EvaluateError
from qbench.evaluate.one_output import score_predictions
from qbench.metrics import next_token
from qbench.metrics.next_token import MOST_LIKELY, NLL, TOKEN_FLIPS, TOKEN_KL

Array = NDArray[np.float32]


def draw(seed: int, *, windows: int = 6, length: int = 5, vocabulary: int = 12) -> tuple[Array, Array, Array]:
    """Logits of a variant and of fp32, and labels of three documents, some of whose positions do not count."""
    random = np.random.default_rng(seed)
    fp32 = random.normal(0, 2, (windows, length, vocabulary)).astype(np.float32)
    ours = (fp32 + random.normal(0, 0.5, fp32.shape)).astype(np.float32)
    labels = random.integers(0, vocabulary, (windows, 1 + length))
    labels[:, 1:][random.random((windows, length)) < 0.3] = -1
    labels[:, 0] = np.arange(windows) // 2
    labels[0, 1] = 0  # one counts at least
    return ours, fp32, labels


@given(st.integers(0, 2**32 - 1))
def test_the_negative_log_likelihood_is_that_of_torch(seed: int) -> None:
    """Nats per token that counts, over all tokens alike."""
    ours, _, labels = draw(seed)
    value = NLL.value(NLL.summarize([ours], labels), labels)
    expected = torch.nn.functional.cross_entropy(
        torch.tensor(ours, dtype=torch.float64).flatten(0, 1), torch.tensor(labels[:, 1:]).flatten(), ignore_index=-1
    )
    assert value == pytest.approx(float(expected), abs=1e-6)


@given(st.integers(0, 2**32 - 1))
def test_a_token_flips_where_another_is_the_likeliest(seed: int) -> None:
    """The share of the tokens that count; of equally likely ones the lowest is the likeliest, in both."""
    ours, fp32, labels = draw(seed)
    ours[0, 0] = fp32[0, 0] = 1.0
    counted = labels[:, 1:] >= 0
    expected = (ours.argmax(axis=2) != fp32.argmax(axis=2))[counted].mean()
    value = TOKEN_FLIPS.value(*(TOKEN_FLIPS.summarize([part], labels) for part in (ours, fp32)))
    assert value == pytest.approx(expected, abs=1e-12)


def measure_whole(ours: Array, fp32: Array, labels: Array) -> float:
    """The divergence over the whole vocabulary, nats per token."""
    counted = labels[:, 1:] >= 0
    p, q = (softmax(part[counted].astype(np.float64), axis=1) for part in (fp32, ours))
    return float(rel_entr(p, q).sum(axis=1).mean())


@given(st.integers(0, 2**32 - 1), st.integers(2, MOST_LIKELY))
def test_the_divergence_of_a_small_vocabulary_is_exact(seed: int, vocabulary: int) -> None:
    """Where no more tokens are in it than are kept of each position."""
    ours, fp32, labels = draw(seed, vocabulary=vocabulary)
    value = TOKEN_KL.value(*(TOKEN_KL.summarize([part], labels) for part in (ours, fp32)))
    assert value == pytest.approx(measure_whole(ours, fp32, labels), abs=1e-5)


@pytest.mark.parametrize("vocabulary", [MOST_LIKELY + 1, 100, 1000])
@pytest.mark.parametrize("noise", [0.02, 1.0])
def test_the_divergence_is_estimated_without_bias(vocabulary: int, noise: float) -> None:
    """Of 20,000 positions it is that of the whole vocabulary within 5 %, however small it is."""
    ours, fp32, labels = draw(5, windows=1000, length=20, vocabulary=vocabulary)
    ours = (fp32 + noise * (ours - fp32)).astype(np.float32)
    value = TOKEN_KL.value(*(TOKEN_KL.summarize([part], labels) for part in (ours, fp32)))
    assert value == pytest.approx(measure_whole(ours, fp32, labels), rel=0.05)


def test_outputs_that_are_the_same_do_not_differ() -> None:
    """No flips, and a divergence of exactly 0, for a vocabulary of any size."""
    for vocabulary in (4, 100):
        ours, _, labels = draw(0, vocabulary=vocabulary)
        rows = NLL.summarize([ours], labels)
        assert TOKEN_FLIPS.value(rows, rows) == TOKEN_KL.value(rows, rows) == 0.0


def test_a_position_is_summarized_by_itself() -> None:
    """In whatever batches, also in more blocks than one, bit for bit."""
    ours, _, labels = draw(1, windows=8)
    whole = NLL.summarize([ours], labels)
    halves = [NLL.summarize([ours[part]], labels[part]) for part in (slice(0, 3), slice(3, 8))]
    assert (np.concatenate(halves) == whole).all()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("qbench.metrics.next_token.BLOCK", 12 * 4)
        assert (NLL.summarize([ours], labels) == whole).all()


@pytest.mark.parametrize("metric", [NLL, TOKEN_FLIPS, TOKEN_KL], ids=lambda metric: metric.name)
def test_the_unit_is_the_document(metric: object) -> None:
    """Its windows are one row of facts, the sum over its tokens and how many count."""
    ours, fp32, labels = draw(2)
    rows, reference = (NLL.summarize([part], labels) for part in (ours, fp32))
    facts = metric.facts(rows, reference)  # type: ignore[attr-defined]
    counts = [(labels[labels[:, 0] == document, 1:] >= 0).sum() for document in range(3)]
    assert facts[:, 1].tolist() == counts
    units = metric.units(labels if metric is NLL else rows)  # type: ignore[attr-defined]
    assert [places.tolist() for places in units.members] == [[0, 1], [2, 3], [4, 5]]
    predictions = {"outputs": rows, "labels": labels}
    base = {"outputs": reference, "labels": labels}
    accuracy = score_predictions(metric, predictions, base, None)  # type: ignore[arg-type]
    assert accuracy.n == 3


def test_documents_of_which_no_token_flips_prove_no_zero() -> None:
    """Among 50 documents that did not change, others may still be wrong: the limit is above 0, and not of the fp32."""
    ours, _, labels = draw(3, windows=50)
    labels[:, 0] = np.arange(50)
    labels[:, 1] = 1
    predictions = {"outputs": TOKEN_FLIPS.summarize([ours], labels), "labels": labels}
    change = score_predictions(TOKEN_FLIPS, predictions, predictions, None).delta
    assert change is not None
    assert change.value == 0
    assert change.high == pytest.approx(0.0713, abs=1e-3)
    assert score_predictions(TOKEN_FLIPS, predictions, None, None).value == 0


@pytest.mark.parametrize(
    ("outputs", "labels", "message"),
    [
        (np.zeros((2, 3), np.float32), np.zeros((2, 4), int), r"expected logits \(n, length, vocabulary\)"),
        (np.zeros((2, 3, 4), int), np.zeros((2, 4), int), "expected logits"),
        (np.zeros((2, 3, 4), np.float32), np.zeros(2, int), "labels are int64 of shape .2. for 3 positions"),
        (np.zeros((2, 3, 4), np.float32), np.zeros((2, 3), int), "expected those of the data set texts"),
        (
            np.zeros((2, 3, 4), np.float32),
            np.full((2, 4), 4),
            "the token 4, and the network knows 4 tokens; give `tokenizer:`",
        ),
        (np.zeros((2, 3, 4), np.float32), np.zeros((2, 4)), "labels are float64"),
        (np.full((2, 3, 4), np.nan, np.float32), np.zeros((2, 4), int), "NaN or infinite"),
        (np.zeros((2, 3, 4), np.float32), None, "no labels"),
    ],
)
def test_what_is_no_language_model_is_told(outputs: Array, labels: Array | None, message: str) -> None:
    """With what to do."""
    with pytest.raises(EvaluateError, match=message):
        TOKEN_FLIPS.summarize([outputs], labels)


def test_texts_without_a_token_that_counts_are_refused() -> None:
    """There is no score of none."""
    ours, _, labels = draw(4)
    labels[:, 1:] = -1
    rows = NLL.summarize([ours], labels)
    assert "no token counts" in str(NLL.problem(rows, labels, None))
    assert "no token counts" in str(NLL.problem(np.zeros((6, 51)), labels, None))
    assert NLL.of_facts(np.zeros((2, 2))) == 0.0, "nor of none in a resample"


def test_a_summary_holds_the_sixteen_likeliest_tokens_with_what_they_weigh() -> None:
    """In their order, behind document, vocabulary and what the next token costs; rows of -1 where none counts."""
    ours, _, labels = draw(6, vocabulary=40)
    rows, counted = NLL.summarize([ours], labels), labels[:, 1:] >= 0
    assert (rows.dtype, rows.shape) == (np.float32, (6, 5, 3 + 3 * 16))
    assert not counted.all()
    assert (rows[~counted] == -1).all()
    likeliest = np.argsort(-ours[counted], axis=1, kind="stable")[:, :16]
    documents = np.broadcast_to(labels[:, :1], counted.shape)[counted]
    assert (rows[counted][:, :2] == np.stack([documents, np.full(len(documents), 40)], axis=1)).all()
    assert (rows[counted][:, 3:19] == likeliest).all()
    logs = np.take_along_axis(log_softmax(ours[counted].astype(np.float64), axis=1), likeliest, axis=1)
    np.testing.assert_allclose(rows[counted][:, 19:35], logs, rtol=1e-6)


def test_of_more_equal_tokens_than_are_kept_the_lowest_is_the_likeliest() -> None:
    """As argmax decides."""
    logits = np.random.default_rng(0).integers(0, 2, (200, 1, 60)).astype(np.float32)
    rows = NLL.summarize([logits], np.stack([np.arange(200), np.zeros(200, int)], axis=1))
    assert (rows[..., 3] == logits.argmax(axis=2)).all()


@pytest.mark.parametrize("vocabulary", [4, 100, 2048])
def test_tokens_are_drawn_by_splitmix64(vocabulary: int) -> None:
    """One of each sixteenth of the vocabulary, by the document and the place alone: those of a run of another day are
    the same."""
    places = [(0, 0), (0, 5), (7, 31), (70_000, 2)]
    expected = []
    for document, place in places:
        row = []
        for part in range(16):
            bits = ((document << 32) + place) * 16 + part
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
                bits = (bits ^ (bits >> shift)) * factor % 2**64
            row.append(int((part + (bits >> 11) / 2**53) * (vocabulary / 16)))
        expected.append(row)
    columns = np.array(places).T
    assert next_token._draw_tokens(columns[0], columns[1], vocabulary).tolist() == expected


def test_so_many_logits_are_in_double_precision_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four million, or a position where that has more."""
    sizes, summarize = [], next_token._summarize_positions
    monkeypatch.setattr(
        next_token, "_summarize_positions", lambda logits, *rest: sizes.append(len(logits)) or summarize(logits, *rest)
    )
    NLL.summarize([np.zeros((1, 9, 2**20), np.float32)], np.zeros((1, 10), int))
    assert sizes == [4, 4, 1]
    sizes.clear()
    monkeypatch.setattr(next_token, "BLOCK", 3)
    NLL.summarize([np.zeros((1, 3, 4), np.float32)], np.zeros((1, 4), int))
    assert sizes == [1, 1, 1]


def test_so_many_positions_are_compared_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each of them every pair of likeliest tokens is held against each other."""
    sizes, measure = set(), next_token._measure_terms
    monkeypatch.setattr(next_token, "_measure_terms", lambda q, p: sizes.add(len(q)) or measure(q, p))
    rows = TOKEN_KL.summarize([np.zeros((1, 5000, 4), np.float32)], np.zeros((1, 5001), int))
    assert TOKEN_KL.value(rows, rows) == 0
    assert sizes == {4096, 5000 - 4096}


def test_a_document_is_a_unit_where_one_of_its_tokens_counts() -> None:
    """By the windows in which one does; the first token of a vocabulary is one."""
    units = NLL.units(np.array([[0, 0, -1], [1, -1, -1], [2, -1, 0], [2, -1, -1]]))
    assert [places.tolist() for places in units.members] == [[0], [2]]
    assert units.among.size == 0
