"""Scores of language models: ``nll`` of each next token, ``token_flips`` and ``token_kl`` against fp32.

Outputs are logits (n, length, vocabulary), which for a few hundred texts are gigabytes; so they are summarized in the
process that evaluates, each position on its own: the document that it is of, the negative log likelihood of the token
that follows (nats), the ``MOST_LIKELY`` likeliest tokens with their log probabilities, and the log probabilities of
``DRAWN`` tokens that are drawn for the position, the same for every variant. Labels are whole numbers (n,
1 + length), those of the data set ``texts``: the document's number, then at each position the token that follows, -1
where none counts (behind the end, or since the window before has counted it).

All three are sums over tokens divided by the number of tokens, and their unit is the document: tokens of one document
are not independent. ``nll`` is the logarithm of the perplexity: 0.01 more is 1 % more perplexity. ``token_flips`` is
the share of tokens at which the likeliest token is another than fp32's. ``token_kl`` is the Kullback-Leibler divergence
of the variant's distribution from fp32's (nats per token), the sum over the vocabulary of p log(p / q) - p + q: each
term is at least 0, and those of all tokens but the likeliest are estimated from the drawn ones, without bias (Horvitz
and Thompson, Journal of the American Statistical Association 47 (1952), 663-685).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from qbench.errors import EvaluateError
from qbench.metrics.base import Array, Units, WholeMetric
from qbench.metrics.validation import NO_LABELS, numbers_problem

MOST_LIKELY, DRAWN = 16, 16
BLOCK = 2**22  # logits at a time, in double precision
PAIRED = 4096  # positions whose likeliest tokens are compared at a time
FILL = -1
# The columns of a summary; behind the tokens stand their log probabilities, and those of the drawn tokens.
_DOCUMENT, _VOCABULARY, _NLL, _TOKENS = 0, 1, 2, 3


class NextToken(WholeMetric):
    """What the three have in common: the summary of a position, and documents as the unit."""

    percent = False
    unit = "nats"
    higher_is_better = False
    summary = "next tokens"

    def summarize(self, outputs: Sequence[Array], labels: Array | None) -> Array:
        """Of logits (n, length, vocabulary) the rows of every position, (n, length, columns) float32; rows of -1 where
        no token counts. Raises ``EvaluateError`` where outputs or labels are of another form."""
        logits = outputs[0]
        if problem := _find_misfit(logits, labels):
            raise EvaluateError(f"{self.name}: {problem}")
        assert labels is not None  # so says the misfit
        counted = labels[:, 1:] >= 0
        documents, places = (each[counted] for each in np.broadcast_arrays(labels[:, :1], np.arange(logits.shape[1])))
        flat, targets = logits[counted], labels[:, 1:][counted]
        drawn = _draw_tokens(documents, places, logits.shape[2])
        step = max(1, BLOCK // logits.shape[2])
        parts = [slice(at, at + step) for at in range(0, max(1, len(flat)), step)]
        summaries = np.concatenate([_summarize_positions(flat[part], targets[part], drawn[part]) for part in parts])
        rows = np.full((*logits.shape[:2], _NLL + summaries.shape[1]), FILL, dtype=np.float32)
        rows[counted, _DOCUMENT], rows[counted, _VOCABULARY] = documents, logits.shape[2]
        rows[counted, _NLL:] = summaries
        return rows

    def problem(self, outputs: Array, labels: Array | None, classes: int | None) -> str | None:
        """Why these are no summaries of positions."""
        if problem := numbers_problem(outputs, labels):
            return problem
        if outputs.ndim != 3 or not (outputs[:, :, _DOCUMENT] >= 0).any():
            return f"no token counts in outputs of shape {outputs.shape}; give documents of two tokens or more"
        return None

    def units(self, reference: Array) -> Units:
        """Each document with a token that counts, by its number, as the windows that it is cut into."""
        if self.against == "labels":
            documents = np.where((reference[:, 1:] >= 0).any(axis=1), reference[:, 0], FILL)
        else:
            documents = reference[..., _DOCUMENT].max(axis=1)
        numbers = np.unique(documents[documents >= 0])
        members = [np.flatnonzero(documents == number) for number in numbers]
        return Units(members=members, among=np.empty(0, dtype=np.intp))

    def of_facts(self, facts: Array) -> float:
        """The sum over the number of tokens; 0 where there are none (in a resample)."""
        total, tokens = facts.sum(axis=0)
        return float(total / tokens) if tokens else 0.0


class NegativeLogLikelihood(NextToken):
    """``nll``: nats per token; its exponential is the perplexity."""

    name = "nll"

    def facts(self, outputs: Array, labels: Array) -> Array:
        """Of each document the sum and the number of its tokens; shape (documents, 2)."""
        return _add_up(outputs, outputs[..., _NLL])


class AgainstFp32(NextToken):
    """A score of the distribution of the next token beside fp32's."""

    against = "fp32"
    perfect = 0.0
    unseen = 1.0

    def problem(self, outputs: Array, labels: Array | None, classes: int | None) -> str | None:
        """As for all, but that no labels are needed beside the summaries."""
        return super().problem(outputs, outputs, classes)


class TokenFlips(AgainstFp32):
    """``token_flips``: the share of tokens at which another token is the likeliest."""

    name = "token_flips"
    percent = True
    unit = ""

    def facts(self, outputs: Array, reference: Array) -> Array:
        """Of each document how many tokens flip, and how many there are."""
        return _add_up(outputs, outputs[..., _TOKENS] != reference[..., _TOKENS])


class TokenDivergence(AgainstFp32):
    """``token_kl``: nats per token, of the variant's distribution from fp32's."""

    name = "token_kl"

    def facts(self, outputs: Array, reference: Array) -> Array:
        """Of each document the sum of its tokens' divergences, and how many there are."""
        counted = outputs[..., _DOCUMENT] >= 0
        values = np.zeros(outputs.shape[:2])
        places = np.nonzero(counted)[1]
        values[counted] = list(_measure_divergences(outputs[counted], reference[counted], places))
        return _add_up(outputs, values)


def _find_misfit(logits: Array, labels: Array | None) -> str | None:
    """Why these outputs and labels of a batch are not those of a language model; None if they are."""
    if labels is None:
        return NO_LABELS
    if logits.ndim != 3 or logits.dtype.kind != "f":
        return (
            f"the output is {logits.dtype} of shape {list(logits.shape)}, expected logits (n, length, vocabulary); "
            "`output:` beside the model says which of several it is"
        )
    if labels.ndim != 2 or labels.dtype.kind not in "iu" or labels.shape[1] != 1 + logits.shape[1]:
        return (
            f"labels are {labels.dtype} of shape {list(labels.shape)} for {logits.shape[1]} positions; expected those "
            "of the data set texts, (n, 1 + length): the document's number, then the token that follows, -1 for none"
        )
    if labels[:, 1:].max() >= logits.shape[2]:
        return (
            f"a text has the token {labels[:, 1:].max()}, and the network knows {logits.shape[2]} tokens; give "
            "`tokenizer:` its own"
        )
    if not np.isfinite(logits).all():
        return "logits are NaN or infinite"
    return None


def _draw_tokens(documents: Array, places: Array, vocabulary: int) -> Array:
    """``DRAWN`` tokens for each position of a document, one of each equal part of the vocabulary, (positions, drawn);
    by a hash (splitmix64: Steele, Lea and Flood, OOPSLA (2014), 453-472), so that every variant has the same."""
    counter = (documents.astype(np.uint64) << np.uint64(32)) + places.astype(np.uint64)
    hashed: Array = counter[:, None] * np.uint64(DRAWN) + np.arange(DRAWN, dtype=np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        hashed = (hashed ^ (hashed >> np.uint64(shift))) * np.uint64(factor)
    shares = (hashed >> np.uint64(11)).astype(np.float64) / 2**53
    tokens: Array = ((np.arange(DRAWN) + shares) * (vocabulary / DRAWN)).astype(np.int64)
    return tokens.clip(max=vocabulary - 1)


def _summarize_positions(logits: Array, targets: Array, drawn: Array) -> Array:
    """Of rows of logits what follows document and vocabulary in a summary."""
    likeliest = min(MOST_LIKELY, logits.shape[1])
    logs = logits.astype(np.float64)
    logs -= logs.max(axis=1, keepdims=True, initial=-np.inf)
    logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
    first = logits.argmax(axis=1)  # of equal ones the lowest
    chosen = np.argpartition(-logits, likeliest - 1, axis=1)[:, :likeliest]
    order = np.lexsort((chosen, -np.take_along_axis(logits, chosen, axis=1), chosen != first[:, None]), axis=1)
    tokens = np.take_along_axis(chosen, order, axis=1)
    tokens[:, 0] = first  # also where more are equal than are chosen
    asked = (targets[:, None], tokens, drawn)
    surprise, of_tokens, of_drawn = (np.take_along_axis(logs, each, axis=1) for each in asked)
    return np.concatenate([-surprise, tokens, of_tokens, of_drawn], axis=1).astype(np.float32)


def _add_up(rows: Array, values: Array) -> Array:
    """Of each document the sum of its positions' values, and how many count; by the documents' numbers, (n, 2)."""
    counted = rows[..., _DOCUMENT] >= 0
    documents = rows[..., _DOCUMENT][counted].astype(np.int64)
    _, places = np.unique(documents, return_inverse=True)
    sums = np.bincount(places, weights=values[counted].astype(np.float64))
    return np.stack([sums, np.bincount(places).astype(np.float64)], axis=1)


def _measure_divergences(ours: Array, theirs: Array, places: Array) -> Iterator[float]:
    """Of rows of positions the divergence of the first from the second: the terms of the tokens that are among the
    likeliest of both, and of all others what the drawn ones tell."""
    tokens = slice(_TOKENS, _TOKENS + (ours.shape[1] - _TOKENS - DRAWN) // 2)
    logs = slice(tokens.stop, ours.shape[1] - DRAWN)
    for at in range(0, len(ours), PAIRED):
        q, p = (part[at : at + PAIRED].astype(np.float64) for part in (ours, theirs))
        vocabulary = int(p[0, _VOCABULARY])
        same = q[:, tokens, None] == p[:, None, tokens]
        shared = same.any(axis=1)
        terms = _measure_terms((q[:, logs, None] * same).sum(axis=1), p[:, logs]) * shared
        drawn = _draw_tokens(p[:, _DOCUMENT], places[at : at + PAIRED], vocabulary)
        is_shared = ((drawn[:, :, None] == p[:, None, tokens]) & shared[:, None, :]).any(axis=2)
        others = _measure_terms(q[:, -DRAWN:], p[:, -DRAWN:]) * ~is_shared
        yield from terms.sum(axis=1) + others.sum(axis=1) * (vocabulary / DRAWN)


def _measure_terms(q: Array, p: Array) -> Array:
    """p log(p / q) - p + q of log probabilities, never below 0."""
    terms: Array = np.exp(p) * (np.expm1(q - p) - (q - p))
    return terms.clip(0.0)


NLL = NegativeLogLikelihood()
TOKEN_FLIPS = TokenFlips()
TOKEN_KL = TokenDivergence()
