"""The score of a network with several outputs: the worst that is judged, all of them told."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from qbench import registry
from qbench.errors import EvaluateError
from qbench.evaluate import score
from qbench.evaluate.score import Outputs
from qbench.metrics.spec import MetricSpec
from qbench.metrics.user_metric import UserFunction
from qbench.progress.callback import tell_nobody
from qbench.record.schema import Accuracy
from qbench.stats.interval_type import Interval

TOP1, SQNR = registry.load("metric", "top1"), registry.load("metric", "sqnr")
KL, TOP1_AGREEMENT = registry.load("metric", "kl"), registry.load("metric", "top1_agreement")
RNG = np.random.default_rng(0)
N = 40
SCORES, BOXES = RNG.standard_normal((N, 10)), RNG.standard_normal((N, 3, 4))
OUTPUTS = Outputs(names=("scores", "boxes", "state"))


def predictions(noise: float = 0.0, box_noise: float = 0.0) -> dict[str, Any]:
    """Of a network whose third output has no row for each example, and whose outputs are off by so much."""
    noises = np.random.default_rng(1)
    return {
        "outputs": (SCORES + noise * noises.standard_normal(SCORES.shape)).astype(np.float32),
        "outputs.1": (BOXES + box_noise * noises.standard_normal(BOXES.shape)).astype(np.float32),
        "labels": SCORES.argmax(axis=1),
    }


@pytest.mark.parametrize(("noise", "box_noise", "judged"), [(0.01, 0.1, 1), (0.1, 0.01, 0)])
def test_the_worst_output_is_judged(noise: float, box_noise: float, judged: int) -> None:
    """Against fp32, where the suite names none; each is told with its score, and what nobody can judge as such."""
    fp32, int8 = predictions(), predictions(noise, box_noise)
    accuracy = score.score_outputs(SQNR, int8, fp32, None, outputs=OUTPUTS)
    name = ("outputs", "outputs.1")[judged]
    assert accuracy.judged == judged
    assert accuracy.value == pytest.approx(SQNR.value(int8[name], fp32[name]))
    assert accuracy.outputs is not None
    assert accuracy.delta is not None
    told = {output.name: (output.judged, output.metric, output.value is not None) for output in accuracy.outputs}
    assert told == {"scores": (True, "sqnr", True), "boxes": (True, "sqnr", True), "state": (False, None, False)}
    assert min(output.value for output in accuracy.outputs if output.value is not None) == accuracy.value


def test_each_output_holds_a_limit_that_the_judged_one_holds() -> None:
    """The judged one is that whose limit is lowest, which may not be the one with the lowest score."""
    fp32, int8 = predictions(), predictions(0.05, 0.05)
    int8["outputs.1"][: N // 4] = fp32["outputs.1"][: N // 4] + 3.0  # few examples, far off
    accuracy = score.score_outputs(SQNR, int8, fp32, None, outputs=OUTPUTS)
    lows = [output.low for output in accuracy.outputs or () if output.low is not None]
    assert accuracy.low == min(lows)
    nearer = predictions(0.05, 0.05)
    divergence = Outputs(names=("scores", "others"))
    nearer["outputs.1"], fp32["outputs.1"] = nearer["outputs"][:, :5] * 3, fp32["outputs"][:, :5]
    kl = score.score_outputs(KL, nearer, fp32, None, outputs=divergence)
    assert kl.judged == 1  # lower is better there
    assert kl.high == max(output.high for output in kl.outputs or () if output.high is not None)


def test_an_output_that_is_named_is_judged_alone() -> None:
    """The others are told with their distance, and nobody is said to have missed them."""
    fp32, int8 = predictions(), predictions(0.01, 0.5)
    named = Outputs(names=("scores", "boxes"), all_judged=False)
    accuracy = score.score_outputs(SQNR, int8, fp32, None, outputs=named)
    assert accuracy.judged == 0
    assert [output.judged for output in accuracy.outputs or ()] == [True, None]
    assert (accuracy.outputs or ())[1].value == pytest.approx(SQNR.value(int8["outputs.1"], fp32["outputs.1"]))


def test_labels_judge_the_first_output_and_the_others_show_their_distance() -> None:
    """Also where that is a collapse, which no label sees; values that are no numbers have none."""
    fp32, int8 = predictions(), predictions(0.001, 5.0)
    accuracy = score.score_outputs(TOP1, int8, fp32, 10, outputs=OUTPUTS)
    assert (accuracy.judged, accuracy.value) == (0, 1.0)
    assert accuracy.flips is not None
    boxes = (accuracy.outputs or ())[1]
    assert (boxes.judged, boxes.metric) == (False, "sqnr")
    assert boxes.value is not None
    assert boxes.value < 0
    int8["outputs.1"][0, 0, 0] = np.nan
    assert (score.score_outputs(TOP1, int8, fp32, 10, outputs=OUTPUTS).outputs or ())[1].value is None


def test_a_metric_judges_what_it_fits() -> None:
    """Shares of equal classes are asked of outputs that are classes; of others the distance is shown."""
    fp32, int8 = predictions(), predictions(0.001, 0.1)
    accuracy = score.score_outputs(TOP1_AGREEMENT, int8, fp32, None, outputs=OUTPUTS)
    scores, boxes, _ = accuracy.outputs or ()
    assert (scores.judged, scores.metric) == (True, "top1_agreement")
    assert (boxes.judged, boxes.metric) == (False, "sqnr")


def test_fp32_itself_has_no_worst_output() -> None:
    """Each of its own is perfect by definition."""
    accuracy = score.score_outputs(SQNR, predictions(), None, None, outputs=OUTPUTS)
    assert (accuracy.judged, accuracy.value) == (0, 100.0)
    assert [output.value for output in accuracy.outputs or ()] == [100.0, 100.0, None]


def test_a_network_with_one_output_tells_no_others() -> None:
    """Its record is as it was."""
    fp32, int8 = predictions(), predictions(0.01)
    accuracy = score.score_outputs(SQNR, int8, fp32, None, outputs=Outputs(names=("logits",)))
    assert (accuracy.outputs, accuracy.judged) == (None, 0)


SOURCE = """
import numpy as np

def both(outputs, fp32):
    assert sorted(outputs) == sorted(fp32) == ["boxes", "scores"]
    assert outputs["boxes"].shape[1:] == (3, 4)
    outputs["scores"][:] = np.nan  # a copy
    return np.abs(outputs["boxes"] - fp32["boxes"]).max(axis=(1, 2))

def share(outputs, labels):
    return float((outputs["scores"].argmax(axis=1) == labels).mean()) + 0 * float(outputs["boxes"].mean())
"""


def user_metric(folder: Path, function: str, against: Any) -> MetricSpec:
    """A function of the user's."""
    (folder / "my.py").write_text(SOURCE)
    metric = UserFunction(
        file=folder / "my.py", attribute=function, percent=False, higher_is_better=False, against=against, unit=""
    )
    return MetricSpec(name=f"my.py:{function}", function=metric)


@pytest.mark.parametrize(("function", "against"), [("both", "fp32"), ("share", "labels")])
def test_a_metric_of_the_users_is_given_all_outputs_by_name(tmp_path: Path, function: str, against: Any) -> None:
    """With their shapes, as copies, also where examples are drawn again; what it says of each example is kept."""
    files = {}
    for name, arrays in {"fp32": predictions(), "int8": predictions(0.01, 0.1)}.items():
        files[name] = tmp_path / f"{name}.npz"
        np.savez(files[name], **arrays, ids=np.arange(N).astype(str))
    spec = user_metric(tmp_path, function, against)
    (tmp_path / "int8.values.npz").write_bytes(b"of an earlier score")
    told: list[tuple[str, float]] = []
    accuracy = score.score_here(
        spec, files["int8"], files["fp32"], 10, outputs=OUTPUTS, progress=lambda *step: told.append(step)
    )
    assert told == [("score", 0.9)]
    assert [output.judged for output in accuracy.outputs or ()] == [True, True, False]
    worst = np.abs(predictions(0.01, 0.1)["outputs.1"] - predictions()["outputs.1"]).max(axis=(1, 2))
    assert accuracy.value == pytest.approx(worst.mean() if function == "both" else 1.0)
    assert (tmp_path / "int8.values.npz").is_file() == (function == "both")
    if function == "both":
        np.testing.assert_allclose(np.load(tmp_path / "int8.values.npz")["values"], worst)


def test_an_output_of_another_form_than_fp32s_has_no_distance() -> None:
    """Nor one of which fp32 gives no numbers."""
    named = Outputs(names=("scores", "boxes"), all_judged=False)
    for boxes in (BOXES[:, :2].astype(np.float32), np.full(BOXES.shape, np.inf, np.float32)):
        fp32 = {**predictions(), "outputs.1": boxes}
        accuracy = score.score_outputs(SQNR, predictions(0.01), fp32, None, outputs=named)
        assert (accuracy.outputs or ())[1].value is None
        judged = score.score_outputs(SQNR, predictions(0.01), fp32, None, outputs=Outputs(names=("scores", "boxes")))
        assert [output.judged for output in judged.outputs or ()] == [True, False]


def test_two_outputs_are_several(tmp_path: Path) -> None:
    """The fewest that a function of the user's is given by name."""
    for name, arrays in {"fp32": predictions(), "int8": predictions(0.01, 0.1)}.items():
        np.savez(tmp_path / f"{name}.npz", **arrays, ids=np.arange(N).astype(str))
    spec, two = user_metric(tmp_path, "both", "fp32"), Outputs(names=("scores", "boxes"))
    accuracy = score.score_here(
        spec, tmp_path / "int8.npz", tmp_path / "fp32.npz", 10, outputs=two, progress=tell_nobody
    )
    assert [output.judged for output in accuracy.outputs or ()] == [True, True]


def test_an_output_that_fp32_lacks_is_told(tmp_path: Path) -> None:
    """By its name: the two cannot be compared."""
    fp32 = predictions()
    del fp32["outputs.1"]
    for name, arrays in {"fp32": fp32, "int8": predictions(0.01)}.items():
        np.savez(tmp_path / f"{name}.npz", **arrays, ids=np.arange(N).astype(str))
    spec = user_metric(tmp_path, "both", "fp32")
    with pytest.raises(EvaluateError, match="its fp32 has no output 'boxes' with a row of numbers for each example"):
        score.score_here(spec, tmp_path / "int8.npz", tmp_path / "fp32.npz", 10, outputs=OUTPUTS, progress=tell_nobody)


def test_a_metric_of_the_users_is_given_the_output_that_is_named(tmp_path: Path) -> None:
    """As an array, as of a network with one."""
    (tmp_path / "my.py").write_text("def rows(outputs, fp32):\n    return abs(outputs - fp32).max(axis=1)\n")
    metric = UserFunction(
        file=tmp_path / "my.py", attribute="rows", percent=False, higher_is_better=False, against="fp32", unit=""
    )
    np.savez(tmp_path / "p.npz", **predictions(), ids=np.arange(N).astype(str))
    named = Outputs(names=("scores", "boxes"), all_judged=False)
    spec = MetricSpec(name="my.py:rows", function=metric)
    accuracy = score.score_here(spec, tmp_path / "p.npz", tmp_path / "p.npz", 10, outputs=named, progress=tell_nobody)
    assert accuracy.value == 0.0


@pytest.mark.parametrize(
    ("higher", "value", "delta", "worst"),
    [
        (True, Interval(value=0.9, low=0.8, high=0.95), None, 0.8),
        (False, Interval(value=0.9, low=0.8, high=0.95), None, -0.95),
        (True, Interval(value=0.9, low=0.8, high=0.95), Interval(value=-0.1, low=-0.3, high=0.0), -0.3),
        (False, Interval(value=0.9, low=0.8, high=0.95), Interval(value=0.1, low=-0.3, high=0.2), -0.2),
        (True, Interval(value=0.9), None, 0.9),
        (False, Interval(value=0.9), Interval(value=0.1), -0.1),
    ],
)
def test_an_output_is_as_bad_as_it_may_be(higher: bool, value: Interval, delta: Interval | None, worst: float) -> None:
    """By the limits of its change, of its score where there is none, and by the estimate where there are no limits."""
    metric: Any = SimpleNamespace(higher_is_better=higher)
    score_of = Accuracy(metric="m", value=value.value, low=value.low, high=value.high, n=9, delta=delta)
    assert score._find_worst(metric, score_of) == worst


@pytest.mark.parametrize("exact", [True, False])
def test_answers_are_judged_and_the_outputs_that_they_are_made_of_are_told(tmp_path: Path, exact: bool) -> None:
    """How far each is from fp32's, which is not the baseline where that is another variant."""
    labels = SCORES.argmax(axis=1)
    answers = np.eye(10, dtype=np.float32)[np.where(np.arange(N) < 4, (labels + 1) % 10, labels)]
    parts = {"int8": predictions(0.1, 0.2), "base": predictions(0.3, 0.4), "fp32": predictions()}
    for name, arrays in parts.items():
        given = answers if name == "int8" else np.eye(10, dtype=np.float32)[labels]
        np.savez(tmp_path / f"{name}.npz", **arrays, answers=given, ids=np.arange(N).astype(str))
    accuracy = score.score_here(
        MetricSpec(name="top1"), tmp_path / "int8.npz", tmp_path / "base.npz", 10,
        fp32=tmp_path / "fp32.npz" if exact else None, outputs=OUTPUTS, progress=tell_nobody,
    )  # fmt: skip
    assert accuracy.value == pytest.approx(1 - 4 / N)
    assert accuracy.flips is not None
    assert accuracy.flips.harmful == 4
    reference = parts["fp32" if exact else "base"]
    told = [(output.name, output.judged, output.value) for output in accuracy.outputs or ()]
    assert told == [
        ("scores", None, pytest.approx(SQNR.value(parts["int8"]["outputs"], reference["outputs"]))),
        ("boxes", None, pytest.approx(SQNR.value(parts["int8"]["outputs.1"], reference["outputs.1"]))),
        ("state", None, None),
    ]
