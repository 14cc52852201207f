"""What each layer clips of the evaluation data, for all variants of a network: looked at once, told where known."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from made_artifacts import make_artifact
from prepared_digits import prepare_digits

from qbench.cache import manifest
from qbench.errors import BuildError
from qbench.evaluate import layer_clipping
from qbench.evaluate.layer_clipping import ComparedVariant, rows
from qbench.models.base import ModelReference
from qbench.network import Model
from qbench.process.child_process import Limits
from qbench.running.diagnostics import keep_layer_numbers

NETWORK = """
import torch


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)).eval()
"""
KNOWN = {"name": "1", "sqnr_db": 40.0, "cosine": 1.0, "n": 80, "reason": None}
TIGHT = {"low": -0.1, "high": 0.1, "step": 0.01}


@pytest.fixture
def data(tmp_path):
    return prepare_digits(tmp_path / "cache")


@pytest.fixture
def model(tmp_path):
    file = tmp_path / "network.py"
    file.write_text(NETWORK)
    reference = ModelReference(name="net", source="python", path=file, attribute="network")
    return Model(reference=reference, weights=None, weights_digest="w", code_digest="c")


def variants(**numbers):
    return {
        name: ComparedVariant(
            artifact=make_artifact(sha256=name, layer_numbers=tuple(entry)), fp32=make_artifact(mode="fp32")
        )
        for name, entry in numbers.items()
    }


def looked(by_variant, model, data, monkeypatch):
    """The rows, made in this process, and how often somebody looked."""
    calls = []

    def here(function, *args, limits, progress):
        calls.append(function)
        return function(*args, progress=progress)

    monkeypatch.setattr(layer_clipping, "call", here)
    root = data.folder.parents[1]
    return rows(by_variant, model, data, root=root, limits=Limits(seconds=60), progress=lambda *_: None), len(calls)


def test_each_variant_has_its_own_share_beside_what_the_build_knew(model, data, monkeypatch):
    """Of fp32's values on all examples; a layer without a known range has null, and nothing else changes."""
    import torch

    from qbench.network import load_network

    unknown = {**KNOWN, "name": "other"}
    numbers = {
        "a": [{**KNOWN, "ranges": [TIGHT]}, unknown],
        "b": [{**KNOWN, "ranges": [{**TIGHT, "low": -1e3, "high": 1e3}]}],
    }
    actual, calls = looked(variants(**numbers), model, data, monkeypatch)
    with torch.inference_mode():
        module = load_network(model.reference, None).module
        values = module(torch.from_numpy(data.evaluation(0, 70)[0])).numpy()
    share = np.mean(np.abs(values[:64]) > 0.105)
    assert actual["a"][0] == {**KNOWN, "ranges": [TIGHT], "clipped": pytest.approx(share)}
    assert 0 < share < 1
    assert (actual["a"][1], actual["b"][0]["clipped"], calls) == ({**unknown, "clipped": None}, 0.0, 1)


def test_a_variant_without_ranges_keeps_what_the_build_knew_beside_others(model, data, monkeypatch):
    """It is not run, nor are those beside it."""
    by_variant = variants(a=[{**KNOWN, "ranges": [TIGHT]}], plain=[KNOWN], nothing=[])
    actual, calls = looked(by_variant, model, data, monkeypatch)
    assert (actual["plain"], actual["nothing"], calls) == ((KNOWN,), (), 1)
    assert 0 < actual["a"][0]["clipped"] < 1


@pytest.mark.parametrize(
    ("mode", "formats", "is_in_onnx"),
    [
        ("static", ("onnx", "onnx"), True),
        ("qat", ("onnx", "onnx"), True),
        ("dynamic", ("onnx", "onnx"), False),
        ("static", ("onnx", "openvino"), False),
        ("static", ("openvino", "onnx"), False),
    ],
)
def test_two_onnx_files_with_fixed_scales_can_be_held_against_each_other(mode, formats, is_in_onnx):
    """A dynamic one has a range for each call."""
    artifact, fp32 = make_artifact(mode=mode, format=formats[0]), make_artifact(mode="fp32", format=formats[1])
    assert ComparedVariant(artifact=artifact, fp32=fp32).in_onnx is is_in_onnx


def test_it_is_looked_at_once(model, data, monkeypatch):
    """A rerun answers from the cache; another artifact, or other examples, do not."""
    case = variants(a=[{**KNOWN, "ranges": [TIGHT]}])
    first = looked(case, model, data, monkeypatch)
    assert looked(case, model, data, monkeypatch) == (first[0], 0)
    other = {"a": replace(case["a"], artifact=replace(case["a"].artifact, sha256="t"))}
    assert looked(other, model, data, monkeypatch)[1] == 1
    assert looked(case, model, replace(data, evaluation_digest="e"), monkeypatch)[1] == 1


@pytest.mark.parametrize("facts", [{"b": [{"name": "1"}]}, {"a": [{"name": 3}]}, {"a": [{}]}, {"a": 1}, {}])
def test_what_the_cache_holds_of_other_variants_is_looked_at_again(model, data, monkeypatch, facts):
    """Or rows that are no layers: somebody else wrote them."""
    case = variants(a=[{**KNOWN, "ranges": [TIGHT]}])
    first, _ = looked(case, model, data, monkeypatch)
    (entry,) = (data.folder.parents[1] / "layers").iterdir()
    manifest.write(entry, facts)
    assert looked(case, model, data, monkeypatch) == (first, 1)


@pytest.mark.parametrize(("fixed", "size"), [(None, 8), (1, 1), (5, 5)])
def test_an_onnx_file_is_looked_at_in_batches_that_it_takes(model, data, monkeypatch, fixed, size):
    """Of eight examples, or of as many as its fp32 file has fixed; a file without a layer to look at is not run. Who
    watches is told."""
    batches, steps = [], []

    def measure_clipping(file, inputs, ranges):
        batches.extend(len(arrays[0]) for arrays in inputs)
        return [{}]

    monkeypatch.setattr(layer_clipping.onnx_output_range, "measure_clipping", measure_clipping)
    monkeypatch.setattr(layer_clipping.onnx_output_range, "as_rows", lambda outputs, share: list(outputs))
    case = {
        "a": ComparedVariant(
            artifact=make_artifact(format="onnx"), fp32=make_artifact(mode="fp32", format="onnx", fixed_batch=fixed)
        )
    }
    for outputs in ({}, {"conv": "range"}):
        monkeypatch.setattr(layer_clipping.onnx_output_range, "find_layer_ranges", lambda *_, ranges=outputs: ranges)
        told = layer_clipping._rows_here(case, model, data, progress=lambda *step: steps.append(step))
        assert told == {"a": tuple(outputs)}
        assert steps.pop() == ("look for clipped values", 0.5)
        assert batches == ([size] * (70 // size) if outputs else [])


def test_where_no_range_is_known_nobody_looks(model, data, monkeypatch):
    """The build's numbers stand as they are: dynamic variants, and runtimes that do not tell."""
    assert looked(variants(a=[KNOWN], b=[]), model, data, monkeypatch) == ({"a": (KNOWN,), "b": ()}, 0)


@pytest.mark.parametrize(
    ("count", "size", "starts"),
    [(70, 8, range(0, 64, 8)), (5, 8, [0]), (5120, 8, range(0, 5120, 80)), (1024, 1, range(0, 1024, 2))],
)
def test_examples_are_taken_evenly(count, size, starts):
    """All of few, 512 of many, from the first to the last: a data set may be sorted by class."""
    data = SimpleNamespace(evaluation_count=count, evaluation=lambda start, stop: (start, stop))
    assert list(layer_clipping._batches(data, size)) == [(start, min(start + size, count)) for start in starts]


def keep(tmp_path, int8):
    """What ``keep_layer_numbers`` writes and notes for a run of one int8 variant."""
    variant = SimpleNamespace(id="net/static/fake", mode="static", backend="fake", model=SimpleNamespace(name="net"))
    files, notes = {}, []
    context = SimpleNamespace(
        cache=tmp_path, limits=Limits(), report_under=lambda _: None,
        directory=SimpleNamespace(write_layers=lambda name, numbers: files.update({name: numbers})),
        progress=SimpleNamespace(stage=lambda *_: None, advance=lambda *_: None, note=notes.append),
        tracker=SimpleNamespace(open_cases=lambda: [SimpleNamespace(case=SimpleNamespace(variant=variant))]),
    )  # fmt: skip
    artifacts = {variant.id: int8, "net/fp32/fake": make_artifact(mode="fp32")}
    built = {name: SimpleNamespace(artifact=known) for name, known in artifacts.items()}
    keep_layer_numbers(context, SimpleNamespace(data="data", models={"net": "model"}), built)
    return files, notes


def test_a_run_keeps_the_rows_of_each_variant_where_the_suite_asks_for_them(tmp_path, monkeypatch):
    """And where fp32 cannot be looked at, what the build knew, with a note: no case fails by it."""
    int8 = make_artifact(layer_numbers=(KNOWN,))
    monkeypatch.setattr("qbench.running.diagnostics.rows", lambda variants, *_, **__: dict.fromkeys(variants, ("row",)))
    assert keep(tmp_path, int8) == ({"net/static/fake": ("row",)}, [])

    def fail(*_, **__):
        raise BuildError("does not run")

    monkeypatch.setattr("qbench.running.diagnostics.rows", fail)
    note = "net: what its layers clip is not known: does not run"
    assert keep(tmp_path, int8) == ({"net/static/fake": (KNOWN,)}, [note])
