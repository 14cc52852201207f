"""The metric that data and networks decide on, and what names the inputs of a run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qbench import user_code
from qbench.errors import CaseError
from qbench.metrics.spec import MetricSpec
from qbench.process.child_process import Limits
from qbench.running import prepare_stage
from qbench.running.prepare_stage import Prepared, prepare
from qbench.suite import parse
from qbench.suite.accuracy import AccuracyGate

PLAIN = "suite: s\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n"


def choose(accuracy: str, *, labelled: bool) -> Any:
    """The choice for a suite with that rule."""
    gate: AccuracyGate = parse(f"{PLAIN}gate: {{accuracy: {accuracy}}}\n" if accuracy else PLAIN).gate.accuracy
    return prepare_stage._choose_metric(gate, Path(), labelled=labelled)


@pytest.mark.parametrize(
    ("accuracy", "labelled", "metric", "otherwise", "guessed"),
    [
        ("", True, "top1", None, False),
        ("", False, "top1_agreement", "sqnr", True),
        ("{margin: 2.0}", False, "top1_agreement", None, True),
        ("{metric: cosine, margin: 0.1}", False, "cosine", None, False),
        ("{metric: f1}", True, "f1", None, False),
    ],
)
def test_the_metric_is_the_suites_or_what_the_data_allows(
    accuracy: str, labelled: bool, metric: str, otherwise: str | None, guessed: bool
) -> None:
    """Without labels and a word of accuracy another takes its place where outputs are no scores of classes; a margin is
    in percentage points, so it keeps its metric."""
    choice = choose(accuracy, labelled=labelled)
    assert (choice.metric.name, choice.otherwise and choice.otherwise.name, choice.guessed) == (
        metric,
        otherwise,
        guessed,
    )


def test_a_metric_that_was_guessed_is_said() -> None:
    """With what it is, or why it is another; of one that the suite names, or labels give, nothing is said."""
    assert prepare_stage._settle_metric(choose("", labelled=True), ["x"]) == (choose("", labelled=True).metric, None)
    plain, said = prepare_stage._settle_metric(choose("", labelled=False), [])
    assert plain.name == "top1_agreement"
    assert said is not None
    assert "chooses the class that fp32 chooses" in said
    other, said = prepare_stage._settle_metric(choose("", labelled=False), ["they are images", "more"])
    assert other.name == "sqnr"
    assert said is not None
    assert "no scores of classes (they are images): variants are judged by sqnr" in said
    kept, said = prepare_stage._settle_metric(choose("{margin: 2.0}", labelled=False), ["they are images"])
    assert kept.name == "top1_agreement"
    assert said is not None


def subset(digest: str) -> Any:
    """A further calibration subset."""
    return SimpleNamespace(digest=digest)


def prepared(metric: MetricSpec, *, train: bool | None = False, **models: Any) -> Prepared:
    """What a run starts from, by its digests."""
    data: Any = SimpleNamespace(
        calibration_digest="c", other_subsets=(subset("c1"), subset("c2")), training_digest="t", evaluation_digest="e",
        request=None if train is None else SimpleNamespace(train=train),
    )  # fmt: skip
    return Prepared(data=data, models=models, metric=metric)


def test_the_inputs_of_a_run_are_named_by_what_they_hold(tmp_path: Path) -> None:
    """Calibration, training where something trains, evaluation; each network with its code, its int8 files, and the
    user's own score."""
    (tmp_path / "score.py").write_text("def score(a, b): return 1.0\n")
    own: Any = SimpleNamespace(function=SimpleNamespace(file=tmp_path / "score.py"))
    function = SimpleNamespace(own_postprocess=SimpleNamespace(digest=lambda: "p"))
    model = SimpleNamespace(
        weights_digest="w", code_digest="k", int8_digests={"mine": "i"}, reference=SimpleNamespace(own_postprocess=None)
    )
    decoded = SimpleNamespace(**vars(model) | {"reference": function})
    top1 = MetricSpec(name="top1")
    assert prepare_stage._list_digests(prepared(top1, m=model)) == {
        "data": "c+c1+c2+e",
        "model m": "w+k",
        "int8 mine of m": "i",
    }
    assert prepare_stage._list_digests(prepared(top1, m=decoded))["the postprocess of m"] == "p"
    assert prepare_stage._list_digests(prepared(top1, train=True)) == {"data": "c+c1+c2+t+e"}
    assert prepare_stage._list_digests(prepared(top1, train=None)) == {"data": "c+c1+c2+e"}
    digest = user_code.digest(tmp_path / "score.py")
    assert prepare_stage._list_digests(prepared(own))["the score in score.py"] == digest


class Context(SimpleNamespace):
    """A run's context whose children are functions of this process."""

    def __init__(self, planned: Any) -> None:
        self.heard: list[Any] = []
        keep = self.heard.append
        super().__init__(
            tracker=SimpleNamespace(
                planned=planned,
                open_cases=lambda: planned,
                break_cases=lambda cases, stage, error: keep(([case.id for case in cases], stage, str(error))),
            ),
            progress=SimpleNamespace(stage=lambda *told: keep(told), advance=keep, note=keep),
            directory=SimpleNamespace(
                write_quick=lambda **told: keep(told), write_metric=lambda metric: keep(metric.name),
                require_same_inputs=lambda digests: keep(sorted(digests)), write_examples=lambda data: keep("examples"),
            ),
            limits=SimpleNamespace(seconds=1.0), cache=Path("cache"), jobs_here=1, warn=keep,
            memory=SimpleNamespace(call=lambda function, act: act()), report_under=lambda name: name,
            run_parallel=lambda name, items, work, jobs: [work(item) for item in items],
        )  # fmt: skip


def planned_case(model: str, mode: str = "static", trains: bool = False) -> Any:
    """A case of a network."""
    reference = SimpleNamespace(name=model)
    variant = SimpleNamespace(model=reference, mode=mode, recipe=SimpleNamespace(trains=trains))
    return SimpleNamespace(case=SimpleNamespace(id=f"{model}/{mode}", variant=variant))


def run_prepare(monkeypatch: pytest.MonkeyPatch, planned: Any, *, data: Any, models: Any, quick: bool = False) -> Any:
    """What came of it, what was heard, and the requests for data."""
    context, asked = Context(planned), []

    def call(function: Any, first: Any, *rest: Any, limits: Any, progress: Any) -> Any:
        if function is prepare_stage.prepare_data:
            asked.append(first)
            answer = data
        else:
            answer = models[first.name]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(prepare_stage, "call", call)
    monkeypatch.setattr(prepare_stage, "is_trained", lambda reference: False)
    monkeypatch.setattr(prepare_stage, "request_of", lambda data, base, train: train)
    return prepare(context, parse(PLAIN, quick=quick)), context.heard, asked  # type: ignore[arg-type]


def some_data(*, labels: Any = "labels", notes: tuple[str, ...] = ()) -> Any:
    """Examples."""
    return SimpleNamespace(
        notes=notes, evaluation_count=500, evaluation_of=900, evaluation_labels=lambda: labels, calibration_digest="c",
        other_subsets=(), evaluation_digest="e", request=None,
    )  # fmt: skip


def some_model(*notes: str, misfit: str | None = None) -> Any:
    """A network that was tried."""
    reference = SimpleNamespace(own_postprocess=None)
    facts = {"weights_digest": "w", "code_digest": "k", "int8_digests": {}, "reference": reference}
    return SimpleNamespace(notes=notes, misfit=misfit, **facts)


def test_a_network_that_fails_breaks_its_own_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each network is tried once, however many cases it has; what is noted of data and networks warns."""
    cases = [planned_case("a"), planned_case("a", "fp32"), planned_case("b")]
    models = {"a": CaseError("no such file"), "b": some_model("it was traced")}
    result, heard, asked = run_prepare(monkeypatch, cases, data=some_data(notes=("10 are damaged",)), models=models)
    assert list(result.models) == ["b"]
    assert result.metric.name == "top1"
    assert asked == [False]
    assert heard == [
        ("prepare", 3),
        "10 are damaged",
        "data",
        (["a/static", "a/fp32"], "model", "no such file"),
        "a",
        "it was traced",
        "b",
        ["data", "model b"],
        "examples",
    ]


def test_data_that_cannot_be_read_breaks_every_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """No network is tried."""
    cases = [planned_case("a"), planned_case("b")]
    result, heard, _ = run_prepare(monkeypatch, cases, data=CaseError("no such folder"), models={})
    assert result is None
    assert heard == [("prepare", 3), (["a/static", "b/static"], "data", "no such folder")]


def test_a_run_without_open_cases_prepares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is recorded already."""
    assert run_prepare(monkeypatch, [], data=some_data(), models={}) == (None, [], [])


def test_what_trains_needs_examples_to_train_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """QAT, and the twin of one."""
    for case in (planned_case("a", "qat"), planned_case("a", "fp32", trains=True)):
        _, _, asked = run_prepare(monkeypatch, [case], data=some_data(), models={"a": some_model()})
        assert asked == [True]


def test_a_metric_that_networks_decide_on_is_kept_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """And said; a quick look says of how many examples it scores how many."""
    result, heard, _ = run_prepare(
        monkeypatch, [planned_case("a")], data=some_data(labels=None), quick=True,
        models={"a": some_model(misfit="they are images")},
    )  # fmt: skip
    assert result.metric.name == "sqnr"
    assert {"examples": 500, "of": 900} in heard
    assert "sqnr" in heard
    assert any("no scores of classes" in str(told) for told in heard)


@pytest.mark.parametrize(("trained", "seconds"), [(False, 1.0), (True, 6 * 3600.0)])
def test_a_network_that_is_trained_has_hours(monkeypatch: pytest.MonkeyPatch, trained: bool, seconds: float) -> None:
    """Any other what the suite gives a stage."""
    context, limits = Context([planned_case("a")]), list[float]()
    context.limits = Limits(seconds=1.0)
    monkeypatch.setattr(prepare_stage, "TRAINING_SECONDS", 6 * 3600.0)
    monkeypatch.setattr(prepare_stage, "is_trained", lambda reference: trained)

    def call(function: Any, *given: Any, limits: Limits, progress: Any, told: list[float] = limits) -> Any:
        told.append(limits.seconds)
        return some_model()

    monkeypatch.setattr(prepare_stage, "call", call)
    choice: Any = SimpleNamespace(metric="metric", otherwise=None)
    prepare_stage._prepare_model(context, some_data(), choice, SimpleNamespace(name="a"))  # type: ignore[arg-type]
    assert limits == [seconds]
