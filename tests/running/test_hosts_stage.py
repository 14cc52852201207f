"""One artifact on two hosts: what a limited CPU answers, and what is recorded of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from older_kernels import why_no_avx2

from qbench import suite
from qbench.errors import CaseSkipped
from qbench.hosts.base import KernelView
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


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """The outputs and the facts by case, and what the stages gave, of a network whose sums do not fit in 16 bits."""
    if (reason := why_no_avx2()) is not None:
        pytest.skip(reason)
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


class Host(SimpleNamespace):
    """A host of that name which answers so."""

    def __init__(self, name, answers="runs", reason=None):
        super().__init__(
            kind="limited" if name == "avx2" else "native",
            answers=lambda backend: answers,
            describe=lambda: "Haswell, avx2",
            environment=lambda: {"B": "2", "A": "1"} if name == "avx2" else {},
            contradict=lambda backend, view: reason,
            caution=lambda backend: f"mind {backend}" if name == "avx2" else None,
        )


class Stage:
    """The first look at hosts of a run whose kernels are told; what was heard, broken and asked of them."""

    def __init__(self, monkeypatch, *cases, fleet=None, **hosts):
        self.heard, self.broken, self.asked = [], [], []
        view = KernelView(torch_isa="AVX2", onednn_isa="Intel AVX2", mkl_isa="AVX2 of MKL", int8_sums="16 bits")

        def read_kernels(backend, **options):
            self.asked.append((backend, options))
            return view

        monkeypatch.setattr(hosts_stage.registry, "load", lambda kind, name: hosts[name.partition(":")[0]])
        monkeypatch.setattr(hosts_stage, "read_kernels", read_kernels)
        monkeypatch.setattr(hosts_stage.fingerprint, "cpu_model", lambda: "this CPU")
        planned = [
            SimpleNamespace(
                case=SimpleNamespace(
                    id=f"net/{mode}/{backend}/{host}",
                    host=host,
                    variant=SimpleNamespace(backend=backend, mode=mode, recipe=SimpleNamespace(cpus=())),
                )
            )
            for mode, backend, host in cases
        ]
        self.context = SimpleNamespace(
            tracker=SimpleNamespace(
                open_cases=lambda: planned,
                break_cases=lambda cases, stage, error: self.broken.append(
                    ([case.id for case in cases], stage, type(error), str(error))
                ),
            ),
            progress=SimpleNamespace(stage=lambda *told: self.heard.append(told), advance=self.heard.append),
            fleet=fleet, limits="limits", find_place=lambda host: SimpleNamespace(run_child=f"run on {host}"),
        )  # fmt: skip


def test_a_run_on_this_machine_alone_asks_no_kernel(monkeypatch):
    """Nothing is told of hosts."""
    stage = Stage(monkeypatch, ("fp32", "torch", "native"), ("static", "x86", "native"), native=Host("native"))
    assert read_hosts(stage.context) == {}
    assert (stage.heard, stage.asked) == ([], [])


def test_each_backend_is_asked_once_on_each_host(monkeypatch):
    """In a child there, with the variables of the host; what its kernels say is known of each of its cases."""
    stage = Stage(
        monkeypatch,
        ("static", "x86", "native"), ("static", "x86", "avx2"), ("qat", "x86", "avx2"),
        native=Host("native"), avx2=Host("avx2"),
    )  # fmt: skip
    facts = read_hosts(stage.context)
    assert stage.heard == [("hosts", 2), "x86 on native", "x86 on avx2"]
    asked = [
        (backend, options["environment"], options["limits"], options["run_child"]) for backend, options in stage.asked
    ]
    assert asked == [("x86", {}, "limits", "run on native"), ("x86", {"A": "1", "B": "2"}, "limits", "run on avx2")]
    assert facts["net/static/x86/avx2"] == facts["net/qat/x86/avx2"] == HostFacts(
        kind="limited", cpu="this CPU", switches=("A=1", "B=2"), torch_isa="AVX2", onednn_isa="Intel AVX2",
        mkl_isa="AVX2 of MKL", int8_sums="16 bits", note="mind x86",
    )  # fmt: skip
    assert (facts["net/static/x86/native"].switches, facts["net/static/x86/native"].note) == ((), None)
    assert stage.broken == []


def test_what_is_answered_in_software_asks_no_kernel(monkeypatch):
    """Of an emulated CPU its own name is known; predicted is what this machine computes."""
    stage = Stage(
        monkeypatch,
        ("static", "torch", "qemu:Haswell"), ("static", "onnxruntime", "avx2"), ("fp32", "onnxruntime", "avx2"),
        qemu=Host("qemu:Haswell", "emulated"), avx2=Host("avx2", "predicted"),
    )  # fmt: skip
    facts = read_hosts(stage.context)
    assert facts["net/static/torch/qemu:Haswell"] == HostFacts(kind="emulated", cpu="Haswell, avx2")
    assert facts["net/static/onnxruntime/avx2"] == HostFacts(kind="predicted", cpu="this CPU", int8_sums="16 bits")
    assert facts["net/fp32/onnxruntime/avx2"].int8_sums is None
    assert stage.asked == []


def test_a_host_that_does_not_do_what_was_set_skips_its_cases(monkeypatch):
    """With what showed it; the others go on."""
    stage = Stage(
        monkeypatch,
        ("static", "x86", "avx2"), ("qat", "x86", "avx2"), ("static", "x86", "native"),
        native=Host("native"), avx2=Host("avx2", reason="AVX-512 is still used"),
    )  # fmt: skip
    assert list(read_hosts(stage.context)) == ["net/static/x86/native"]
    reason = "not limited: AVX-512 is still used"
    assert stage.broken == [(["net/static/x86/avx2", "net/qat/x86/avx2"], "host", CaseSkipped, reason)]
    assert stage.heard == [("hosts", 2), "x86 on avx2", "x86 on native"]


def test_the_cpu_of_a_class_of_nodes_is_theirs(monkeypatch):
    """That of this machine where the cluster has none like it."""
    fleet = SimpleNamespace(
        find_class=lambda host: SimpleNamespace(nodes=[SimpleNamespace(cpu="Zen 4")]) if host == "ray:zen4" else None
    )
    stage = Stage(
        monkeypatch, ("static", "x86", "ray:zen4"), ("static", "x86", "native"), fleet=fleet,
        ray=Host("ray:zen4"), native=Host("native"),
    )  # fmt: skip
    facts = read_hosts(stage.context)
    assert (facts["net/static/x86/ray:zen4"].cpu, facts["net/static/x86/native"].cpu) == ("Zen 4", "this CPU")


def test_what_was_compiled_for_a_host_loads_there(monkeypatch):
    """Of any other a caution stays."""
    facts = HostFacts(kind="limited", note="it does not load")
    case = SimpleNamespace(variant=SimpleNamespace(mode="static", recipe=SimpleNamespace(cpus=("avx2",))), host="avx2")
    for loads, note in ((True, None), (False, "it does not load")):
        monkeypatch.setattr(hosts_stage, "loads_on", lambda cpus, host, loads=loads: loads and cpus == ("avx2",))
        assert hosts_stage._describe_case(facts, case).note == note
