"""Rules of qbench/bisect/open_suite.py: the case that is named, or what there is in its place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qbench import suite as suites
from qbench.bisect import open_suite as opening
from qbench.bisect.open_suite import OpenSuite, find_case, open_suite
from qbench.errors import UsageError
from qbench.machine import fingerprint
from qbench.measure.worker import INPUTS
from qbench.progress.live import Silent

CORES = len(fingerprint.allowed_cores())
SUITE = suites.parse(
    "suite: demo\nmodels: [digits-cnn]\ndata: {dataset: digits}\n"
    f"matrix: {{modes: [fp32, static], backends: [fake], threads: [1, {CORES + 1}]}}\n"
)


def test_a_planned_case_is_found_with_its_reference() -> None:
    """By its id."""
    planned = find_case(SUITE, "digits-cnn/static/fake/t1/b1")
    assert planned.reference is not None
    assert planned.reference.id == "digits-cnn/fp32/fake/t1/b1"


@pytest.mark.parametrize(
    ("case", "told"),
    [
        ("digits-cnn/static/fake/t1/b2", r"demo has no such case; did you mean digits-cnn/static/fake/t1/b1\?"),
        ("nonsense", "demo has no such case; there are digits-cnn/fp32/fake/t1/b1"),
        (f"digits-cnn/static/fake/t{CORES + 1}/b1", "it is skipped here: .*core"),
    ],
)
def test_a_case_that_is_none_is_refused(case: str, told: str) -> None:
    """With the nearest, with those that there are, or with the reason why it is skipped."""
    with pytest.raises(UsageError, match=told):
        find_case(SUITE, case)


def test_five_cases_are_named_where_none_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """None at all where there is none."""
    many = suites.parse(
        "suite: demo\nmodels: [digits-cnn]\ndata: {dataset: digits}\n"
        "matrix: {modes: [fp32, static], backends: [fake], batch_sizes: [1, 2, 4, 8]}\n"
    )
    with pytest.raises(UsageError, match="there are .* and 3 more .`qbench plan` lists all.$") as raised:
        find_case(many, "nonsense")
    assert str(raised.value).count("digits-cnn/") == 5
    monkeypatch.setattr(opening, "make_plan", lambda suite, cores: SimpleNamespace(cases=(), skipped=()))
    with pytest.raises(UsageError, match=r"^--case nonsense: demo has no such case \(`qbench plan` lists all\)$"):
        find_case(many, "nonsense")


@pytest.mark.parametrize(
    ("mode", "trains", "train"), [("static", False, False), ("static", True, True), ("qat", False, True)]
)
def test_training_data_is_prepared_where_something_is_trained(
    mode: str, trains: bool, train: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the case or by its recipe; preparing is a stage of two steps: the data, the network."""
    asked: list[object] = []
    monkeypatch.setattr(opening, "request_of", lambda data, base, train: asked.append(train))
    monkeypatch.setattr(opening.store, "open_cache", lambda: Path("/cache"))
    monkeypatch.setattr(opening, "call", _stop)
    progress = Silent()
    progress.stage = lambda *stage: asked.append(stage)  # type: ignore[method-assign]
    variant = SimpleNamespace(mode=mode, recipe=SimpleNamespace(trains=trains), model="net")
    planned: Any = SimpleNamespace(case=SimpleNamespace(variant=variant))
    with pytest.raises(UsageError, match="far enough"):
        open_suite(SUITE, planned, progress)
    assert asked == [train, ("prepare", 2)]


def _stop(*given: object, **options: object) -> None:
    raise UsageError("far enough")


@pytest.mark.parametrize(("variables", "own", "fresh"), [({}, True, False), ({"A": "b"}, False, True)])
def test_answers_are_those_of_the_case(
    variables: dict[str, str], own: bool, fresh: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By processes that import the libraries of the candidate; under other libraries than those that built it an
    artifact need not give what it gave then."""
    asked: list[Any] = []
    monkeypatch.setattr(opening, "predict", lambda *given, **options: asked.append((given, options)))
    opened = make_opened()
    opened = replace(opened, progress=Silent())
    artifact: Any = "artifact"
    if variables:
        opened.predict(artifact, Path("a.npz"), variables, own=own)
    else:
        opened.predict(artifact, Path("a.npz"))
    ((given, options),) = asked
    assert given == ("artifact", opened.data, 2, Path("a.npz"))
    assert (options["same_answers"], options["environment"], options["host"]) == (own, variables, "native")
    assert options["start_worker"].keywords == {"fresh": fresh}


def make_opened(*, timed: bool | None = None, examples: int = 1000, reference: Any = None) -> OpenSuite:
    """A case of one thread and batches of 2 on the second of two cores, whose network has a postprocess, or none."""
    case = SimpleNamespace(host="native", threads=1, batch_size=2, variant="variant")
    return OpenSuite(
        suite=SUITE,
        planned=SimpleNamespace(case=case, reference=reference),  # type: ignore[arg-type]
        variants=SimpleNamespace(case=lambda key: f"case of {key}"),  # type: ignore[arg-type]
        data=SimpleNamespace(evaluation_count=examples, evaluation=lambda start, stop: (start, stop)),  # type: ignore[arg-type]
        model=SimpleNamespace(postprocess=None if timed is None else SimpleNamespace(timed=timed)),  # type: ignore[arg-type]
        cache=Path("/cache"),
        cores=(0, 3),
        limits=None,  # type: ignore[arg-type]
        progress=None,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(("examples", "stop"), [(1000, 2 * INPUTS), (5, 5)])
def test_an_artifact_is_timed_as_the_case_is(examples: int, stop: int) -> None:
    """On the last cores, with real examples for some calls, under the variables and versions of the candidate."""
    opened = make_opened(examples=examples)
    spec = opened.specify_worker("1.2", Path("m.onnx"), "onnxruntime", "static", {"A": "b"}, {"onnxruntime": "1.2"})
    assert (spec.case, spec.file, spec.threads, spec.batch_size, spec.cores) == ("1.2", Path("m.onnx"), 1, 2, (3,))
    assert spec.inputs == (0, stop)
    assert (spec.environment, spec.versions) == ({"A": "b"}, {"onnxruntime": "1.2"})
    plain = opened.specify_worker("1.2", Path("m.onnx"), "onnxruntime", "static")
    assert (plain.environment, plain.versions) == ({}, {})


@pytest.mark.parametrize("timed", [None, False, True])
def test_a_postprocess_is_timed_with_it_where_the_suite_says_so(timed: bool | None) -> None:
    """As a run times it."""
    opened = make_opened(timed=timed)
    spec = opened.specify_worker("a", Path("m.onnx"), "onnxruntime", "static")
    assert (spec.postprocess is opened.model.postprocess and spec.postprocess is not None) == bool(timed)
    assert (spec.postprocess is None) == (not timed)


def test_the_fp32_of_a_case_is_what_it_is_compared_with() -> None:
    """Itself where it is one."""
    opened = make_opened()
    assert opened.fp32 is opened.case
    assert make_opened(reference="its fp32").fp32 == "case of its fp32"
