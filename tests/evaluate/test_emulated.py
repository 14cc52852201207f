"""Answers of an emulated CPU: which examples, that each is kept, and what the engines answer there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qbench import suite
from qbench.build import Artifact
from qbench.evaluate.emulated import Emulation, choose_examples, group_examples
from qbench.hosts.emulated import Emulated
from qbench.machine import fingerprint
from qbench.progress.live import Silent
from qbench.quant.recipe import Recipe
from qbench.record.schema import read_case_id
from qbench.run import build_stage, evaluate_stage, run
from qbench.run.hosts_stage import read_hosts
from qbench.run.prepare_stage import prepare

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
    artifact = Artifact(
        mode=mode, backend="onnxruntime", file=Path("m.onnx"), format="onnx", key="k", sha256="s", size_bytes=1,
        layers=(), recipe=Recipe(), fixed_batch=None, expected="", fresh=True,
    )  # fmt: skip
    return Emulation(
        artifact=artifact, data=CountOnly(), host="qemu:Haswell", batch_size=batch_size, native=Path("n.npz"),
        samples=samples, of_classes=True,
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
    prepared = prepare(context)
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
