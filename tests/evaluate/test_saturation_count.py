"""Which layers lose sums, from what their kernels gave and what the model of their sums gives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.build import Artifact
from qbench.errors import CaseSkipped, EvaluateError
from qbench.evaluate import saturation_count
from qbench.evaluate.saturation_count import EXAMPLES, _count_here, explain_uncounted, list_batches, summarize
from qbench.quant.saturation.layer_counter import LayerSaturation


def layer(name: str, saturated: int, *, sums: int = 1000, rounded: int = 0) -> LayerSaturation:
    """A layer with as many outputs as saturated sums."""
    return LayerSaturation(
        name=name, operator="Conv", pairs=1, sums=sums, saturated=saturated, outputs=saturated, rounded=rounded
    )


def test_layers_are_told_by_the_share_of_their_sums() -> None:
    """The largest first; those that lost none are none."""
    count = summarize((layer("a", 5), layer("b", 0), layer("c", 5, sums=100)), {}, 32)
    assert [each.name for each in count.layers] == ["c", "a"]
    assert (count.examples, count.unknown) == (32, None)


def test_a_layer_whose_kernel_gives_something_else_is_not_named() -> None:
    """Two outputs in a hundred may round otherwise; more, and the model is not that of its kernel."""
    count = summarize((layer("a", 100, rounded=2), layer("b", 100, rounded=3)), {}, 8)
    assert [each.name for each in count.layers] == ["a"]
    assert count.unknown == "b: 3 of 100 outputs are not those of its sums"
    several = summarize((layer("b", 100, rounded=3),), {"lstm": "not modelled"}, 8)
    assert several.unknown == "lstm: not modelled (and 1 more)"


@pytest.mark.parametrize(("seconds", "examples"), [(0.0, 32), (10.0, 32), (10.1, 24), (15.1, 16), (40.0, 8)])
def test_no_further_batch_is_begun_after_half_a_minute(
    monkeypatch: pytest.MonkeyPatch, seconds: float, examples: int
) -> None:
    """Of four batches as many as begin within 30 s, at least one; as many examples are told, and how far each was."""
    now, shares = [0.0], []

    class Slow:
        layers, unknown = (), {}

        def __call__(self, inputs: object) -> None:
            now[0] += seconds

    monkeypatch.setattr(saturation_count, "_open", lambda *_: Slow())
    monkeypatch.setattr(saturation_count.time, "monotonic", lambda: now[0])
    data = SimpleNamespace(evaluation_count=100, evaluation=lambda start, stop: (start, stop))
    artifact = SimpleNamespace(built=SimpleNamespace(fixed_batch=None))
    count = _count_here(
        cast(Artifact, artifact), cast(Any, data), progress=lambda _, share: shares.append(round(share, 2))
    )
    assert count.examples == examples
    assert shares == [0.08, 0.38, 0.69, 1.0][: examples // 8]


def test_what_a_runtime_says_is_why_nothing_was_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the reason of a failed count, not a traceback."""
    monkeypatch.setattr(saturation_count, "_open", lambda *_: exec("raise RuntimeError('no kernel')"))
    data = SimpleNamespace(evaluation_count=8, evaluation=lambda start, stop: ())
    artifact = SimpleNamespace(built=SimpleNamespace(fixed_batch=None))
    with pytest.raises(EvaluateError, match="they could not be counted: RuntimeError: no kernel"):
        _count_here(cast(Artifact, artifact), cast(Any, data), progress=lambda *_: None)


@given(st.integers(1, 5000), st.one_of(st.none(), st.integers(1, 64)))
def test_the_sample_lies_within_the_examples_from_first_to_last(count: int, fixed: int | None) -> None:
    """Batches of one size, no more than are to be counted (one batch of a file that takes only larger ones)."""
    if fixed is not None and fixed > count:
        with pytest.raises(CaseSkipped, match=f"{fixed} examples at a time"):
            list_batches(count, fixed)
        return
    batches = list_batches(count, fixed)
    sizes = {stop - start for start, stop in batches}
    assert len(sizes) == 1
    assert batches[0][0] == 0
    assert all(stop <= count for _, stop in batches)
    assert sum(stop - start for start, stop in batches) <= max(EXAMPLES, fixed or 0)
    if len(batches) > 1:
        assert batches[-1][1] == count


def test_what_cannot_be_counted_says_why() -> None:
    """Machine code, other kernels, OpenVINO's own form; ONNX files and torch's are counted."""
    reasons = {
        ("inductor", "aoti"): "a package of machine code",
        ("qnnpack", "torchscript"): "no model of the kernels of qnnpack",
        ("openvino", "openvino"): "OpenVINO's own form",
        ("openvino", "onnx"): None,
        ("x86", "torchscript"): None,
    }
    for (backend, form), reason in reasons.items():
        told = explain_uncounted(cast(Artifact, SimpleNamespace(backend=backend, built=SimpleNamespace(format=form))))
        assert told is None if reason is None else reason in str(told)
