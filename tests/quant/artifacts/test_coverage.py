"""Coverage: which layers ran in int8, matched in order, never overstated."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_records import int8

from qbench.quant.artifacts.coverage import (
    Layer,
    _longest_match,
    align_by_name,
    align_layers,
    compute_int8_share,
    explain_unknown,
    name_layers,
)
from qbench.record.schema import Coverage
from qbench.report.run_warnings import warn_of_unknown_coverage


def layer(macs, *, int8=False, name="x", operator="op"):
    return Layer(name=name, operator=operator, macs=macs, precision="int8" if int8 else "fp32")


def test_equal_sequences_match_one_to_one():
    """The reference gives the names, the artifact the operator and whether it is int8."""
    ours = [layer(10, name="a"), layer(10, name="b"), layer(5, name="c")]
    theirs = [layer(10, int8=True, operator="q"), layer(10), layer(5, int8=True)]
    aligned = align_layers(ours, theirs)
    assert [(entry.name, entry.int8) for entry in aligned] == [("a", True), ("b", False), ("c", True)]
    assert aligned[0].operator == "q"


def test_an_operator_that_matches_nothing_is_ignored():
    """An int8 operator without a layer of its size does not count."""
    assert compute_int8_share(
        align_layers([layer(10), layer(20)], [layer(7, int8=True), layer(20, int8=True)])
    ) == pytest.approx(20 / 30)


def test_a_missing_operator_leaves_its_layer_float():
    """A layer that the artifact did not run as such is float."""
    aligned = align_layers([layer(10, name="a"), layer(20, name="b")], [layer(20, int8=True)])
    assert [(entry.name, entry.int8) for entry in aligned] == [("a", False), ("b", True)]


def test_no_layers_is_no_coverage():
    """A model without multiply-accumulates has coverage 0, not a division by zero."""
    assert compute_int8_share(()) == 0.0


layers = st.lists(st.builds(layer, st.integers(1, 5), int8=st.booleans()), max_size=12)


@given(layers, layers)
def test_coverage_is_never_overstated(ours, theirs):
    """What counts as int8 is at most the int8 work that was seen, and at most the network's."""
    aligned = align_layers([layer(our.macs) for our in ours], theirs)
    assert [our.macs for our in aligned] == [our.macs for our in ours]
    assert sum(our.macs for our in aligned if our.int8) <= sum(our.macs for our in theirs if our.int8)


@given(layers)
def test_an_artifact_equal_to_its_network_matches_itself(ours):
    """Aligning a sequence with itself changes nothing."""
    assert list(align_layers(ours, ours)) == ours


def test_a_layer_that_cannot_be_counted_leaves_no_share():
    """It is kept where nothing of the reference matches it, since how much it does is not known."""
    unknown = layer(None, name="moe", operator="MoE")
    aligned = align_layers([layer(10, name="a"), layer(20)], [layer(10, int8=True), unknown, layer(20, int8=True)])
    assert [(entry.name, entry.int8) for entry in aligned] == [("a", True), ("x", True), ("moe", False)]
    assert compute_int8_share(aligned) is None
    assert explain_unknown(aligned) == "how much moe (MoE) multiplies cannot be counted"
    assert explain_unknown([layer(10)]) is None
    assert align_layers([unknown], [unknown]) == (unknown,)


def test_unknown_coverage_is_a_warning_with_its_cases():
    """Each reason once."""
    cases = ["m/static/onnxruntime/t1/b1", "m/static/onnxruntime/t2/b1"]
    records = [int8(case) for case in cases]
    assert warn_of_unknown_coverage(records) == ()
    unknown = Coverage(
        macs_int8=None, layers_int8=1, layers_total=2, unknown="how much b (MoE) multiplies is not known"
    )
    changed = [replace(record, artifact=replace(record.artifact, coverage=unknown)) for record in records]
    (message,) = warn_of_unknown_coverage(changed)
    assert message.endswith(f"how much b (MoE) multiplies is not known ({', '.join(cases)})")


def test_layers_of_a_foreign_artifact_have_the_networks_names_where_all_fit():
    """Where it was rewritten, so that some find no place, what ran is told under its own names: nothing is lost."""
    reference = [Layer(name=name, operator="conv", macs=macs) for name, macs in (("a", 10), ("b", 20))]
    same = [Layer(name=f"q{macs}", operator="qconv", macs=macs, precision="int8") for macs in (10, 20)]
    named = name_layers(align_layers(reference, same), same)
    assert [(layer.name, layer.int8) for layer in named] == [("a", True), ("b", True)]
    other = [Layer(name="q30", operator="qconv", macs=30, precision="int8")]
    assert name_layers(align_layers(reference, other), other) == tuple(other)


def test_layers_are_marked_by_name_and_work():
    """A name that ran twice is used up in order; a layer without an operator stays as the fp32 network has it; where an
    int8 operator has no layer's name, order and work decide."""

    def layer(name, macs, operator="aten::conv2d", int8=False):
        return Layer(name=name, operator=operator, macs=macs, precision="int8" if int8 else "fp32")

    reference = [layer("a", 1), layer("b", 2), layer("b", 2), layer("c", 3)]
    q = {"operator": "onednn::qconv_pointwise", "int8": True}
    aligned = align_by_name(reference, [layer("b", 2, **q), layer("b", 2), layer("a", 1, **q)])
    assert [entry.int8 for entry in aligned] == [True, True, False, False]
    assert aligned[3] == reference[3]
    nameless = align_by_name(reference, [layer("a", 1), layer("onednn::qconv_pointwise#1", 3, **q)])
    assert [entry.int8 for entry in nameless] == [False, False, False, True]


def longest(ours, theirs):
    """The length of a longest common subsequence, by its definition."""
    if not ours or not theirs:
        return 0
    if ours[0] == theirs[0]:
        return 1 + longest(ours[1:], theirs[1:])
    return max(longest(ours[1:], theirs), longest(ours, theirs[1:]))


FEW = st.lists(st.sampled_from([1, 2, 3, None]), max_size=6)


@given(FEW, FEW)
def test_as_many_layers_match_as_can_in_their_order(ours, theirs):
    """Each with one of its own work, none twice."""
    artifact = [layer(macs) for macs in theirs]
    matches = _longest_match(ours, artifact)
    assert len(matches) == longest(ours, theirs)
    assert all(ours[place] == match.macs for place, match in matches.items())
    places = [next(n for n, each in enumerate(artifact) if each is match) for _, match in sorted(matches.items())]
    assert places == sorted(set(places))


def test_a_layer_without_work_changes_no_share():
    """It is known to multiply nothing."""
    assert compute_int8_share([layer(0, int8=True), layer(10)]) == 0.0
    assert compute_int8_share([layer(0), layer(10, int8=True)]) == 1.0
    assert compute_int8_share([layer(0, int8=True)]) == 0.0


@pytest.mark.parametrize(
    ("ran", "is_named"),
    [
        ([layer(10, int8=True), layer(20)], True),
        ([layer(10, int8=True), layer(99)], False),  # as much int8, of another whole
        ([layer(20, int8=True), layer(40)], False),  # the same share, of twice as much
    ],
)
def test_names_are_given_where_int8_work_and_its_share_are_the_networks(ran, is_named):
    """Else layers of the artifact were counted to no layer, or to another."""
    aligned = (layer(10, int8=True, name="a"), layer(20, name="b"))
    assert name_layers(aligned, ran) == (aligned if is_named else tuple(ran))
