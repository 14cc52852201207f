"""Answers of an emulated CPU: which examples, that each is kept, and what the engines answer there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pretended_qemu
import pytest
from made_artifacts import make_artifact

from qbench import registry, suite
from qbench.cache import manifest, store
from qbench.data import DataRequest
from qbench.data_preparation import prepare_data
from qbench.evaluate import emulated
from qbench.evaluate.emulated import Emulation, choose_examples, group_examples, predict_emulated, read_emulated
from qbench.hosts.base import KernelView
from qbench.hosts.emulated import Emulated
from qbench.machine import fingerprint
from qbench.metrics.base import list_outputs
from qbench.process.child_process import Limits
from qbench.process.cpu_slots import Slots
from qbench.progress.live import Silent
from qbench.record.schema import read_case_id
from qbench.running import build_stage, evaluate_stage, run
from qbench.running.hosts_stage import read_hosts
from qbench.running.prepare_stage import prepare

HASWELL = Emulated("Haswell")
NETWORKS = Path(__file__).parent.parent / "fixtures" / "networks.py"
TEXT = f"""
suite: emulated
models: [{{name: loud, source: {{python: "{NETWORKS}:loud"}}}}]
data: {{dataset: {{npz: data.npz}}, calibrate: {{samples: 32}}}}
matrix: {{modes: [fp32, static], backends: [onnxruntime]}}
quantize: {{static: {{reduce_range: false, narrow_weights: false}}}}
hosts: [native, avx2, "qemu:Haswell"]
evaluate: {{emulated_samples: 3}}
"""


class CountOnly:
    """Of the data only how many examples there are."""

    evaluation_count = 10


def emulation(mode="static", batch_size=1, samples=3):
    """A request for a few examples."""
    return Emulation(
        artifact=make_artifact(mode=mode, backend="onnxruntime"), data=CountOnly(), host="qemu:Haswell",
        batch_size=batch_size, native=Path("n.npz"), samples=samples, of_classes=True,
    )  # fmt: skip


def test_the_examples_nearest_to_flipping_come_first():
    """By the distance of the two highest scores, whichever classes they are; equal ones keep their order."""
    scores = np.array([[0, 3, 9], [5, 5.1, 0], [1, 0, 2], [2, 0, 1]], np.float32)
    order, rule = choose_examples(scores, of_classes=True)
    assert (order.tolist(), rule) == ([1, 2, 3, 0], "nearest to flipping")
    logits = np.array([[-4.0], [0.5], [2.0]], np.float32)
    assert choose_examples(logits, of_classes=True)[0].tolist() == [1, 2, 0]


def test_outputs_that_are_no_classes_have_nothing_to_flip():
    """There the largest come first: saturation needs large sums."""
    order, rule = choose_examples(np.array([[[1.0, -9.0]], [[3.0, 4.0]]], np.float32), of_classes=False)
    assert (order.tolist(), rule) == ([0, 1], "largest outputs")


def test_a_dynamic_artifact_answers_whole_batches():
    """Its scales are those of the batch, which must be the native one; the last one may be shorter."""
    order = np.array([9, 0, 8, 4])
    assert group_examples(order, emulation()) == [(9, 10), (0, 1), (8, 9)]
    assert group_examples(order, emulation("dynamic", 4)) == [(8, 10), (0, 4)]
    assert len(group_examples(order, emulation(samples=99))) == 4
    assert group_examples(np.array([9, 8, 0]), emulation("dynamic", 4)) == [(8, 10), (0, 4)]


class Notes(Silent):
    """Keeps what a user is told."""

    def __init__(self):
        self.texts = []

    def note(self, text):
        """Keeps it."""
        self.texts.append(text)


def evaluate(folder, *overrides):
    """The evaluated static cases of the suite in a folder, by host, what they answer, and what a user is told."""
    notes, read = Notes(), suite.read(folder / "s.yaml", overrides)
    context = run.open_run(read, out=folder / "reports", only="*/static/*", resume=None, jobs=2, progress=notes)
    prepared = prepare(context, read)
    built = build_stage.build_variants(context, prepared)
    cases = evaluate_stage.evaluate(context, prepared, built, read_hosts(context))
    by_host = {read_case_id(case).host: known for case, known in cases.items() if "/static/" in case}
    return by_host, {host: dict(np.load(known.predictions)) for host, known in by_host.items()}, notes.texts


@pytest.mark.skipif(HASWELL.missing() is not None, reason=f"{HASWELL.missing()}")
@pytest.mark.skipif("avx512_vnni" not in fingerprint.isa(), reason="this CPU adds in 16 bits natively")
def test_an_emulated_cpu_answers_as_predicted_and_goes_on_where_it_stopped(tmp_path, monkeypatch):
    """A layer whose sums do not fit in 16 bits answers otherwise there, with the bits that are predicted for AVX2;
    there is no accuracy. What was answered before is not computed again."""
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    images = rng.uniform(0.7, 1.0, (72, 64)).astype(np.float32)
    np.savez(tmp_path / "data.npz", train_inputs=images[:64], train_labels=np.arange(64) % 10,
             test_inputs=images[64:], test_labels=np.arange(8) % 10)  # fmt: skip
    (tmp_path / "s.yaml").write_text(TEXT)
    cases, answers, notes = evaluate(tmp_path)
    there, facts = answers["qemu:Haswell"], cases["qemu:Haswell"].host
    assert cases["qemu:Haswell"].accuracy is None
    assert (facts.kind, facts.int8_sums, facts.examples.n, facts.examples.of) == ("emulated", "16 bits", 3, 8)
    assert np.array_equal(there["outputs"], answers["avx2"]["outputs"][there["positions"]])
    assert (there["outputs"] != answers["native"]["outputs"][there["positions"]]).any()
    assert any("to start" in note for note in notes)
    cases, answers, notes = evaluate(tmp_path, "evaluate.emulated_samples=2", "hosts=[native, 'qemu:Haswell']")
    assert np.array_equal(answers["qemu:Haswell"]["positions"], there["positions"][:2])
    assert not any("to start" in note for note in notes)


# --- composed without qemu: a program in its place runs this Python ----------------------------------------


class Here:
    """In place of a child process: its session in this one."""

    def __init__(self, factory, *args, started, **_):
        self._session, self._started, self._ready = factory(*args), started, False
        started.append("open")

    def ready(self):
        """At once."""
        self._ready = True

    def ask(self, method, *args):
        """The session's answer, once somebody has waited for it."""
        assert self._ready
        return getattr(self._session, method)(*args)

    def close(self):
        """Ends the session."""
        self._session.close()
        self._started.append("closed")


@pytest.fixture
def pretended(tmp_path, monkeypatch):
    """A request on the pretended backend, and what was started and ended for it."""
    pretended_qemu.install(tmp_path / "bin", monkeypatch)
    started = []
    monkeypatch.setattr(emulated, "Worker", lambda *args, **more: Here(*args, started=started, **more))
    request = DataRequest(
        loader="digits", value=None, options={}, base=Path(), calibrate_split="train", calibrate_samples=8,
        calibrate_seed=0, evaluate_split="test", evaluate_samples=10, evaluate_seed=0, train=False,
    )  # fmt: skip
    data = prepare_data(request, store.open_cache(tmp_path / "cache"), progress=lambda *_: None)
    (tmp_path / "model.json").write_text('{"seconds": 0.0, "mode": "static"}')
    scores = np.zeros((10, 10), np.float32)
    scores[:, 3] = [9, 8, 7, 1, 6, 2, 5, 3, 4, 10]
    np.savez(tmp_path / "native.npz", outputs=scores)
    plain = emulation()
    artifact = replace(plain.artifact, backend="fake", file=tmp_path / "model.json")
    return replace(plain, artifact=artifact, data=data, native=tmp_path / "native.npz"), started


def answer(emulation, folder):
    """What is written for a request, what is told, and how far that was each time."""
    told, shares = [], []
    predict_emulated(
        emulation, folder / "there.npz", root=folder / "cache", slots=Slots(1), limits=Limits(seconds=60),
        progress=lambda text, share: shares.append((text, share)), tell=told.append,
    )  # fmt: skip
    return dict(np.load(folder / "there.npz")), told, shares


def test_the_chosen_examples_are_written_with_what_they_are(pretended, tmp_path):
    """Their answers, positions, ids, labels and digests; one process computes them, and is ended. How long it takes is
    said once one is known."""
    asked, started = pretended
    there, told, shares = answer(asked, tmp_path)
    runner = registry.load("backend", "fake").load(asked.artifact.file, threads=1)
    assert there["positions"].tolist() == [3, 5, 7]
    for row, position in enumerate((3, 5, 7)):
        inputs = asked.data.evaluation(position, position + 1)
        assert np.array_equal(there["outputs"][row], runner.outputs(runner(runner.prepare(inputs)))[0])
        assert there["labels"][row] == asked.data.evaluation_labels()[position]
        assert there["ids"][row] == asked.data.evaluation_ids()[position]
        assert np.array_equal(there["contents"][row], asked.data.evaluation_contents()[position])
    examples, view = read_emulated(tmp_path / "there.npz")
    assert (examples.n, examples.of, examples.chosen, view) == (3, 10, "nearest to flipping", KernelView())
    assert started == ["open", "closed"]
    assert shares == [("emulate on qemu:Haswell", share / 3) for share in range(3)]
    assert [text.partition(": ")[0] for text in told] == ["qemu:Haswell"]
    assert told[0].endswith("for the 2 that are left of 3")


def test_how_long_it_takes_is_told_once_one_is_known(pretended, tmp_path, monkeypatch):
    """What the start took is not of each example."""
    asked, _ = pretended
    clock = iter([100.0, 107.0, 109.5])
    monkeypatch.setattr(emulated, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    _, told, _ = answer(asked, tmp_path)
    assert told == ["qemu:Haswell: 7 s to start, 2.5 s an example, so about 5 s for the 2 that are left of 3"]


def test_all_outputs_are_written_by_name(pretended, tmp_path, monkeypatch):
    """As natively, so that a difference in any of them is seen; again from the cache."""
    asked, started = pretended
    plain = emulated.EmulatedProcess.compute

    def compute(self, start, stop):
        first = plain(self, start, stop)[0]
        return {0: first, 2: first[:, :3] + start}

    monkeypatch.setattr(emulated.EmulatedProcess, "compute", compute)
    for _ in range(2):
        there, _, _ = answer(asked, tmp_path)
        assert list_outputs(there) == ["outputs", "outputs.2"]
        expected = there["outputs"][:, :3] + there["positions"][:, None].astype(np.float32)
        assert np.array_equal(there["outputs.2"], expected)
    assert started == ["open", "closed"]


def test_what_was_answered_is_not_asked_again(pretended, tmp_path):
    """More examples take one process for those that are new, the same ones none."""
    asked, started = pretended
    before, _, _ = answer(asked, tmp_path)
    there, told, _ = answer(replace(asked, samples=5), tmp_path)
    assert np.array_equal(there["outputs"][:3], before["outputs"])
    assert told[0].endswith("for the 1 that are left of 5")
    assert started == ["open", "closed"] * 2
    again, told, _ = answer(asked, tmp_path)
    assert np.array_equal(again["outputs"], before["outputs"])
    assert (told, started) == ([], ["open", "closed"] * 2)


def test_another_artifact_or_cpu_is_asked_anew(pretended, tmp_path, monkeypatch):
    """Whatever decides an answer: its bytes, what it runs on, the CPU and who emulates it."""
    asked, started = pretended
    answer(asked, tmp_path)
    for other in ({"sha256": "other"}, {"key": "other"}, {"mode": "qat"}):
        answer(replace(asked, artifact=replace(asked.artifact, **other)), tmp_path)
    monkeypatch.setattr(Emulated, "describe", lambda self: "another CPU")
    answer(asked, tmp_path)
    assert started == ["open", "closed"] * 5


def test_a_dynamic_artifact_answers_the_batch_that_an_example_is_in(pretended, tmp_path):
    """All of it is written; more than was asked for is no loss."""
    asked, _ = pretended
    dynamic = replace(asked, artifact=replace(asked.artifact, mode="dynamic"), batch_size=4, samples=1)
    assert answer(dynamic, tmp_path)[0]["positions"].tolist() == [0, 1, 2, 3]


def test_nothing_that_is_kept_is_unpickled(pretended, tmp_path):
    """An answer in the cache is numbers, and so are the native answers: an object would be code of whoever wrote it."""
    asked, started = pretended
    native = tmp_path / "objects.npz"
    np.savez(native, outputs=np.array([print], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        answer(replace(asked, native=native), tmp_path)
    assert started == []
    answer(asked, tmp_path)
    for file in tmp_path.glob("cache/predictions/*/outputs.npz"):
        facts = manifest.read(file.parent).facts
        np.savez(file, outputs=np.array([print], dtype=object))
        manifest.write(file.parent, facts)
    (tmp_path / "there.npz").unlink()
    with pytest.raises(ValueError, match="allow_pickle=False"):
        answer(asked, tmp_path)
    assert not (tmp_path / "there.npz").exists()


def test_what_a_process_leaves_is_removed_also_where_it_failed(pretended, tmp_path, monkeypatch):
    """Its folder, and the process itself."""
    asked, started = pretended
    folders = []
    monkeypatch.setattr(
        emulated.EmulatedProcess, "compute", lambda self, *_: folders.append(self._log.parent) or {}["no"]
    )
    with pytest.raises(KeyError, match="no"):
        answer(asked, tmp_path)
    assert (len(folders), folders[0].exists(), started) == (1, False, ["open", "closed"])
    assert not (tmp_path / "there.npz").exists()
