"""One artifact on two hosts: what a limited CPU answers, and what is recorded of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qbench import suite
from qbench.hosts.limited import AVX2
from qbench.machine import fingerprint
from qbench.progress.live import Silent
from qbench.run import build_stage, evaluate_stage, run
from qbench.run.hosts_stage import read_hosts
from qbench.run.prepare_stage import prepare

NETWORKS = Path(__file__).parent.parent / "fixtures" / "networks.py"
TEXT = f"""
suite: planted
models: [{{name: loud, source: {{python: "{NETWORKS}:loud"}}}}]
data: {{dataset: {{npz: data.npz}}, calibrate: {{samples: 32}}}}
matrix: {{modes: [static], backends: [fbgemm, onednn]}}
recipe: [{{name: full, reduce_range: false}}, {{name: reduced, reduce_range: true}}]
hosts: [native, avx2]
"""
pytestmark = [
    pytest.mark.skipif(AVX2.missing() is not None, reason=f"{AVX2.missing()}"),
    pytest.mark.skipif("avx512_vnni" not in fingerprint.isa(), reason="this CPU adds in 16 bits natively"),
    pytest.mark.skipif(bool(fingerprint.switches()), reason="a variable limits this process already"),
]


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """The outputs by file and the facts by case of a network whose sums do not fit in 16 bits."""
    folder = tmp_path_factory.mktemp("planted")
    rng = np.random.default_rng(0)
    images = rng.uniform(0.7, 1.0, (104, 64)).astype(np.float32)  # pairs of such bytes times 127 are beyond 32,767
    labels = np.arange(104) % 10
    np.savez(folder / "data.npz", train_inputs=images[:64], train_labels=labels[:64],
             test_inputs=images[64:], test_labels=labels[64:])  # fmt: skip
    (folder / "s.yaml").write_text(TEXT)
    read = suite.read(folder / "s.yaml")
    context = run.open_run(read, out=folder / "reports", only=None, resume=None, jobs=1, progress=Silent())
    prepared = prepare(context)
    hosts = read_hosts(context)
    built = build_stage.build_variants(context, prepared)
    evaluated = evaluate_stage.evaluate(context, prepared, built, hosts)
    outputs = {case: np.load(known.predictions)["outputs"] for case, known in evaluated.items()}
    return outputs, {case: known.host for case, known in evaluated.items()}, context


@pytest.mark.parametrize("backend", ["fbgemm", "onednn"])
def test_a_layer_that_saturates_answers_otherwise_on_an_older_cpu(planted, backend):
    """The file is the same, and so are the examples; the kernels of AVX2 clip sums of two products."""
    outputs, _, _ = planted
    native, limited = (outputs[f"loud/static@full/{backend}/t1/b1{host}"] for host in ("", "/avx2"))
    assert (native != limited).any(axis=1).all()
    assert np.abs(native).mean() > 1.2 * np.abs(limited).mean()


def test_seven_bits_answer_the_same_everywhere(planted):
    """With reduce_range no sum of two products leaves 16 bits."""
    outputs, _, _ = planted
    case = "loud/static@reduced/fbgemm/t1/b1"
    assert np.array_equal(outputs[case], outputs[f"{case}/avx2"])


def test_the_facts_say_what_kernels_said(planted):
    """Each case knows its host, with what was set and in how many bits its kernels add there."""
    _, facts, context = planted
    case = "loud/static@full/onednn/t1/b1"
    assert (facts[case].kind, facts[case].switches, facts[case].int8_sums) == ("native", (), "32 bits")
    limited = facts[f"{case}/avx2"]
    assert (limited.kind, limited.torch_isa, limited.int8_sums) == ("limited", "AVX2", "16 bits")
    assert "ONEDNN_MAX_CPU_ISA=AVX2" in limited.switches
    assert not context.directory.records()  # nothing was skipped or failed
