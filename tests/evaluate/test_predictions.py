"""Predictions of every example: proven in a fresh process, the same whoever makes them, and made once."""

from __future__ import annotations

import hashlib
import itertools
import resource
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from made_artifacts import make_artifact
from prepared_digits import prepare_digits

from qbench import registry
from qbench.backends.base import Runner
from qbench.build import outputs_digest
from qbench.errors import EvaluateError, WorkerError
from qbench.evaluate import predictions, score, worker_pool
from qbench.evaluate import worker as evaluate_worker
from qbench.evaluate.worker import Evaluation
from qbench.metrics.spec import MetricSpec
from qbench.models.postprocess import Postprocess, join_answers
from qbench.process.child_process import Limits
from qbench.process.cpu_slots import Slots
from qbench.quant.analysis.quantized_range import InputRange

LIMITS = Limits(seconds=60)


@pytest.fixture
def data(tmp_path):
    return prepare_digits(tmp_path / "cache")


def artifact(tmp_path, data, *, fixed_batch=None, **facts):
    file = tmp_path / "model.json"
    file.write_text('{"seconds": 0.0, "mode": "static"}')
    backend = registry.load("backend", "fake")
    expected = outputs_digest(backend, file, data, fixed_batch or 1)
    return make_artifact(file, **{"fixed_batch": fixed_batch, "expected": expected, **facts})


class Batches(Runner):
    """Gives each example its first pixels, and how many came with it; it is a whole backend, too."""

    def __init__(self):
        self.widths = []

    def load(self, file, *, threads):
        return self

    def prepare(self, inputs):
        return inputs[0]

    def __call__(self, prepared):
        self.widths.append(len(prepared))
        flat = prepared.reshape(len(prepared), -1)[:, 20:30]
        return np.concatenate([flat, np.full((len(flat), 1), len(flat))], axis=1)

    def outputs(self, result):
        return result

    def observed(self):
        return {}


@pytest.fixture
def runner(monkeypatch):
    """Stands for any artifact, in this process."""
    batches = Batches()
    monkeypatch.setattr(evaluate_worker.registry, "load", lambda *_: batches)
    monkeypatch.setattr(batches, "digest", lambda inputs: "as built")
    return batches


def predictor(tmp_path, data, size, **facts):
    return evaluate_worker.EvaluationSession(
        Evaluation(artifact=artifact(tmp_path, data, expected="as built", **facts), data=data, size=size)
    )


@pytest.mark.parametrize(
    ("facts", "size", "cut", "widths"),
    [
        ({}, None, 24, [8] * 9),
        ({}, None, 22, [8] * 9),
        ({"mode": "dynamic"}, 16, 32, [16, 16, 16, 16, 6]),
        ({"fixed_batch": 16}, 16, 48, [16] * 5),
        ({"fixed_batch": 1, "mode": "dynamic"}, 1, 40, [1] * 70),
        ({"fixed_batch": 100}, 100, 70, [100]),
    ],
)
def test_every_example_is_predicted_once_and_in_order(tmp_path, data, runner, facts, size, cut, widths):
    """Whole batches, the last one filled from its own end; only a dynamic one, whose outputs hang on it, is short."""
    session = predictor(tmp_path, data, size, **facts)
    runner.widths.clear()
    width, first = session.predict_first()
    rest = [session.predict(*part, width) for part in ((first.stop, cut), (cut, 70)) if part[0] < part[1]]
    rows = np.concatenate([part.outputs for part in (first, *rest)])
    np.testing.assert_array_equal(rows[:, :-1], data.evaluation(0, 70)[0].reshape(70, -1)[:, 20:30])
    assert [part.start for part in (first, *rest)] == [0, first.stop, cut][: 1 + len(rest)]
    assert runner.widths == widths


@pytest.mark.parametrize(("facts", "size"), [({}, None), ({"fixed_batch": 16}, 16), ({"mode": "dynamic"}, 16)])
def test_the_other_outputs_are_kept_by_their_place(tmp_path, data, runner, monkeypatch, facts, size):
    """Those with a row of floats for each example, of every one, in whatever batches; no states, no whole numbers."""

    def list_all(result):
        return result, result[:, :1] * 2, result[:1].astype(int), np.zeros((1, 7)), result.reshape(-1, 11, 1)

    monkeypatch.setattr(runner, "all_outputs", list_all)
    session = predictor(tmp_path, data, size, **facts)
    width, first = session.predict_first()
    parts = [first, session.predict(first.stop, 48, width), session.predict(48, 70, width)]
    rows = np.concatenate([part.outputs for part in parts])
    assert {tuple(part.others) for part in parts} == {(1, 4)}
    np.testing.assert_array_equal(np.concatenate([part.others[1] for part in parts]), rows[:, :1] * 2)
    np.testing.assert_array_equal(np.concatenate([part.others[4] for part in parts])[:, :, 0], rows)


def test_an_output_that_a_part_lacks_is_left_out():
    """As one whose rows have another shape at times: no row of it stands for an example."""
    whole, short = np.ones((3, 2)), np.ones((3, 4))
    joined = evaluate_worker.join_rows([{0: whole, 1: whole, 2: whole}, {0: whole, 2: short}])
    assert {place: array.shape for place, array in joined.items()} == {0: (6, 2)}


def test_no_batch_reaches_beyond_what_was_asked_for(tmp_path, data, runner):
    """The values that are clipped are counted once for each example of the part, though batches overlap."""
    ranged = artifact(tmp_path, data, expected="as built", input_ranges=(InputRange(low=-9, high=0, step=0),))
    part = evaluate_worker.EvaluationSession(Evaluation(artifact=ranged, data=data)).predict(30, 41, 8)
    assert part.outside == (np.count_nonzero(data.evaluation(30, 41)[0] > 0),)
    assert (part.start, part.stop) == (30, 41)


@pytest.mark.parametrize(
    ("free", "limit", "most"), [(4000, 2000, 500), (4000, 8000, 1000), (4000, -1, 1000), (4003, 4001, 1000)]
)
def test_a_batch_may_take_a_quarter_of_the_memory_that_is_there(monkeypatch, free, limit, most):
    """Of what is free, or of this process' limit where that is less; what has no limit has none."""
    monkeypatch.setattr(evaluate_worker, "count_free_bytes", lambda: free)
    monkeypatch.setattr("resource.getrlimit", lambda which: (limit, -1) if which == resource.RLIMIT_DATA else None)
    assert resource.RLIM_INFINITY == -1
    memory = evaluate_worker._memory()
    assert memory.most == most
    assert memory.used() > 10**6


def test_an_artifact_that_gives_other_outputs_than_where_it_was_built_is_refused(tmp_path, data):
    """The proof of bit-equality is repeated in the evaluating process."""
    wrong = artifact(tmp_path, data, expected=hashlib.sha256(b"other").hexdigest())
    with pytest.raises(EvaluateError, match="reloaded in a fresh process"):
        predictions.predict(wrong, data, 1, tmp_path / "p.npz", limits=LIMITS, progress=lambda *_: None)


def test_several_processes_give_the_same_file(tmp_path, data):
    """Byte by byte, with one place and with three, of which two help; all examples are reported as done."""
    started, shares, files = [], [], []
    worker = worker_pool.Worker
    for places in (1, 3):
        files.append(tmp_path / f"{places}.npz")
        slots = Slots(places)
        predictions.predict(
            artifact(tmp_path, data, mode="fp32"), data, 1, files[-1], slots=slots, limits=LIMITS,
            start_worker=lambda *args, **more: started.append(1) or worker(*args, **more),
            progress=lambda _, share: shares.append(share),
        )  # fmt: skip
        assert [slots.take_spare() for _ in range(4)] == [True] * places + [False] * (4 - places)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert (len(started), shares.count(1.0)) == (1 + 3, 2)
    assert len(np.load(files[0])["outputs"]) == len(set(np.load(files[0])["ids"])) == 70


class FakeWorker:
    """A process in this one; ``error`` is what it says instead of an answer."""

    def __init__(self, error=None, ready=None):
        self.pid, self._error, self._ready = None, error, ready

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def ready(self):
        if self._ready:
            raise self._ready

    def count_room(self):
        return 9

    def ask(self, what, *args):
        if what == "predict_first":
            return 4, evaluate_worker.PartOutputs(start=0, stop=4, outputs=np.arange(4)[:, None], outside=(1,))
        if self._error:
            raise self._error
        start, stop, _ = args
        return evaluate_worker.PartOutputs(
            start=start, stop=stop, outputs=np.arange(start, stop)[:, None], outside=(stop - start,)
        )


def evaluate(tmp_path, data, workers, *, seconds=60):
    pool = itertools.chain(workers, itertools.repeat(workers[-1]))
    slots, limits = Slots(len(workers)), Limits(seconds=seconds)
    try:
        return worker_pool.compute_outputs(
            Evaluation(artifact=artifact(tmp_path, data), data=data),
            slots=slots,
            start_worker=lambda *_, **__: next(pool),
            limits=limits,
            progress=lambda *_: None,
        )
    finally:
        assert [slots.take_spare() for _ in range(len(workers) + 1)] == [True] * len(workers) + [False]


@pytest.mark.parametrize(
    "lame",
    [
        FakeWorker(error=WorkerError("out of memory")),
        FakeWorker(ready=WorkerError("out of memory")),
        FakeWorker(ready=OSError(11)),
    ],
)
def test_a_helper_that_cannot_go_on_costs_nothing(tmp_path, data, lame):
    """Most often memory: what it was at is done by the first process, and its place is free again."""
    result = evaluate(tmp_path, data, [FakeWorker(), lame])
    assert result.rows[:, 0].tolist() == list(range(70))
    assert result.outside == (1 + 66,)


def test_what_a_helper_finds_wrong_with_the_artifact_is_told(tmp_path, data):
    """One process in which the artifact gives other outputs is one too many."""
    with pytest.raises(EvaluateError, match="other outputs"):
        evaluate(tmp_path, data, [FakeWorker(), FakeWorker(ready=EvaluateError("gives other outputs"))])


def test_what_the_first_process_finds_wrong_with_the_artifact_is_told(tmp_path, data):
    """Before it is asked for anything."""
    with pytest.raises(EvaluateError, match="other outputs"):
        evaluate(tmp_path, data, [FakeWorker(ready=EvaluateError("gives other outputs"))])


def test_an_error_of_the_first_process_ends_all(tmp_path, data):
    """Nobody waits for parts that nobody does."""
    with pytest.raises(WorkerError, match="ended by SIGKILL"):
        evaluate(tmp_path, data, [FakeWorker(error=WorkerError("ended by SIGKILL"))])


def test_all_parts_together_have_the_time_of_one_request(tmp_path, data):
    """limits.stage_seconds is what the evaluation of one variant may take, however many parts it has."""
    with pytest.raises(WorkerError, match="took longer than 0 s and was stopped; raise limits.stage_seconds"):
        evaluate(tmp_path, data, [FakeWorker()], seconds=0)


# --- predictions that were made before ---------------------------------------------------------------------


@pytest.fixture
def evaluated_files(monkeypatch):
    """Counts the evaluations, which take no time."""
    calls = []

    def predict(artifact, data, batch_size, file, **_):
        calls.append(file)
        file.write_bytes(f"predictions {len(calls)}".encode())

    monkeypatch.setattr(predictions, "predict", predict)
    return calls


def predict_cached(artifact, data, file, *, batch=1):
    root = data.folder.parents[1]
    return predictions.predict_cached(artifact, data, batch, file, root=root, limits=LIMITS, progress=lambda *_: None)


def test_what_was_evaluated_before_is_not_evaluated_again(tmp_path, data, evaluated_files):
    """The same file comes from the cache, also into another run's folder."""
    int8 = artifact(tmp_path, data)
    assert not predict_cached(int8, data, tmp_path / "a.npz").cached
    assert predict_cached(int8, data, tmp_path / "b.npz").cached
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes() == b"predictions 1"
    assert sorted(path.name for path in tmp_path.glob("*.npz*")) == ["a.npz", "b.npz"]


@pytest.mark.parametrize(
    ("mode", "other", "batch", "again"),
    [
        ("static", {}, 8, False),
        ("dynamic", {}, 8, True),
        ("static", {"artifact": {"sha256": "other"}}, 1, True),
        ("static", {"artifact": {"key": "other"}}, 1, True),
        ("static", {"data": {"evaluation_digest": "other"}}, 1, True),
        ("static", {"data": {"calibration_digest": "other"}}, 1, True),
        ("fp32", {"data": {"calibration_digest": "other"}}, 1, False),
    ],
)
def test_what_may_change_a_prediction_is_evaluated_again(tmp_path, data, evaluated_files, mode, other, batch, again):
    """Another batch counts for dynamic variants only, other calibration data for those that are held against it."""
    int8 = artifact(tmp_path, data, mode=mode)
    predict_cached(int8, data, tmp_path / "a.npz")
    changed, examples = replace(int8, **other.get("artifact", {})), replace(data, **other.get("data", {}))
    assert predict_cached(changed, examples, tmp_path / "b.npz", batch=batch).cached is not again


def test_another_processor_or_postprocess_is_evaluated_again(tmp_path, data, evaluated_files, monkeypatch):
    """That of a node as well as this machine's; answers are made by the user's code as it stands."""
    int8, root = artifact(tmp_path, data), data.folder.parents[1]

    def is_cached(**options):
        return predictions.predict_cached(
            int8, data, 1, tmp_path / "a.npz", root=root, limits=LIMITS, progress=lambda *_: None, **options
        ).cached

    own = answering(tmp_path, "outputs", names=())
    for options in ({}, {"cpu": ["a"]}, {"cpu": ["b"]}, {"postprocess": own}):
        assert [is_cached(**options) for _ in range(2)] == [False, True]
    monkeypatch.setattr(predictions.fingerprint, "cpu_model", lambda: "another")
    assert is_cached(cpu=["a"])
    assert not is_cached()


def test_other_code_evaluates_again(tmp_path, data, evaluated_files, monkeypatch):
    """qbench's own evaluating code is part of what names a prediction: another text of it is another key."""
    int8 = artifact(tmp_path, data)
    predict_cached(int8, data, tmp_path / "a.npz")
    other = tmp_path / "other.py"
    other.write_text("# other\n")
    monkeypatch.setattr(predictions.worker, "__file__", str(other))
    assert not predict_cached(int8, data, tmp_path / "a.npz").cached


def test_a_damaged_copy_is_made_again_and_said(tmp_path, data, evaluated_files):
    """Nothing is scored that is not what was written."""
    int8 = artifact(tmp_path, data)
    predict_cached(int8, data, tmp_path / "a.npz")
    (stored,) = data.folder.parents[1].glob("predictions/*/predictions.npz")
    stored.write_bytes(b"other")
    again = predict_cached(int8, data, tmp_path / "a.npz")
    assert "predictions.npz has changed" in again.note
    assert (tmp_path / "a.npz").read_bytes() == b"predictions 2"


def test_a_failed_evaluation_leaves_no_file(tmp_path, data, monkeypatch):
    """Neither in the run's folder nor in the cache."""

    def fail(artifact, data, batch_size, file, **_):
        file.write_bytes(b"half of it")
        raise WorkerError("ended by SIGKILL")

    monkeypatch.setattr(predictions, "predict", fail)
    with pytest.raises(WorkerError):
        predict_cached(artifact(tmp_path, data), data, tmp_path / "a.npz")
    assert not list(tmp_path.rglob("*.npz"))


# --- how the inputs fit ------------------------------------------------------------------------------------


def fits_of(tmp_path, ranged, data):
    out = tmp_path / "p.npz"
    root = data.folder.parents[1]
    predictions.predict(ranged, data, 16, out, root=root, limits=LIMITS, progress=lambda *_: None)
    return predictions.input_fits(predictions.load_predictions(out))


def test_a_static_artifact_tells_how_the_inputs_fit_it(tmp_path, data):
    """The share of clipped values over every example once, beside what was seen in calibration and evaluation; null
    where no range is known."""
    ranged = artifact(tmp_path, data, input_ranges=(InputRange(low=-0.9, high=1.0, step=0.01),))
    (fit,) = fits_of(tmp_path, ranged, data)
    (calls,), (calibrated,) = data.evaluation(0, 70), data.calibration()
    assert fit.clipped == pytest.approx(np.mean((calls < -0.905) | (calls > 1.005)))
    assert 0 < fit.clipped < 1
    assert (fit.low, fit.high, fit.evaluated.greatest) == (-0.9, 1.0, calls.max())
    assert fit.calibrated.mean == pytest.approx(calibrated.mean(dtype=np.float64))
    accuracy = score.score(
        MetricSpec(name="top1"), tmp_path / "p.npz", None, 10, limits=LIMITS, progress=lambda *_: None
    )
    assert accuracy.inputs == (fit,)
    (plain,) = fits_of(tmp_path, artifact(tmp_path, data), data)
    assert (plain.low, plain.high, plain.clipped, plain.evaluated) == (None, None, None, fit.evaluated)


def test_what_has_no_fixed_ranges_tells_nothing_of_them(tmp_path, data):
    """Null, not 0: a dynamic variant clips nothing that was fixed before."""
    assert fits_of(tmp_path, artifact(tmp_path, data, mode="dynamic"), data) is None


def test_the_inputs_are_looked_at_once_for_all_artifacts(tmp_path, data, monkeypatch):
    """With a cache; without one each looks by itself, and sees the same."""
    looked = []
    call = predictions.call

    def counted(function, *arguments, **options):
        looked.extend([function] if function is predictions._spreads_here else [])
        return call(function, *arguments, **options)

    monkeypatch.setattr(predictions, "call", counted)
    root = data.folder.parents[1]
    options = {"limits": LIMITS, "progress": lambda *_: None}
    first, second = (predictions._spreads(data, root, **options) for _ in range(2))
    assert len(looked) == 1
    assert first == second == predictions._spreads(data, None, **options)
    assert len(looked) == 2


class TwoOutputs(Batches):
    """Beside the first pixels the number of each example's class, and a number for the whole batch."""

    def all_outputs(self, result):
        return result, result[:, :1].astype(np.int64), np.zeros(3)


def answering(tmp_path, text, names=("pixels", "first", "three")):
    (tmp_path / "mine.py").write_text(f"def fn(outputs): return {text}\n")
    return Postprocess(file=tmp_path / "mine.py", attribute="fn", names=names)


@pytest.mark.parametrize("size", [None, 16])
def test_answers_are_made_of_all_outputs_of_each_batch(tmp_path, data, monkeypatch, size):
    """Whole numbers and those without a row for each example among them; the filled end of a batch makes none."""
    runner = TwoOutputs()
    monkeypatch.setattr(evaluate_worker.registry, "load", lambda *_: runner)
    monkeypatch.setattr(runner, "digest", lambda inputs: "as built")
    rows = "row[: 1 + int(outputs['first'][i, 0]) % 3] + len(outputs['three'])"
    text = f"[{rows} for i, row in enumerate(outputs['pixels'])]"
    session = evaluate_worker.EvaluationSession(
        Evaluation(
            artifact=artifact(tmp_path, data, expected="as built"),
            data=data,
            size=size,
            postprocess=answering(tmp_path, text),
        )
    )
    width, first = session.predict_first()
    parts = [first, session.predict(first.stop, 70, width)]
    assert [(part.start, part.stop, len(part.outputs)) for part in parts] == [
        (0, first.stop, first.stop),
        (first.stop, 70, 70 - first.stop),
    ]
    answers = join_answers([part.answers for part in parts])
    pixels = data.evaluation(0, 70)[0].reshape(70, -1)[:, 20:30]
    for answer, row in zip(answers, pixels, strict=True):
        length = 1 + int(row[0]) % 3
        assert answer.tolist() == pytest.approx([*(row[:length] + 3), *[-1] * (answers.shape[1] - length)])


def test_what_a_postprocess_writes_into_outputs_stays_with_it(tmp_path, data, runner):
    """The outputs that are kept are the network's."""
    text = "outputs.__imul__(0)[:, :2]"
    session = evaluate_worker.EvaluationSession(
        Evaluation(
            artifact=artifact(tmp_path, data, expected="as built"),
            data=data,
            size=8,
            postprocess=answering(tmp_path, text, names=()),
        )
    )
    part = session.predict(0, 16, 8)
    assert (part.answers == 0).all()
    assert (part.outputs != 0).any()


def test_outputs_beside_answers_are_kept_as_far_as_there_is_room(tmp_path, data, runner, monkeypatch):
    """Of the first examples alone, whoever predicts them; answers are there for all."""
    monkeypatch.setattr(evaluate_worker, "MOST_BYTES", 20 * 11 * 4)
    built = artifact(tmp_path, data, expected="as built")
    session = evaluate_worker.EvaluationSession(
        Evaluation(artifact=built, data=data, size=8, postprocess=answering(tmp_path, "outputs[:, :2]", names=()))
    )
    parts = [session.predict(start, min(start + 24, 70), 8) for start in range(0, 70, 24)]
    assert [len(part.outputs) for part in parts] == [20, 0, 0]
    assert sum(len(part.answers) for part in parts) == 70


class Stop(Exception):
    """Ends an evaluation before it begins."""


@pytest.fixture
def asked(monkeypatch):
    """What the processes of an evaluation are asked for; none is started."""
    calls = []

    def compute_outputs(evaluation, **options):
        calls.append((evaluation, options))
        raise Stop

    monkeypatch.setattr(predictions, "compute_outputs", compute_outputs)
    return calls


@pytest.mark.parametrize(
    ("facts", "predicted", "size"),
    [
        ({}, False, None),
        ({"mode": "dynamic"}, False, 3),
        ({"fixed_batch": 5, "mode": "dynamic"}, False, 5),
        ({"fixed_batch": 5}, True, 5),
        ({}, True, 8),
    ],
)
def test_a_batch_is_as_wide_as_the_artifact_or_the_case_has_it(asked, data, monkeypatch, facts, predicted, size):
    """Of eight where answers are predicted, whose tensors between layers are kept; else as wide as is fastest."""
    monkeypatch.setattr(predictions, "_is_predicted", lambda *_: predicted)
    with pytest.raises(Stop):
        predictions.predict(make_artifact(**facts), data, 3, Path("p.npz"), limits=LIMITS, progress=lambda *_: None)
    ((evaluation, options),) = asked
    assert (evaluation.size, evaluation.predicted) == (size, predicted)
    places = options["slots"]
    assert [places.take_spare(), places.take_spare()] == [True, False], "one process, where nobody shares places"


@pytest.mark.parametrize(
    ("options", "same"),
    [({}, True), ({"same_answers": False}, False), ({"host": "avx2"}, False)],
)
def test_the_answers_of_the_build_are_asked_for_where_they_can_be_given(asked, data, options, same):
    """Here, and where it was built; a host's variables go before what else is set."""
    arguments = {"environment": {"OWN": "1"}, "limits": LIMITS, "progress": lambda *_: None}
    with pytest.raises(Stop):
        predictions.predict(make_artifact(backend="fbgemm"), data, 1, Path("p.npz"), **arguments, **options)
    ((evaluation, given),) = asked
    assert evaluation.same_answers is same
    plugin = registry.load("host", options.get("host", "native"))
    assert given["environment"] == {**plugin.environment(), "OWN": "1"}


def test_inputs_are_looked_at_in_blocks_of_64(data, monkeypatch):
    """Of both sides, so that a large split needs little memory; who watches is told."""
    sizes, steps = [], []

    def measure(parts, axis):
        sizes.append([len(inputs[0]) for inputs in parts])
        return (None,)

    monkeypatch.setattr(predictions.input_drift, "measure_spreads", measure)
    examples = np.zeros((70, 3), np.float32)
    several = SimpleNamespace(
        evaluation_count=129, evaluation=lambda start, stop: (np.zeros((min(stop, 129) - start, 3)),),
        calibration=lambda: (examples,), preprocessing=data.preprocessing,
    )  # fmt: skip
    predictions._spreads_here(several, progress=lambda *step: steps.append(step))
    assert sizes == [[64, 64, 1], [64, 6]]
    assert steps == [("look at the inputs", 0.9)]


def test_a_file_may_be_large_and_holds_no_objects(tmp_path):
    """Outputs are hardly smaller compressed, what else is there is; an object would be a pickle, which could run
    code."""
    file = tmp_path / "p.npz"
    predictions._write(file, {"outputs": np.zeros(9), "outputs.1": np.zeros(9), "labels": np.zeros(9)})
    with zipfile.ZipFile(file) as archive:
        kinds = {entry.filename: (entry.compress_type, entry.extract_version) for entry in archive.infolist()}
    stored, deflated = (zipfile.ZIP_STORED, 45), (zipfile.ZIP_DEFLATED, 45)  # 45: more than 4 GiB can follow
    assert kinds == {"outputs.npy": stored, "outputs.1.npy": stored, "labels.npy": deflated}
    with pytest.raises(ValueError, match="allow_pickle=False"):
        predictions._write(file, {"outputs": np.array([print], dtype=object)})
    np.savez(file, outputs=np.array([print], dtype=object), sums=np.array([print], dtype=object))
    for read in (predictions.load_predictions, predictions.read_saturating):
        with pytest.raises(ValueError, match="allow_pickle=False"):
            read(file)


def test_predictions_that_cannot_be_written_say_what_to_do(tmp_path, data, evaluated_files):
    """They are in the cache, so that a run can go on."""
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(
        EvaluateError, match=r"folder.npz: the predictions cannot be written \(.*\w.*\): make room and go"
    ):
        predict_cached(artifact(tmp_path, data), data, tmp_path / "folder.npz")
