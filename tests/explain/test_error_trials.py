"""What a change does to the outputs of a real int8 network: the right fp32, the same examples, honest limits."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx_networks
import pytest
from made_records import fp32, info, int8
from made_runs import run_folder

from qbench.cache import store
from qbench.errors import CaseError
from qbench.evaluate.predictions import load_predictions, predict_cached
from qbench.explain import error_trials
from qbench.explain.causes.base import Counterfactual
from qbench.explain.change import Change
from qbench.explain.error_trials import DRAWS, Evaluation, offer_calibration
from qbench.explain.explanation import confirm
from qbench.explain.open_case import open_case
from qbench.explain.trial import RemovedError, Trial, compare_errors, square_errors
from qbench.progress.live import Silent
from qbench.record.stored_run import read_run
from qbench.suite import suite as suites

FP32, CASE = "net/fp32/onnxruntime/t1/b1", "net/static/onnxruntime/t1/b1"
SUITE = """
suite: demo
models: [{name: net, source: {onnx: net.onnx}}]
data: {dataset: {npz: data.npz}, calibrate: {split: train, samples: 40}, evaluate: {split: test}}
matrix: {modes: [fp32, static], backends: [onnxruntime]}
quantize: {static: {calibrator: percentile, percentile: 80, first_layer_float: false, last_layer_float: false}}
gate: {accuracy: {metric: sqnr, at_least: 20}}
"""
CALIBRATOR = Counterfactual(cause="calibrator", text="minmax", change=Change(recipe={"calibrator": "minmax"}))
SEED = Counterfactual(cause="seed", text="a name for nothing", change=Change(recipe={"seed": 7}))
OWN_DATA = Counterfactual(cause="data", text="the evaluated ones", change=Change(calibrate=("test", 40)))


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory):
    """A case whose ranges clip a fifth of the values, made ready to be explained."""
    folder = tmp_path_factory.mktemp("accuracy")
    onnx_networks.save(onnx_networks.mlp(), folder, "net")
    random = np.random.default_rng(0)
    splits = {f"{split}_inputs": random.standard_normal((count, 16)).astype(np.float32) for split, count in SPLITS}
    np.savez(folder / "data.npz", **splits)
    (folder / "demo.yaml").write_text(SUITE, encoding="utf-8")
    run = read_run(run_folder(folder / "reports/demo/1", [fp32(FP32), int8(CASE)], info()))
    suite, cache = suites.read(folder / "demo.yaml"), store.open_cache(folder / "cache")
    with store.in_use(cache):
        yield open_case(run, run.by_id[CASE], suite, cache, Silent())


SPLITS = (("train", 60), ("test", 200))


@pytest.fixture(scope="module")
def evaluation(opened, tmp_path_factory):
    """The case and its fp32, evaluated."""
    return Evaluation(opened, tmp_path_factory.mktemp("evaluated"))


def predict(opened, artifact, file: Path):
    """The outputs of an artifact on all examples."""
    limits, progress = opened.limits, Silent().advance
    predict_cached(artifact, opened.data, 1, file, root=opened.cache, limits=limits, progress=progress)
    return load_predictions(file)["outputs"]


def test_a_case_is_held_against_its_own_fp32(opened, evaluation, tmp_path):
    """The error is the distance of its outputs from those of fp32 of the same runtime, of every example."""
    outputs = [predict(opened, artifact, tmp_path / "o.npz") for artifact in (opened.artifact, opened.fp32)]
    errors = square_errors(*outputs)
    tried = evaluation.conclude([])
    assert opened.fp32_case.id == FP32
    assert tried.n == 200
    assert tried.sqnr_db == pytest.approx(10 * np.log10((outputs[1].astype(float) ** 2).sum() / errors.sum()))


def test_a_cause_that_is_there_is_confirmed(opened, evaluation, tmp_path):
    """Ranges that clip: the share is that of the two artifacts' own errors, with limits around it, and the metric,
    which both are given against fp32, rises by as much as the two signals to noise differ."""
    trial = evaluation.try_change(CALIBRATOR)
    changed = opened.build(opened.apply(CALIBRATOR.change).variant)
    outputs = [predict(opened, each, tmp_path / "o.npz") for each in (opened.artifact, changed, opened.fp32)]
    expected = compare_errors(*(square_errors(each, outputs[2]) for each in outputs[:2]))
    assert trial.saving == expected
    assert trial.share > 0.9
    assert trial.interval.low < trial.share < trial.interval.high
    assert trial.metric_change.low > 0
    assert trial.metric_change.value == pytest.approx(-10 * np.log10(1 - expected.share), rel=0.5)
    assert confirm(evaluation.conclude([trial])) == (trial,)


def test_a_change_without_effect_is_not_tried(evaluation):
    """The same bytes give the same outputs: there is no share of 0 that could be confirmed by chance."""
    trial = evaluation.try_change(SEED)
    assert (trial.saving, trial.reason) == (None, "it gives the same artifact, byte by byte")


def test_what_was_calibrated_on_is_not_scored(opened, evaluation):
    """Neither in the share nor in the metric: both sides have the other examples, and these alone."""
    data, used = evaluation._calibrate(OWN_DATA.change)
    trial = evaluation.try_change(OWN_DATA)
    assert int(used.sum()) == 40
    assert len(data.calibration_examples()[0]) == 40
    assert trial.saving.n == 160
    kept = list(opened.data.evaluation(0, 200)[0][used])
    calibrated = list(data.calibration_examples()[0])
    assert all(any(np.array_equal(row, other) for other in calibrated) for row in kept)


def test_what_another_draw_of_calibration_examples_does_is_no_cause(evaluation):
    """A percentile of 40 examples is another one for each 40: the error changes by some percent, with narrow limits for
    each draw. Changing the examples for others of the same kind is not confirmed."""
    trial = evaluation.try_change(OWN_DATA)
    tried = evaluation.conclude([trial])
    assert len(tried.draws) == DRAWS == 3
    assert 0 < tried.draw_share < 0.3
    assert trial.saving.p_nothing() < 0.025
    assert confirm(tried) == ()


def test_no_more_than_half_of_the_examples_calibrate(opened):
    """As many are left to be scored."""
    assert offer_calibration(opened) == ("test", 40)


@pytest.mark.parametrize(
    ("samples", "evaluated", "offered"),
    [(40, 200, 40), (200, 101, 50), (40, 16, 8), (40, 15, None), (7, 200, None), (8, 200, 8)],
)
def test_calibration_is_offered_on_what_leaves_enough_to_be_scored(samples, evaluated, offered):
    """Eight examples at least on either side."""
    spec = SimpleNamespace(calibrate=SimpleNamespace(samples=samples), evaluate=SimpleNamespace(split="test"))
    case = SimpleNamespace(suite=SimpleNamespace(data=spec), data=SimpleNamespace(evaluation_count=evaluated))
    assert offer_calibration(case) == (None if offered is None else ("test", offered))


class Drawing(Evaluation):
    """An evaluation whose case has an error of 1 on every example, and other draws those of ``errors``: None cannot be
    built, "same" gives the case's own bytes."""

    def __init__(self, opened, errors):
        self._opened, self._errors, self._outputs = opened, np.ones(10), np.zeros((10, 1))
        self.errors, self.seeds = iter(errors), []

    def _prepare(self, **fields):
        self.seeds.append(fields)
        return next(self.errors)

    def _predict(self, artifact):
        return artifact.error


def draw(monkeypatch, errors, mode="static", file=None, request=True):
    """The shares of draws with these errors, and with which seeds they were made."""

    def build(variant, error):
        if error is None:
            raise CaseError("no compiler")
        return SimpleNamespace(sha256="case" if error == "same" else "other", error=error)

    monkeypatch.setattr(error_trials, "load_predictions", lambda error: {"outputs": np.full((10, 1), np.sqrt(error))})
    variant = SimpleNamespace(mode=mode, recipe=SimpleNamespace(file=file))
    seeds = SimpleNamespace(calibrate_seed=5, calibrate_seeds=2) if request else None
    case = SimpleNamespace(
        case=SimpleNamespace(variant=variant), data=SimpleNamespace(request=seeds), build=build,
        artifact=SimpleNamespace(sha256="case"),
    )  # fmt: skip
    evaluation = Drawing(case, errors)
    return evaluation.try_draws(), evaluation.seeds


def test_draws_are_those_of_the_seeds_behind_the_case_s_own(monkeypatch):
    """Of three, those that can be built and give other bytes have a share."""
    shares, seeds = draw(monkeypatch, ["same", None, 0.25])
    assert shares == (pytest.approx(0.75),)
    assert seeds == [{"calibrate_seed": seed} for seed in (7, 8, 9)]
    assert draw(monkeypatch, [0.5, np.inf, 2.0])[0] == pytest.approx((0.5, -1.0))


@pytest.mark.parametrize("facts", [{"mode": "dynamic"}, {"file": "mine.onnx"}, {"request": False}])
def test_without_calibration_there_is_no_other_draw(monkeypatch, facts):
    """Nor for a file of the user's, or for data that cannot be drawn again."""
    assert draw(monkeypatch, [], **facts) == ((), [])


def test_draws_are_made_where_something_could_be_tried(evaluation, monkeypatch):
    """They only tell how much a share must be."""
    monkeypatch.setattr(Evaluation, "try_draws", lambda self: (0.5,))
    untried = evaluation.try_change(SEED)
    assert evaluation.conclude([untried]).draws == ()
    assert evaluation.conclude([]).draws == ()
    tried = Trial(counterfactual=SEED, saving=RemovedError(share=0.1, error=0.1, n=200))
    assert evaluation.conclude([untried, tried]).draws == (0.5,)


def test_limits_cover_the_share_of_all_examples():
    """Of samples of 100 examples out of 100 000: the limits of 95 % hold the share of all in 92 to 98 of 100."""
    random = np.random.default_rng(3)
    case = random.gamma(0.7, size=100_000)  # a few examples make most of the error
    other = case * random.uniform(0.2, 1.2, len(case))
    truth = 1 - other.mean() / case.mean()
    covered = 0
    for _ in range(1000):
        rows = random.integers(0, len(case), 100)
        interval = compare_errors(case[rows], other[rows]).interval()
        covered += interval.low <= truth <= interval.high
    assert 920 <= covered <= 980


def test_a_change_that_takes_nothing_away_is_confirmed_in_few_of_a_hundred():
    """One-sided at 2.5 %: of changes that move the error of each example up or down by chance."""
    random = np.random.default_rng(4)
    shares = []
    for _ in range(1000):
        case = random.gamma(0.7, size=100)
        shares.append(compare_errors(case, case * random.permuted(np.repeat([0.5, 1.5], 50))))
    assert sum(share.p_nothing() < 0.025 for share in shares) <= 50


def test_errors_are_of_the_outputs_that_are_kept_and_scores_of_all(opened, tmp_path, monkeypatch):
    """Beside answers the outputs of the first examples alone are kept, as of a vocabulary."""

    def keep_first(artifact, data, batch_size, file, **options):
        predicted = predict_cached(artifact, data, batch_size, file, **options)
        stored = load_predictions(file)
        np.savez(file, **{**stored, "answers": stored["outputs"], "outputs": stored["outputs"][:50]})
        return predicted

    monkeypatch.setattr(error_trials, "predict_cached", keep_first)
    evaluation = Evaluation(opened, tmp_path)
    trial, own_data = evaluation.try_change(CALIBRATOR), evaluation.try_change(OWN_DATA)
    assert trial.saving is not None
    assert trial.saving.n == 50
    assert trial.metric_change is not None
    assert own_data.saving is not None
    assert own_data.saving.n < 50  # without those that it was calibrated on
    assert evaluation.conclude([trial]).n == 50
