"""One artifact on two hosts: what a limited CPU answers, and what is recorded of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from qbench import suite
from qbench.hosts.limited import AVX2
from qbench.machine import fingerprint
from qbench.measure.setting import MeasuredSetting
from qbench.progress.live import Silent
from qbench.record.schema import HostFacts
from qbench.running import build_stage, evaluate_stage, hosts_stage, measure_stage, run
from qbench.running.hosts_stage import read_hosts
from qbench.running.prepare_stage import prepare

NETWORKS = Path(__file__).parent.parent / "fixtures" / "networks.py"
TEXT = f"""
suite: planted
models: [{{name: loud, source: {{python: "{NETWORKS}:loud"}}}}]
data: {{dataset: {{npz: data.npz}}, calibrate: {{samples: 32}}}}
matrix:
  modes: [static]
  backends: [fbgemm, onednn, onnxruntime]
  exclude: [{{backend: onnxruntime, recipe: reduced}}]  # there only a target changes the file
recipe:
  - {{name: full, reduce_range: false, narrow_weights: false}}
  - {{name: reduced, reduce_range: true}}
  - {{name: safe, target: avx2}}
hosts: [native, avx2]
"""
pytestmark = [
    pytest.mark.skipif(AVX2.missing() is not None, reason=f"{AVX2.missing()}"),
    pytest.mark.skipif("avx512_vnni" not in fingerprint.isa(), reason="this CPU adds in 16 bits natively"),
    pytest.mark.skipif(bool(fingerprint.switches()), reason="a variable limits this process already"),
]


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """The outputs and the facts by case, and what the stages gave, of a network whose sums do not fit in 16 bits."""
    folder = tmp_path_factory.mktemp("planted")
    rng = np.random.default_rng(0)
    images = rng.uniform(0.7, 1.0, (104, 64)).astype(np.float32)  # pairs of such bytes times 127 are beyond 32,767
    labels = np.arange(104) % 10
    np.savez(folder / "data.npz", train_inputs=images[:64], train_labels=labels[:64],
             test_inputs=images[64:], test_labels=labels[64:])  # fmt: skip
    (folder / "s.yaml").write_text(TEXT)
    read = suite.read(folder / "s.yaml")
    context = run.open_run(read, out=folder / "reports", only=None, resume=None, jobs=1, progress=Silent())
    prepared = prepare(context, read)
    hosts = read_hosts(context)
    built = build_stage.build_variants(context, prepared)
    evaluated = evaluate_stage.evaluate(context, prepared, built, hosts)
    outputs = {case: np.load(known.predictions)["outputs"] for case, known in evaluated.items()}
    facts = {case: known.host for case, known in evaluated.items()}
    return SimpleNamespace(
        outputs=outputs,
        facts=facts,
        context=context,
        suite=read,
        prepared=prepared,
        built=built,
        evaluated=evaluated,
    )


@pytest.mark.parametrize("backend", ["fbgemm", "onednn"])
def test_a_layer_that_saturates_answers_otherwise_on_an_older_cpu(planted, backend):
    """The file is the same, and so are the examples; the kernels of AVX2 clip sums of two products."""
    outputs = planted.outputs
    native, limited = (outputs[f"loud/static@full/{backend}/t1/b1{host}"] for host in ("", "/avx2"))
    assert (native != limited).any(axis=1).all()
    assert np.abs(native).mean() > 1.2 * np.abs(limited).mean()


def test_seven_bits_answer_the_same_everywhere(planted):
    """With reduce_range no sum of two products leaves 16 bits."""
    outputs = planted.outputs
    case = "loud/static@reduced/fbgemm/t1/b1"
    assert np.array_equal(outputs[case], outputs[f"{case}/avx2"])


@pytest.mark.parametrize("backend", ["fbgemm", "onednn", "onnxruntime"])
def test_an_artifact_for_an_older_cpu_answers_the_same_there(planted, backend):
    """Built here for AVX2: the same bits on both hosts, and the record says what was done for it."""
    case = f"loud/static@safe/{backend}/t1/b1"
    assert np.array_equal(planted.outputs[case], planted.outputs[f"{case}/avx2"])
    target = planted.built[f"loud/static@safe/{backend}"].artifact.facts().target
    assert (target.cpus, target.layers, target.layers_narrowed, target.overflowing) == (("avx2",), 1, 1, ())


def test_an_engine_without_a_switch_is_predicted(planted):
    """ONNX Runtime's file answers on AVX2 what its sums in 16 bits give, and the facts name the layer; fp32
    answers as here."""
    outputs, facts = planted.outputs, planted.facts
    for variant, is_same in (("static@full", False), ("fp32", True)):
        case = f"loud/{variant}/onnxruntime/t1/b1"
        assert np.array_equal(outputs[case], outputs[f"{case}/avx2"]) == is_same
        there = facts[f"{case}/avx2"]
        assert (there.kind, bool(there.saturating), facts[case].saturating) == ("predicted", not is_same, None)
    (layer,) = facts["loud/static@full/onnxruntime/t1/b1/avx2"].saturating
    assert layer.sums == 40 * 10 * 32  # examples x outputs x pairs of inputs
    assert layer.saturated > 0.9 * layer.sums


def test_the_facts_say_what_kernels_said(planted):
    """Each case knows its host, with what was set and in how many bits its kernels add there."""
    facts, context = planted.facts, planted.context
    case = "loud/static@full/onednn/t1/b1"
    assert (facts[case].kind, facts[case].switches, facts[case].int8_sums) == ("native", (), "32 bits")
    limited = facts[f"{case}/avx2"]
    assert (limited.kind, limited.torch_isa, limited.int8_sums) == ("limited", "AVX2", "16 bits")
    assert "ONEDNN_MAX_CPU_ISA=AVX2" in limited.switches
    assert not context.directory.records()  # nothing was skipped or failed


@pytest.mark.parametrize(
    ("kind", "mode", "told"),
    [("predicted", "fp32", True), ("predicted", "static", False), ("limited", "fp32", False)],
)
def test_what_is_predicted_of_fp32_are_the_answers_of_this_machine(kind, mode, told):
    """It adds no products of bytes; a CPU that really runs it says for itself."""
    facts = HostFacts(kind=kind, int8_sums="16 bits", note="mind")
    case = SimpleNamespace(variant=SimpleNamespace(mode=mode, recipe=SimpleNamespace(cpus=())), host="avx2")
    described = hosts_stage._describe_case(facts, case)
    assert (described == facts) != told
    assert (described.int8_sums is None, "those of this machine" in described.note) == (told, told)


def test_what_is_predicted_is_not_measured(planted, monkeypatch):
    """Such cases are recorded without a latency; the others race without them, and fp32 is there for each."""
    raced = []
    monkeypatch.setattr("qbench.machine.peak.measure_peak", lambda *args, **options: None)
    monkeypatch.setattr(
        measure_stage,
        "measure_setting",
        lambda setting, *rest, **more: raced.extend(setting.arms) or MeasuredSetting(latencies={}),
    )
    stages = planted.context, planted.suite, planted.prepared, planted.built, planted.evaluated
    results = list(measure_stage.measure(*stages))
    predicted = {case for case, facts in planted.facts.items() if facts.kind == "predicted"}
    assert {record.case.id for record in results} == predicted
    assert all((record.status, record.latency, record.speedup) == ("ok", None, None) for record in results)
    assert {arm.case for arm in raced} == set(planted.facts) - predicted
