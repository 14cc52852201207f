"""What a run says beside its scores: fp32 that guesses, and images of what flips; no case fails by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from qbench.datasets.base import Examples
from qbench.datasets.preprocessing import Preprocessing
from qbench.errors import WorkerError
from qbench.evaluate import kept_pictures
from qbench.record.schema import Accuracy
from qbench.running import diagnostics
from qbench.running.diagnostics import explain_guessing, keep_flip_images, keep_layer_numbers, warn_of_guessing

IMAGES = np.linspace(0, 255, 2 * 48).reshape(2, 3, 4, 4).astype(np.uint8)


def data(classes=10, **preprocessing):
    preprocess = Preprocessing(**preprocessing)
    return SimpleNamespace(
        classes=classes,
        preprocessing=preprocess,
        evaluation_count=len(IMAGES),
        evaluation=lambda start, stop: preprocess((IMAGES[start:stop],)),
        evaluation_examples=lambda: Examples(inputs=(IMAGES,), labels=None),
    )


def score(value, low, metric="top1"):
    return Accuracy(metric=metric, value=value, low=low, high=1.0, n=1000)


def test_a_network_that_guesses_is_told_of_with_the_range_of_its_inputs():
    """What the network gets stands in the words, and that whole numbers came as they are."""
    reason = explain_guessing(score(0.11, 0.09), data())
    assert reason.startswith("fp32 is right on 11.0 % of 1,000 examples, which 10 classes give by guessing, too")
    assert "reach it from 0 to 255 (uint8, not scaled): is that what it was trained on" in reason
    assert "reach it from 0 to 1: is that" in explain_guessing(score(0.11, 0.09), data(scale=1 / 255))
    assert explain_guessing(score(0.2, 0.1), data()) is not None, "the limit itself is still a guess"
    assert explain_guessing(score(0.2, 0.1001), data()) is None


def test_the_range_of_inputs_is_that_of_64_examples():
    """All would take long, and say no more."""
    asked, many = [], data()
    many.evaluation_count = 1000
    many.evaluation = lambda start, stop: asked.append((start, stop)) or (IMAGES,)
    explain_guessing(score(0.11, 0.09), many)
    assert asked == [(0, 64)]


@pytest.mark.parametrize(
    ("accuracy", "classes"),
    [
        (score(0.2, 0.101), 10),
        (score(0.6, 0.51), 2),
        (score(0.11, 0.09), None),
        (score(0.01, 0.0, "spearman"), 10),
        (replace(score(0.11, 0.09), low=None), 10),
    ],
    ids=["better", "of two", "classes not known", "another metric", "no limits"],
)
def test_a_network_that_does_better_than_guessing_gets_no_warning(accuracy, classes):
    """Nor one of which it cannot be told."""
    assert explain_guessing(accuracy, data(classes)) is None


def test_each_guessing_network_is_noted_once_and_by_its_fp32_alone():
    """Two runtimes give one note; int8 that guesses where fp32 does not is a matter of the verdict."""

    def case(name, mode, reference=None):
        variant = SimpleNamespace(model=SimpleNamespace(name=name))
        return SimpleNamespace(case=SimpleNamespace(id=f"{name}/{mode}", variant=variant), reference=reference)

    notes = []
    cases = [
        case("a", "fp32"),
        case("a", "fp32/b"),
        case("b", "fp32"),
        case("b", "static", "b/fp32"),
        case("c", "fp32"),
    ]
    poor = score(0.1, 0.08)
    scores = {"a/fp32": poor, "a/fp32/b": poor, "b/fp32": score(0.9, 0.88), "b/static": poor, "c/fp32": poor}
    evaluated = {case: SimpleNamespace(accuracy=accuracy) for case, accuracy in scores.items()}
    context = SimpleNamespace(
        tracker=SimpleNamespace(planned=cases),
        warn=notes.append,
    )
    warn_of_guessing(context, SimpleNamespace(data=data()), evaluated)
    assert [note.partition(":")[0] for note in notes] == ["a", "c"]


FP32, INT8, MORE = "net/fp32/torch/t1/b1", "net/static/x86/t1/b1", "net/static/x86/t2/b1"
EMULATED = "net/static/x86/t1/b1/qemu:Haswell"


def keep_images(predictions, notes=None):
    """``keep_flip_images`` for a run of one fp32 and two int8 cases with these files of predictions."""
    backend = SimpleNamespace(backend="x86")
    cases = [
        SimpleNamespace(case=SimpleNamespace(id=case, host=host, variant=backend), reference=reference)
        for case, host, reference in (
            (FP32, "native", None),
            (INT8, "native", SimpleNamespace(id=FP32)),
            (MORE, "native", SimpleNamespace(id=FP32)),
            (EMULATED, "qemu:Haswell", SimpleNamespace(id=INT8)),
        )
    ]
    context = SimpleNamespace(
        tracker=SimpleNamespace(planned=cases),
        directory=SimpleNamespace(path=Path("run")),
        limits=None,
        report_under=lambda name: None,
        progress=SimpleNamespace(note=[].append if notes is None else notes.append),
    )
    evaluated = {case: SimpleNamespace(predictions=Path(file)) for case, file in predictions.items()}
    keep_flip_images(context, SimpleNamespace(data=object()), evaluated)


def test_each_pair_of_predictions_is_looked_at_once(monkeypatch):
    """Cases that share their predictions are one pair; a case that could not be evaluated is none, nor is the answer of
    an emulated CPU to a few examples."""
    asked = []
    monkeypatch.setattr(kept_pictures, "keep", lambda pairs, *_, **__: asked.append(pairs))
    keep_images({FP32: "a", INT8: "b", MORE: "b", EMULATED: "c"})
    keep_images({FP32: "a"})
    assert asked == [[(Path("b"), Path("a"))]]


def test_a_run_without_images_goes_on(monkeypatch):
    """Where the child fails the run tells so and goes on to measure."""

    def fail(*_, **__):
        raise WorkerError("the disk is full")

    monkeypatch.setattr(kept_pictures, "keep", fail)
    notes = []
    keep_images({FP32: "a", INT8: "b"}, notes)
    assert notes == ["the report shows no images of changed examples: the disk is full"]


@pytest.mark.parametrize("clips", [True, False])
def test_the_layers_of_each_int8_variant_are_kept(monkeypatch, clips):
    """Of those with open cases, an artifact and an fp32 of their runtime; with what evaluation data clips, or as the
    build has them where that is not known."""

    def variant(model, mode, backend):
        return SimpleNamespace(id=f"{model}/{mode}/{backend}", model=SimpleNamespace(name=model), mode=mode,
                               backend=backend)  # fmt: skip

    def built(numbers):
        conversion = SimpleNamespace(layer_numbers=numbers)
        return SimpleNamespace(artifact=SimpleNamespace(built=SimpleNamespace(conversion=conversion)))

    have = {
        "a/fp32/torch": built(()),
        "a/static/x86": built(("as built",)),
        "a/static/onednn": built(()),
        "a/dynamic/onnxruntime": built(("no fp32 of its runtime",)),
        "a/bf16/torch": built(("no int8",)),
        "b/fp32/torch": built(()),
    }
    names = [*have, "b/static/x86"]
    opened = [SimpleNamespace(case=SimpleNamespace(variant=variant(*name.split("/")))) for name in names]
    written, notes, stages = [], [], []

    def rows(variants, network, data, **_):
        assert (list(variants), network) == (["a/static/x86", "a/static/onednn"], "network a")
        if clips:
            return {"a/static/x86": ("clipped",), "a/static/onednn": ()}
        raise WorkerError("no memory")

    monkeypatch.setattr(diagnostics, "rows", rows)
    context = SimpleNamespace(
        tracker=SimpleNamespace(open_cases=lambda: opened),
        progress=SimpleNamespace(stage=lambda *said: stages.append(said), note=notes.append, advance=stages.append),
        directory=SimpleNamespace(write_layers=lambda name, layers: written.append((name, layers))),
        cache=None,
        limits=None,
        report_under=lambda name: None,
    )
    prepared = SimpleNamespace(models={"a": "network a", "b": "network b"}, data=None)
    keep_layer_numbers(context, prepared, have)
    assert written == [("a/static/x86", ("clipped",) if clips else ("as built",))]
    assert notes == ([] if clips else ["a: what its layers clip is not known: no memory"])
    assert stages == [("layers", 1), "a"]
