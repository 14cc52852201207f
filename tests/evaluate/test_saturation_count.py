"""Which layers lose sums, from what their kernels gave and what the model of their sums gives."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_artifacts import make_artifact

from qbench import registry
from qbench.build import Artifact
from qbench.cache import store
from qbench.errors import CaseSkipped, EvaluateError
from qbench.evaluate import saturation_count
from qbench.evaluate.saturation_count import EXAMPLES, _count_here, explain_uncounted, list_batches, summarize
from qbench.process.child_process import Limits
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


@pytest.mark.parametrize(
    ("count", "fixed", "batches"),
    [
        (100, None, [(0, 8), (30, 38), (61, 69), (92, 100)]),
        (5, None, [(0, 5)]),
        (8, 8, [(0, 8)]),
        (64, 64, [(0, 64)]),
        (100, 64, [(0, 64)]),
        (40, 16, [(0, 16), (24, 40)]),
    ],
)
def test_thirty_two_examples_are_counted_eight_at_a_time(
    count: int, fixed: int | None, batches: list[tuple[int, int]]
) -> None:
    """Or as many as the artifact takes at a time."""
    assert list_batches(count, fixed) == batches
    assert len(list_batches(1000, 1)) == 32


def test_a_long_message_of_a_runtime_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some quote their whole graph."""
    monkeypatch.setattr(saturation_count, "_open", lambda *_: exec("raise ValueError('x' * 300)"))
    data = SimpleNamespace(evaluation_count=8, evaluation=lambda start, stop: ())
    artifact = SimpleNamespace(built=SimpleNamespace(fixed_batch=None))
    with pytest.raises(EvaluateError, match=r"^they could not be counted: ValueError: x{200}$"):
        _count_here(cast(Artifact, artifact), cast(Any, data), progress=lambda *_: None)


def test_an_artifact_of_torch_runs_on_one_thread_of_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the names of its quantized layers, in their order."""
    did: list[Any] = []
    monkeypatch.setattr(saturation_count, "set_torch", did.append)
    monkeypatch.setattr("qbench.quant.pytorch.torch_ao.set_engine", did.append)
    monkeypatch.setattr(
        "qbench.quant.saturation.torch_prediction.TorchPredictor", lambda *words: did.append(words) or "predictor"
    )
    operators = {"a": "quantized::conv2d", "b": "aten::relu", "c": "quantized::linear"}
    layers = [SimpleNamespace(name=name, operator=operator) for name, operator in operators.items()]
    artifact: Any = SimpleNamespace(backend="x86", file="model.pt", built=SimpleNamespace(layers=layers))
    opened: Any = saturation_count._open(artifact, ())
    assert opened == "predictor"
    assert did == [1, "x86", ("model.pt", "x86", ["a", "c"])]


def test_an_artifact_of_openvino_is_opened_with_an_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose sizes it is compiled for; torch is left alone."""
    monkeypatch.setattr(
        "qbench.quant.saturation.openvino_prediction.OpenVinoPredictor", lambda *words: ("predictor", *words)
    )
    monkeypatch.setattr(saturation_count, "set_torch", None)
    artifact: Any = SimpleNamespace(backend="openvino", file="model.onnx")
    opened: Any = saturation_count._open(artifact, ("example",))
    assert opened == ("predictor", "model.onnx", ("example",))


def test_an_artifact_is_counted_once_on_each_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process that is limited as the host is; another artifact, other examples and another host are counted
    anew."""
    asked: list[Any] = []
    counted = summarize((layer("a", 5),), {"b": "not modelled"}, 32)

    def call(function: Any, *_: Any, environment: dict[str, str], **__: Any) -> Any:
        asked.append((function, environment))
        return counted

    monkeypatch.setattr(saturation_count, "call", call)
    root = store.open_cache(tmp_path)

    def count(host: str = "avx2", *, digest: str = "d", backend: str = "x86", **facts: str) -> Any:
        data: Any = SimpleNamespace(evaluation_digest=digest)
        artifact = make_artifact(backend=backend, **facts)  # type: ignore[arg-type]
        limits = Limits(seconds=60)
        return saturation_count.count_cached(artifact, data, host, root=root, limits=limits, progress=lambda *_: None)

    assert count() == count() == counted
    assert asked == [(_count_here, dict(registry.load("host", "avx2").environment()))]
    for more in ({"sha256": "t"}, {"key": "l"}, {"backend": "fbgemm"}, {"digest": "e"}, {"host": "native"}):
        assert count(**more) == counted
    assert len(asked) == 6
    with pytest.raises(CaseSkipped, match="a package of machine code"):
        count(backend="inductor")
    assert len(asked) == 6
