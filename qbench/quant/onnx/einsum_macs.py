"""Multiply-accumulates of an Einsum, from its equation. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

Shape = tuple[int, ...]
Labels = tuple[str, ...]
_ELLIPSIS = "..."


def multiply_accumulates(equation: str, shapes: Sequence[Shape]) -> int:
    """The multiply-accumulates of an Einsum whose operands are contracted from left to right, as ONNX Runtime does.

    A label that only one operand has is summed before it is multiplied. A pair of operands without a label to sum over
    is multiplied element by element, which is no product of matrices and counts as nothing, as ``Mul`` does. Raises
    ``ValueError`` for an equation that does not fit the shapes.
    """
    inputs, arrow, result = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(shapes):
        raise ValueError(f"the equation has {len(terms)} operands, there are {len(shapes)}")
    operands = [_labels(term, len(shape)) for term, shape in zip(terms, shapes, strict=True)]
    sizes = _sizes(operands, shapes)
    labels_out = set(_labels(result, None)) if arrow else _implicit(terms)
    if _ELLIPSIS in result or not arrow:
        labels_out |= {label for labels in operands for label in labels if len(label) > 1}
    counted, labels_so_far = 0, _summed(operands[0], [*operands[1:], tuple(labels_out)])
    for i, operand in enumerate(operands[1:], start=1):
        later = [*operands[i + 1 :], tuple(labels_out)]
        both = set(labels_so_far) | set(_summed(operand, [labels_so_far, *later]))
        rest = set(_summed(tuple(both), later))
        if both != rest:
            counted += math.prod(sizes[label] for label in both)
        labels_so_far = tuple(rest)
    return counted


def _labels(term: str, rank: int | None) -> Labels:
    """The labels of a term; an axis of its ellipsis is called by its place from the right (``...1``)."""
    before, dots, after = term.partition(_ELLIPSIS)
    hidden = 0 if rank is None or not dots else rank - len(before) - len(after)
    labels = (*before, *(f"{_ELLIPSIS}{hidden - i}" for i in range(hidden)), *after)
    if rank is not None and len(labels) != rank:
        raise ValueError(f"the term {term} does not name {rank} axes")
    return labels


def _sizes(operands: Sequence[Labels], shapes: Sequence[Shape]) -> dict[str, int]:
    """Label -> size; an axis of 1 is stretched to the others of its label."""
    sizes: dict[str, int] = {}
    for labels, shape in zip(operands, shapes, strict=True):
        for label, size in zip(labels, shape, strict=True):
            sizes[label] = max(sizes.get(label, 1), size)
    return sizes


def _implicit(terms: Sequence[str]) -> set[str]:
    """The labels of the result where the equation names none: those that occur once."""
    letters = "".join(terms).replace(".", "")
    return {letter for letter in letters if letters.count(letter) == 1}


def _summed(labels: Labels, others: Sequence[Collection[str]]) -> Labels:
    """The labels that are left when those that nothing else has are summed over."""
    return tuple(label for label in labels if any(label in other for other in others))
