"""Layers that lose sums on another host are named, by each engine's own kernels."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from older_kernels import why_no_avx2

from qbench import suite
from qbench.backends import openvino
from qbench.errors import CaseError, CaseSkipped
from qbench.progress.live import Silent
from qbench.record.schema import HostFacts
from qbench.running import build_stage, evaluate_stage, run, saturation_stage
from qbench.running.hosts_stage import read_hosts
from qbench.running.prepare_stage import prepare
from qbench.running.saturation_stage import _loses_sums, name_layers

NETWORKS = Path(__file__).parent.parent / "fixtures" / "networks.py"
BACKENDS = ["fbgemm", "x86", "onednn", "onnxruntime", *(["openvino"] if openvino.BACKEND.missing() is None else [])]
TEXT = f"""
suite: planted
models: [{{name: net, source: {{python: "{NETWORKS}:half_loud"}}}}]
data: {{dataset: {{npz: data.npz}}, calibrate: {{samples: 32}}}}
matrix:
  modes: [static]
  backends: [{", ".join(BACKENDS)}]
  exclude: [{{recipe: safe, backend: fbgemm}}, {{recipe: safe, backend: x86}}]
recipe: [{{name: full, reduce_range: false, narrow_weights: false}}, {{name: safe, target: [avx2]}}]
hosts: [native, avx2]
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """The facts and outputs by case of a network whose first layer alone loses sums."""
    if (reason := why_no_avx2()) is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("planted")
    images = np.random.default_rng(0).uniform(0.7, 1.0, (104, 64)).astype(np.float32)
    labels = np.arange(104) % 10
    np.savez(folder / "data.npz", train_inputs=images[:64], train_labels=labels[:64],
             test_inputs=images[64:], test_labels=labels[64:])  # fmt: skip
    (folder / "s.yaml").write_text(TEXT)
    read = suite.read(folder / "s.yaml")
    context = run.open_run(read, out=folder / "reports", only=None, resume=None, jobs=1, progress=Silent())
    prepared, hosts = prepare(context, read), read_hosts(context)
    built = build_stage.build_variants(context, prepared)
    evaluated = name_layers(context, prepared, built, evaluate_stage.evaluate(context, prepared, built, hosts))
    outputs = {case: np.load(known.predictions)["outputs"] for case, known in evaluated.items()}
    return SimpleNamespace(outputs=outputs, facts={case: known.host for case, known in evaluated.items()})


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_planted_layer_is_named_and_no_other(planted, backend):
    """On every engine, with most of its sums: of 32 examples where the engine ran, of all where it was predicted."""
    facts = planted.facts[f"net/static@full/{backend}/t1/b1/avx2"]
    assert [layer.name for layer in facts.saturating] == ["loud"]
    (layer,) = facts.saturating
    assert facts.counted_examples == (40 if backend == "onnxruntime" else 32)
    assert layer.sums == facts.counted_examples * 16 * 32  # examples x outputs x pairs of inputs
    assert layer.saturated > 0.9 * layer.sums
    assert facts.uncounted is None


@pytest.mark.parametrize("backend", [backend for backend in BACKENDS if backend not in ("fbgemm", "x86")])
def test_a_file_that_answers_the_same_is_not_counted(planted, backend):
    """Built for AVX2 no sum is lost there, and nothing of it needs naming."""
    case = f"net/static@safe/{backend}/t1/b1"
    assert np.array_equal(planted.outputs[case], planted.outputs[f"{case}/avx2"])
    assert not planted.facts[f"{case}/avx2"].saturating


def test_what_runs_here_is_not_counted(planted):
    """Nor is fp32."""
    facts = [facts for case, facts in planted.facts.items() if facts.kind == "native" or "/fp32/torch/" in case]
    assert {each.saturating for each in facts} == {None}


@pytest.mark.parametrize(
    ("mode", "host", "native", "counted"),
    [
        ("static", ("limited", "16 bits"), [2.0, np.nan], True),
        ("static", ("limited", "16 bits"), None, True),
        ("static", ("limited", "16 bits"), [1.0, np.nan], False),
        ("static", ("limited", "32 bits"), [2.0, np.nan], False),
        ("static", ("native", "16 bits"), [2.0, np.nan], False),
        ("static", None, [2.0, np.nan], False),
        ("fp32", ("limited", "16 bits"), [2.0, np.nan], False),
    ],
)
def test_counted_is_where_answers_may_have_lost_sums(mode, host, native, counted, tmp_path):
    """An int8 case of a limited host whose kernels add in 16 bits, unless it answers as the native host does."""

    def answered(name, outputs):
        np.savez(tmp_path / name, outputs=np.array(outputs, np.float32))
        facts = None if host is None else SimpleNamespace(kind=host[0], int8_sums=host[1])
        return SimpleNamespace(predictions=tmp_path / f"{name}.npz", host=facts)

    case = SimpleNamespace(variant=SimpleNamespace(mode=mode))
    there = answered("there", [1.0, np.nan])
    assert _loses_sums(case, there, None if native is None else answered("here", native)) is counted


class Stage:
    """The stage over cases of one artifact (``net/MODE/ENGINE/tN/bN[/HOST]``), with what was counted and told."""

    def __init__(self, monkeypatch, *cases, differ=True, error=None):
        self.counted, self.told, self.error = [], [], error
        monkeypatch.setattr(saturation_stage, "count_cached", self.count)
        monkeypatch.setattr(saturation_stage, "load_predictions", lambda file: {"outputs": np.array([len(file.name)])})
        self.planned, self.evaluated = [], {}
        for name in cases:
            model, mode, engine, _, batch, *host = name.split("/")
            variant = SimpleNamespace(id=f"{model}/{mode}/{engine}", mode=mode)
            case = SimpleNamespace(
                id=name, variant=variant, host=host[0] if host else "native", batch_size=int(batch[1:])
            )
            self.planned.append(SimpleNamespace(case=case))
            facts = HostFacts(kind="limited", int8_sums="16 bits") if host else HostFacts(kind="native")
            file = Path(f"{'limited' if host and differ else 'same'}.npz")
            self.evaluated[name] = evaluate_stage.EvaluatedCase(
                predictions=file, accuracy=None, seconds=0.0, host=facts
            )
        self.context = SimpleNamespace(
            tracker=SimpleNamespace(planned=self.planned), cache="cache", limits="limits",
            progress=SimpleNamespace(stage=lambda *told: self.told.append(told), advance=self.told.append),
            report_under=lambda name: name,
            run_parallel=lambda name, items, work: [work(item) for item in items],
        )  # fmt: skip

    def count(self, artifact, data, host, **options):
        self.counted.append((artifact, host, options["progress"]))
        if self.error is not None:
            raise self.error
        return SimpleNamespace(layers=("layer",), examples=32, unknown="one is unknown")

    def run(self):
        built = {each.case.variant.id: SimpleNamespace(artifact=each.case.variant.id) for each in self.planned}
        return name_layers(self.context, SimpleNamespace(data="data"), built, self.evaluated)


NATIVE, LIMITED, THREADS = "net/static/x86/t1/b1", "net/static/x86/t1/b1/avx2", "net/static/x86/t2/b1/avx2"


def test_an_artifact_is_counted_once_on_each_host(monkeypatch):
    """Every case of it there knows its layers; the native one, and the others, stay as they were."""
    stage = Stage(monkeypatch, NATIVE, LIMITED, THREADS, "net/qat/x86/t1/b1")
    result = stage.run()
    assert stage.counted == [("net/static/x86", "avx2", "net/static/x86 on avx2")]
    assert stage.told == [("saturation", 1), "net/static/x86 on avx2"]
    for case in (LIMITED, THREADS):
        host = result[case].host
        assert (host.saturating, host.counted_examples, host.uncounted) == (("layer",), 32, "one is unknown")
        assert host.kind == "limited"
    assert {case: result[case] for case in result.keys() - {LIMITED, THREADS}} == {
        case: stage.evaluated[case] for case in (NATIVE, "net/qat/x86/t1/b1")
    }


def test_without_a_difference_nothing_is_counted(monkeypatch):
    """No stage is told of."""
    stage = Stage(monkeypatch, NATIVE, LIMITED, differ=False)
    assert stage.run() == stage.evaluated
    assert (stage.told, stage.counted) == ([], [])


@pytest.mark.parametrize("error", [CaseError("no memory"), CaseSkipped("no engine")])
def test_layers_that_cannot_be_counted_break_no_case(monkeypatch, error):
    """Why stands with the case."""
    stage = Stage(monkeypatch, NATIVE, LIMITED, error=error)
    host = stage.run()[LIMITED].host
    assert (host.saturating, host.uncounted) == (None, str(error))
    assert stage.told[-1] == "net/static/x86 on avx2"


def test_the_native_case_is_that_of_the_same_artifact(monkeypatch):
    """And of the same batch where outputs hang on it; whatever its threads are."""
    dynamic = [f"net/dynamic/x86/{rest}" for rest in ("t1/b4", "t1/b1", "t2/b1/avx2")]
    stage = Stage(monkeypatch, *dynamic, "net/static/x86/t1/b4", "net/static/x86/t1/b1/avx2")
    cases = {each.case.id: each.case for each in stage.planned}
    native = saturation_stage._find_native(cases[dynamic[2]], cases, stage.evaluated)
    assert native is stage.evaluated[dynamic[1]]
    native = saturation_stage._find_native(cases["net/static/x86/t1/b1/avx2"], cases, stage.evaluated)
    assert native is stage.evaluated["net/static/x86/t1/b4"]
    assert saturation_stage._find_native(cases[dynamic[2]], {dynamic[0]: cases[dynamic[0]]}, stage.evaluated) is None
    assert saturation_stage._with_facts(None, {"uncounted": "why"}) is None
