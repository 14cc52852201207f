"""Multiply-accumulates of one executed ONNX operator, from the shapes that the runtime told. Pure.

Definitions of the operators: ONNX 1.23 and ONNX Runtime's contrib operators (domain ``com.microsoft``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Shape = tuple[int, ...]
Labels = tuple[str, ...]  # of the axes of an operand of an Einsum
_ELLIPSIS = "..."


@dataclass(frozen=True, kw_only=True)
class Call:
    """One executed operator. ``inputs``: the shape of each input in its place (None: absent or not told); ``outputs``:
    those of the outputs that were made; ``attributes``: numbers and texts by name."""

    operator: str
    inputs: tuple[Shape | None, ...]
    outputs: tuple[Shape, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def input(self, position: int) -> Shape:
        """The shape of an input; raises ``Unknown`` where it is absent or not told."""
        shape = self.optional(position)
        if shape is None:
            raise Unknown(f"the runtime tells no shape for its input {position}")
        return shape

    def optional(self, position: int) -> Shape | None:
        """The shape of an input, None where it is absent or not told."""
        return self.inputs[position] if position < len(self.inputs) else None

    @property
    def output(self) -> Shape:
        """The shape of the first output; raises ``Unknown`` where none was made."""
        if not self.outputs:
            raise Unknown("the runtime tells no shape for its output")
        return self.outputs[0]


@dataclass(frozen=True, kw_only=True)
class Product:
    """A part of an operator that multiplies and accumulates. ``name`` tells it from the operator's other parts,
    ``macs`` is None where they cannot be counted. ``weight_bits``: of weights that are stored in fewer bits than they
    are multiplied in."""

    macs: int | None
    int8: bool
    name: str = ""
    weight_bits: int | None = None


class Unknown(Exception):
    """An operator whose multiply-accumulates cannot be told from what is known of it; the text says why."""


def products(call: Call) -> tuple[Product, ...]:
    """The products that an operator computes, none for one that only moves, adds or scales values.

    ``macs`` is None for an operator that is known to multiply but not how much. Attention multiplies every query with
    every key, also where a mask hides it, as the kernels do.
    """
    if call.operator in UNCOUNTED:
        return (Product(macs=None, int8=False),)
    if call.operator not in RULES:
        return ()
    try:
        return tuple(product for product in RULES[call.operator](call) if product.macs != 0)
    except (Unknown, LookupError, ValueError):
        return (Product(macs=None, int8=call.operator in INT8),)


def _conv(call: Call) -> tuple[Product, ...]:
    weight = call.input(3 if call.operator == "QLinearConv" else 1)
    if len(weight) < 3:  # output channels, input channels, at least one axis of the kernel
        raise Unknown("a weight without a kernel")
    elements = call.input(0) if "Transpose" in call.operator else call.output
    return _wrap_macs(call, math.prod(elements) * math.prod(weight[1:]))


def _matrix_product(call: Call) -> tuple[Product, ...]:
    a = call.input(0)
    # The last axis of A is summed over, the one before it where A is transposed (the first with transBatchA).
    before = 0 if call.attributes.get("transBatchA") else -2
    return _wrap_macs(call, math.prod(call.output) * a[before if call.attributes.get("transA") else -1])


def _low_bit_product(call: Call) -> tuple[Product, ...]:
    """Weights of few bits in blocks: they are int8 products where the file asks for the accuracy level 4 (int8
    activations), else the weights become floats first."""
    macs = math.prod(call.input(0)) * int(call.attributes["N"])
    bits = int(call.attributes.get("bits", 4))
    return (Product(macs=macs, int8=call.attributes.get("accuracy_level") == 4, weight_bits=bits),)


def _recurrent(call: Call) -> tuple[Product, ...]:
    gates = {"LSTM": 4, "DynamicQuantizeLSTM": 4, "GRU": 3, "RNN": 1}[call.operator]
    hidden = int(call.attributes["hidden_size"])
    directions = 2 if call.attributes.get("direction", "forward") == "bidirectional" else 1
    *steps, width = call.input(0)
    return _wrap_macs(call, directions * math.prod(steps) * gates * hidden * (width + hidden))


def _einsum(call: Call) -> tuple[Product, ...]:
    shapes = [call.input(i) for i in range(len(call.inputs))]
    return _wrap_macs(call, count_einsum(call.attributes["equation"], shapes))


def _standard_attention(call: Call) -> tuple[Product, ...]:
    """``Attention`` of ONNX: (batch, heads, length, size) or (batch, length, heads * size)."""
    past = call.optional(4)
    keys = call.input(1)[-2] + (past[2] if past is not None else 0)
    return _wrap_macs(call, (math.prod(call.input(0)) + math.prod(call.output)) * keys)


def _projecting_attention(call: Call) -> tuple[Product, ...]:
    """``Attention`` and ``QAttention`` of ONNX Runtime: the weight (width, queries + keys + values) comes first; only
    that product is int8 in ``QAttention``."""
    inputs, weight = call.input(0), call.input(1)
    past = call.optional(8 if call.operator == "QAttention" else 4)
    keys = inputs[1] + (past[3] if past is not None else 0)
    values = call.output[-1]
    queries = (weight[1] - values) // 2
    attended = math.prod(inputs[:2]) * keys * (queries + values)
    projected = Product(macs=math.prod(inputs) * weight[1], int8=call.operator in INT8, name="projection")
    return projected, Product(macs=attended, int8=False, name="attention")


def _multi_head_attention(call: Call) -> tuple[Product, ...]:
    """``MultiHeadAttention``: keys as (batch, length, width), (batch, heads, length, size), packed with the values as
    (batch, length, heads, 2, size), or all three packed as (batch, length, heads, 3, size)."""
    query, key, past = call.input(0), call.optional(1), call.optional(6)
    width = query[2] * query[4] if len(query) == 5 else query[2]
    length = query[1] if key is None else key[2] if len(key) == 4 else key[1]
    keys = length + (past[2] if past is not None else 0)
    return _wrap_macs(call, math.prod(query[:2]) * keys * (width + call.output[-1]))


def _grouped_attention(call: Call) -> tuple[Product, ...]:
    """``GroupQueryAttention``: the keys are as many as the present ones, which it gives."""
    return _wrap_macs(call, 2 * math.prod(call.output) * call.outputs[1][2])


def _wrap_macs(call: Call, macs: int) -> tuple[Product, ...]:
    return (Product(macs=macs, int8=call.operator in INT8),)


INT8 = frozenset(
    {
        "QLinearConv", "ConvInteger", "QGemm", "QLinearMatMul", "MatMulInteger", "MatMulIntegerToFloat",
        "DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "QAttention", "QLinearConvTranspose",
    }
)  # fmt: skip
_KINDS: Sequence[tuple[Callable[[Call], tuple[Product, ...]], tuple[str, ...]]] = (
    (
        _conv,
        ("Conv", "FusedConv", "NhwcConv", "NhwcFusedConv", "ConvTranspose", "ConvTransposeWithDynamicPads",
         "DeformConv", "QLinearConv", "ConvInteger", "QLinearConvTranspose", "CausalConvWithState"),
    ),
    (
        _matrix_product,
        ("Gemm", "FusedGemm", "GemmFloat8", "GemmFastGelu", "MatMul", "FusedMatMul", "FusedMatMulActivation",
         "TransposeMatMul", "SparseToDenseMatMul", "QGemm", "QLinearMatMul", "MatMulInteger", "MatMulInteger16",
         "MatMulIntegerToFloat", "DynamicQuantizeMatMul"),
    ),
    (_low_bit_product, ("MatMulNBits", "MatMulBnb4", "MatMulFpQ4")),
    (_recurrent, ("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM")),
    (_einsum, ("Einsum",)),
    (_projecting_attention, ("QAttention",)),
    (_multi_head_attention, ("MultiHeadAttention",)),
    (_grouped_attention, ("GroupQueryAttention",)),
)  # fmt: skip
RULES: dict[str, Callable[[Call], tuple[Product, ...]]] = {name: rule for rule, names in _KINDS for name in names}
RULES["Attention"] = lambda call: (
    _projecting_attention(call) if "num_heads" in call.attributes else _standard_attention(call)
)
# They multiply and accumulate; how much, their inputs' shapes do not tell (experts that are chosen, sparse or packed
# rows, a Fourier transform), or no reference says.
UNCOUNTED = frozenset(
    {
        "AttnLSTM", "CDist", "DFT", "DecoderAttention", "DecoderMaskedMultiHeadAttention",
        "DecoderMaskedSelfAttention", "GatedRelativePositionBias", "LinearAttention", "LongformerAttention", "MoE",
        "PackedAttention", "PackedMultiHeadAttention", "PagedAttention", "QMoE", "QOrderedAttention",
        "QOrderedLongformerAttention", "QOrderedMatMul", "Rfft", "Irfft", "STFT", "SparseAttention",
        "WordConvEmbedding",
    }
)  # fmt: skip


def count_einsum(equation: str, shapes: Sequence[Shape]) -> int:
    """The multiply-accumulates of an Einsum whose operands are contracted from left to right, as ONNX Runtime does.

    A label that only one operand has is summed before it is multiplied. A pair of operands without a label to sum over
    is multiplied element by element, which is no product of matrices and counts as nothing, as ``Mul`` does. Raises
    ``ValueError`` for an equation that does not fit the shapes.
    """
    inputs, arrow, result = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(shapes):
        raise ValueError(f"the equation has {len(terms)} operands, there are {len(shapes)}")
    operands = [_list_labels(term, len(shape)) for term, shape in zip(terms, shapes, strict=True)]
    sizes = _sizes(operands, shapes)
    labels_out = set(_list_labels(result, None)) if arrow else _implicit(terms)
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


def _list_labels(term: str, rank: int | None) -> Labels:
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
