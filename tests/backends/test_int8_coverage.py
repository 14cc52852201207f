"""What of an artifact runs in int8: figures, and the refusal of too little."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from qbench.backends import int8_coverage
from qbench.backends.base import Built
from qbench.backends.int8_coverage import require_int8, require_named, summarize_coverage
from qbench.errors import BuildError, ModeImpossible
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.artifacts.torch_export import NO_INT8_FORM
from qbench.quant.flow import Conversion


def built(*layers, uncounted=None, **conversion):
    return Built(format="x", file="x", layers=layers, uncounted=uncounted, conversion=Conversion(**conversion))


def test_coverage_counts_work_not_layers():
    """The share is of multiply-accumulates; float layers are named in order."""
    layers = tuple(
        Layer(name=name, operator="x", macs=macs, precision="int8" if int8 else "fp32")
        for name, macs, int8 in [("a", 90, True), ("b", 10, False)]
    )
    coverage = summarize_coverage(built(*layers, float_reasons={"b": "no kernel", "a": "said of an int8 layer"}))
    assert coverage.float_reasons == {"b": "no kernel"}
    assert (coverage.macs_int8, coverage.float_layers) == (0.9, ("b",))
    assert (coverage.layers_int8, coverage.layers_total) == (1, 2)


def test_coverage_that_cannot_be_counted_is_null_with_its_reason():
    """A layer of unknown work, or layers that could not be read, leave no share: never 100 %."""
    layers = (
        Layer(name="a", operator="QGemm", macs=90, precision="int8"),
        Layer(name="b", operator="MoE", macs=None),
    )
    coverage = summarize_coverage(built(*layers))
    assert (coverage.macs_int8, coverage.unknown) == (None, "how much b (MoE) multiplies cannot be counted")
    assert (coverage.layers_int8, coverage.layers_total, coverage.float_layers) == (1, 2, ("b",))
    unread = summarize_coverage(built(uncounted="the interpreter cannot be watched"))
    assert (unread.macs_int8, unread.unknown) == (None, "the interpreter cannot be watched")


def test_unknown_coverage_fails_no_min_coverage():
    """Nothing shows that it is less; but where every layer is seen to be float, nothing runs in int8 all the same."""
    unknown = Layer(name="a", operator="x", macs=None)
    int8 = Layer(name="a", operator="x", macs=90, precision="int8")
    require_int8(built(int8, unknown), 0.9)
    require_int8(built(uncounted="the interpreter cannot be watched"), 0.9)
    with pytest.raises(BuildError, match="nothing runs in int8: all 1 layers stay float"):
        require_int8(built(unknown), None)


@pytest.mark.parametrize(
    ("operator", "way_out"),
    [
        ("ConvTranspose", "; mode static on fbgemm has an int8 kernel for ConvTranspose; leave"),
        ("aten::gru", "; mode dynamic on a torch engine has int8 kernels for LSTM and GRU; leave"),
        ("Einsum", r"a \(Einsum\); leave this mode out here$"),
    ],
)
def test_a_network_that_a_mode_cannot_make_int8_is_told_where_it_can_be(operator, way_out):
    """Skipped, with the mode and backend that have a kernel for its layers, and no other's."""
    layers = (Layer(name="a", operator=operator, macs=90),)
    with pytest.raises(ModeImpossible, match=f"^no layer of this network .*{way_out}"):
        require_int8(built(*layers), None)


def test_a_mode_that_makes_next_to_nothing_int8_cannot_be_had_where_no_recipe_makes_more():
    """3-D convolutions on inductor, and a Linear of 0.03 %: nothing that a user could change here. With a layer that a
    recipe keeps float, or a larger share, it is the suite's own limit that fails."""

    def make_built(int8_macs: int, reason: str) -> Built:
        layers = (
            Layer(name="conv", operator="aten::convolution", macs=10_000),
            Layer(name="fc", operator="onednn::qlinear_pointwise", macs=int8_macs, precision="int8"),
        )
        return built(*layers, float_reasons={"conv": reason})

    impossible = f"X86InductorQuantizer {NO_INT8_FORM} conv3d"
    with pytest.raises(ModeImpossible, match=r"^next to no layer .*: conv \(X86.* of conv3d\); leave this mode"):
        require_int8(make_built(3, impossible), 0.5)
    require_int8(make_built(3, impossible), None)
    with pytest.raises(BuildError, match=r"^only 0\.03 % of .* and min_coverage is 0\.1 %: conv \(skip_layers\) stay"):
        require_int8(make_built(3, "skip_layers"), 0.001)
    with pytest.raises(BuildError, match=r"^only 9\.1 % of .* and min_coverage is 50 %: conv"):
        require_int8(make_built(1_000, impossible), 0.5)


def test_coverage_of_16_bit_floats_is_told_beside_that_of_int8():
    """The share and the layers are those in the format that the mode names; none of it is called int8."""
    half, float_ = Layer(name="a", operator="x", macs=90, precision="bf16"), Layer(name="b", operator="x", macs=10)
    coverage = summarize_coverage(built(half, float_), "bf16")
    assert (coverage.macs_half, coverage.layers_half, coverage.float_layers) == (0.9, 1, ("b",))
    assert (coverage.macs_int8, coverage.layers_int8) == (0.0, 0)
    assert (coverage.share_of("bf16"), coverage.layers_of("bf16")) == (0.9, 1)
    assert (coverage.share_of("static"), coverage.layers_of("static")) == (0.0, 0)
    int8 = summarize_coverage(built(half, float_))
    assert (int8.macs_half, int8.layers_half, int8.float_layers) == (None, None, ("a", "b"))


def test_a_16_bit_float_that_runs_nowhere_is_no_variant():
    """Where every layer is seen in fp32 the mode is impossible there, with the layers named; one layer is enough."""
    half, float_ = Layer(name="a", operator="x", macs=90, precision="bf16"), Layer(name="b", operator="k", macs=10)
    require_named(built(half, float_), "bf16")
    require_named(built(uncounted="the interpreter cannot be watched"), "bf16")
    with pytest.raises(ModeImpossible, match=r"nothing runs in fp16: all 2 layers stay fp32: a \(x\), b \(k\); leave"):
        require_named(built(half, float_), "fp16")


def test_coverage_of_weights_of_few_bits_tells_what_multiplies_them():
    """The share is that of such weights, and the words say whether bytes or floats multiply them; the largest number of
    bits is told. None of it is no variant."""
    few, float_ = Layer(name="a", operator="x", macs=90, weight_bits=4), Layer(name="b", operator="x", macs=10)
    coverage = summarize_coverage(built(few, float_), "weight_only")
    assert (coverage.macs_weights, coverage.layers_weights, coverage.weight_bits) == (0.9, 1, 4)
    assert (coverage.macs_int8, coverage.float_layers, coverage.share_of("weight_only")) == (0.0, ("b",), 0.9)
    assert coverage.describe_format("weight_only") == "with weights of 4 bits (arithmetic in fp32)"
    int8 = replace(few, precision="int8")
    said = [summarize_coverage(built(*layers), "weight_only") for layers in ((int8, float_), (int8, few))]
    assert [each.describe_format("weight_only").partition(" (")[2] for each in said] == [
        "arithmetic in int8)",
        "arithmetic in int8 and fp32)",
    ]
    require_named(built(few, float_), "weight_only")
    with pytest.raises(ModeImpossible, match=r"no weight is in few bits: all 1 layers stay fp32: b \(x\)"):
        require_named(built(float_), "weight_only")


@pytest.mark.parametrize("layers", [(), (Layer(name="a", operator="x", macs=9),)])
def test_without_weights_of_few_bits_there_are_no_bits(layers):
    """No layer has them, or there is none."""
    assert summarize_coverage(built(*layers)).weight_bits is None


def test_a_share_that_is_just_enough_is_enough():
    """Of what a suite asks for; a hundredth is not next to nothing."""
    few = Layer(name="fc", operator="x", macs=1, precision="int8")
    rest = Layer(name="conv", operator="x", macs=99)
    require_int8(built(few, rest), 0.01)
    impossible = built(few, rest, float_reasons={"conv": NO_INT8_FORM})
    with pytest.raises(BuildError, match="^only 1 % of") as raised:
        require_int8(impossible, 0.5)
    assert not isinstance(raised.value, ModeImpossible)


def test_a_network_without_layers_has_nothing_to_quantize():
    """No mode is to blame for it."""
    with pytest.raises(BuildError, match="all 0 layers stay float: the model has no Conv, Linear or LSTM; ") as raised:
        require_int8(built(), None)
    assert not isinstance(raised.value, ModeImpossible)
    with pytest.raises(ModeImpossible, match="all 0 layers stay fp32: the model has no Conv, Linear or LSTM; leave"):
        require_named(built(), "bf16")


def test_of_many_float_layers_the_first_are_named():
    """Eight where int8 is asked for, three where a format is."""
    floats = [Layer(name=f"l{number}", operator="op", macs=100 - number) for number in range(10)]
    eight = ", ".join(f"l{number} (op)" for number in range(8))
    with pytest.raises(BuildError, match=re.escape(f"all 10 layers stay float: {eight} and 2 more; quantize")):
        require_int8(built(*floats), None)
    with pytest.raises(ModeImpossible, match=re.escape("l0 (op), l1 (op), l2 (op) and 7 more; leave bf16 out")):
        require_named(built(*floats), "bf16")


def test_float_layers_are_named_by_their_size():
    """Each with its reason, else its operator; one that cannot be counted comes last."""
    layers = [Layer(name=name, operator="op", macs=macs) for name, macs in (("a", None), ("b", 1), ("c", 9))]
    named = int8_coverage._name_float_layers(built(*layers, float_reasons={"b": "no kernel"}))
    assert named == "c (op), b (no kernel), a (op)"
