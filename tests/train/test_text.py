"""What `qbench train` says, to a person and to a program."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qbench import suite
from qbench.models.base import ModelReference, Training
from qbench.models.trainer import TrainingOutcome
from qbench.stats.interval_type import Interval
from qbench.train.text import as_json, text
from qbench.train.train import Report, Trained

OUTCOME = TrainingOutcome(loss=0.25, accuracy=0.875, seconds=2.0, resumed=0.0)
TRAINED = Trained(
    reference=ModelReference(name="digits-cnn", args={"classes": 10}),
    file=Path("/cache/model.safetensors"),
    training=Training(epochs=1, batch_size=32, learning_rate=0.003, seed=7),
    dataset="digits",
    split="train",
    examples=1347,
    outcome=OUTCOME,
    fresh=True,
)
REPORT = Report(
    trained=TRAINED,
    accuracy=Interval(value=0.945, low=0.92, high=0.962),
    evaluated=1450,
    held_out="digits/test",
    notes=("a note",),
)
SCORE = "top1 94.5 [92.0, 96.2] % on 1,450 examples of digits/test"


def listing(models: str) -> suite.Suite:
    """A suite of these models."""
    return suite.parse(f"suite: s\nmodels: {models}\ndata: {{dataset: digits}}\nmatrix: {{}}\n", file="/a b/s.yaml")


@pytest.mark.parametrize(
    ("change", "how", "epochs", "held_out"),
    [
        ({}, "trained in 2.00 s", "1 epoch", SCORE),
        ({"resumed": 0.5}, "trained in 2.00 s, of which 50 % before it was interrupted", "1 epoch", SCORE),
        ({"fresh": False, "resumed": 0.5}, "from the cache, nothing to train (it took 2.00 s)", "1 epoch", SCORE),
        ({"epochs": 2}, "trained in 2.00 s", "2 epochs", SCORE),
        (
            {"accuracy": None},
            "trained in 2.00 s",
            "1 epoch",
            "not measured, since the 1,450 examples of digits/test have no class labels",
        ),
    ],
)
def test_what_was_learned_from_what(change: dict[str, Any], how: str, epochs: str, held_out: str) -> None:
    """How long it took, with what, how good it is, and where the weights lie."""
    done = replace(
        TRAINED,
        fresh=change.get("fresh", True),
        outcome=replace(OUTCOME, resumed=change.get("resumed", 0.0)),
        training=replace(TRAINED.training, epochs=change.get("epochs", 1)),
    )
    report = replace(REPORT, trained=done, accuracy=change.get("accuracy", REPORT.accuracy))
    told = text(report, listing("[digits-cnn]"), changes={}, out=None)
    assert told.splitlines() == [
        f"digits-cnn: {how}",
        f"learned from: 1,347 examples of digits/train, {epochs}, seed 7, learning rate 0.003",
        f"held out: {held_out}",
        "weights: /cache/model.safetensors",
        "next: qbench run '/a b/s.yaml', which finds them there",
    ]


@pytest.mark.parametrize(
    ("models", "changes", "out", "words"),
    [
        ("[digits-lstm, digits-cnn]", {}, None, None),
        ("[{name: digits-cnn, train: {epochs: 2}}]", {"epochs": 2}, None, None),
        ("[digits-lstm]", {}, None, "{name: digits-cnn}"),
        ("[digits-cnn]", {"epochs": 3, "seed": 1}, None, "{name: digits-cnn, train: {epochs: 3, seed: 1}}"),
        (
            "[{name: digits-cnn, train: {epochs: 2}}]",
            {"seed": 1},
            None,
            "{name: digits-cnn, train: {epochs: 2, seed: 1}}",
        ),
        ("[digits-lstm]", {"epochs": 3}, "/a b/c/w.safetensors", "{name: digits-cnn, weights: c/w.safetensors}"),
    ],
)
def test_how_a_run_comes_to_use_the_weights(
    models: str, changes: dict[str, int], out: str | None, words: str | None
) -> None:
    """By the suite as it is, where it asks for the same training; else by what must be written into it."""
    *_, weights, following = text(
        REPORT, listing(models), changes=changes, out=None if out is None else Path(out)
    ).splitlines()
    assert weights == f"weights: {out or TRAINED.file}"
    if words is None:
        assert following == "next: qbench run '/a b/s.yaml', which finds them there"
    else:
        assert following == f"next: write {words} under `models` of /a b/s.yaml, and qbench run finds them"


def test_a_program_reads_the_same() -> None:
    """Shares as numbers; null where nothing was measured."""
    written = as_json(REPORT, out=None)
    told = json.loads(written)
    assert written == json.dumps(told, indent=2)
    assert told["held_out"] == {
        "split": "digits/test", "examples": 1450, "accuracy": {"value": 0.945, "low": 0.92, "high": 0.962}
    }  # fmt: skip
    assert (told["model"], told["arguments"], told["cached"]) == ("digits-cnn", {"classes": 10}, False)
    assert (told["dataset"], told["split"], told["examples"]) == ("digits", "train", 1347)
    assert (told["training"]["seed"], told["outcome"]["loss"], told["notes"]) == (7, 0.25, ["a note"])
    assert told["weights"] == "/cache/model.safetensors"
    unmeasured = json.loads(as_json(replace(REPORT, accuracy=None), out=Path("w.safetensors")))
    assert (unmeasured["held_out"]["accuracy"], unmeasured["weights"]) == (None, "w.safetensors")
