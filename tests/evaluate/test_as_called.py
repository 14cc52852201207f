"""Rules of qbench/evaluate/as_called.py: an fp32 case is the network that its author calls."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qbench.cache import manifest, store
from qbench.errors import EvaluateError
from qbench.evaluate import as_called
from qbench.evaluate.as_called import OwnAnswers, compare_predictions, spread_positions
from qbench.process.child_process import Limits
from qbench.quant.artifacts import tracing
from qbench.record.schema import AsCalled


def answers(outputs: np.ndarray, *, decisions: tuple[str, ...] = (), of: int | None = None) -> OwnAnswers:
    """What a network gave, for every second example where ``of`` is twice their number."""
    step = 1 if of is None else of // len(outputs)
    return OwnAnswers(positions=np.arange(0, step * len(outputs), step), outputs=outputs, decisions=decisions)


def predictions(folder: Path, outputs: np.ndarray) -> Path:
    """A file of predictions."""
    file = folder / "fp32.npz"
    np.savez(file, outputs=outputs, ids=np.asarray([f"test[{number}]" for number in range(len(outputs))]))
    return file


OUTPUTS = np.random.default_rng(0).normal(size=(400, 10)).astype(np.float32)


def test_rounding_is_no_difference(tmp_path: Path) -> None:
    """Two runtimes add up in another order; the largest distance is kept beside the number of examples."""
    file = predictions(tmp_path, OUTPUTS * np.float32(1 + 1e-5))
    compared = compare_predictions(answers(OUTPUTS), file, 400)
    assert (compared.compared, compared.of, compared.differing) == (400, 400, 0)
    assert compared.worst == pytest.approx(1e-5, rel=0.1)


def test_what_is_not_kept_is_not_compared(tmp_path: Path) -> None:
    """Beside answers, large outputs are those of the first examples alone."""
    file = tmp_path / "fp32.npz"
    ids = np.asarray([f"test[{number}]" for number in range(400)])
    np.savez(file, outputs=OUTPUTS[:30], answers=np.zeros((400, 5, 6)), ids=ids)
    compared = compare_predictions(answers(OUTPUTS[::2], of=400), file, 400)
    assert (compared.compared, compared.of, compared.differing) == (15, 400, 0)


def test_another_network_is_refused_with_the_example_and_the_line(tmp_path: Path) -> None:
    """One example that a frozen decision changes is enough: the line is there to be mended."""
    changed = OUTPUTS.copy()
    changed[6] += 1
    file = predictions(tmp_path, changed)
    known = answers(OUTPUTS[::2], decisions=("net.py:7 (if x.mean() > 0:)",), of=400)
    with pytest.raises(
        EvaluateError, match=r"net\.py:7 \(if x\.mean\(\) > 0:\).*1 of 200 .*\(example \"test\[6\]\" first\)"
    ):
        compare_predictions(known, file, 400)


@pytest.mark.parametrize(("count", "refused"), [(4, False), (5, True)])
def test_without_such_a_line_a_few_examples_may_lie_on_a_threshold(count: int, refused: bool, tmp_path: Path) -> None:
    """Up to 1 in 100 differ by a value that rounding moves: told, not refused; more are another network."""
    changed = OUTPUTS.copy()
    changed[:count] += 1
    file = predictions(tmp_path, changed)
    if refused:
        with pytest.raises(EvaluateError, match="not the network as its author calls it; 5 of 400"):
            compare_predictions(answers(OUTPUTS), file, 400)
    else:
        assert compare_predictions(answers(OUTPUTS), file, 400).differing == 4


def test_what_is_not_a_number_and_other_shapes_differ(tmp_path: Path) -> None:
    """NaN equals nothing, and rows of another width cannot be compared."""
    changed = OUTPUTS.copy()
    changed[:] = np.nan
    with pytest.raises(EvaluateError, match="400 of 400"):
        compare_predictions(answers(OUTPUTS), predictions(tmp_path, changed), 400)
    with pytest.raises(EvaluateError, match=r"the shape \(9,\), the network's own \(10,\)"):
        compare_predictions(answers(OUTPUTS), predictions(tmp_path, OUTPUTS[:, :9]), 400)


@pytest.mark.parametrize(("seconds", "asked"), [(0.0, 8), (2.5, 8), (2.6, 8), (5.0, 5), (30.0, 1)])
def test_no_further_example_is_asked_after_twenty_seconds(
    monkeypatch: pytest.MonkeyPatch, seconds: float, asked: int
) -> None:
    """Of eight as many as are begun within them, at least one, each alone; how far it is goes by the time or by the
    examples, whichever is farther."""
    now, shares = [0.0], list[float]()

    def network(inputs: Any) -> Any:
        now[0] += seconds
        assert len(inputs) == 1
        return inputs * 2

    monkeypatch.setattr(as_called, "load_network", lambda *_: SimpleNamespace(module=network))
    monkeypatch.setattr(as_called, "_find_decisions", lambda *_: ())
    monkeypatch.setattr(as_called.time, "monotonic", lambda: now[0])
    examples = np.arange(8, dtype=np.float32)[:, None]
    data = SimpleNamespace(evaluation_count=8, evaluation=lambda start, stop: (examples[start:stop],))
    model = SimpleNamespace(reference=None, weights=None)
    own = as_called._ask_here(cast(Any, model), cast(Any, data), progress=lambda _, share: shares.append(share))
    assert own.positions.tolist() == [0, 4, 2, 6, 1, 5, 3, 7][:asked]
    assert own.outputs[:, 0].tolist() == [2.0 * position for position in own.positions]
    expected = [max(seconds * number / 20, number / 8) for number in range(1, asked + 1)]
    assert shares == pytest.approx([share for share in expected if share <= 1])


class Cut(torch.nn.Module):
    """Decides on a shape, which a trace notes as if it were a value, and may decide on a value."""

    def __init__(self, *, on_value: bool) -> None:
        super().__init__()
        self.on_value = on_value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x[:, :2] if x.shape[1] > 2 else x
        return -y if self.on_value and x.sum() < 0 else y


@pytest.mark.parametrize("on_value", [False, True])
def test_a_line_is_named_only_where_what_a_trace_took_changes_an_answer(on_value: bool) -> None:
    """The calibration example has a positive sum, the evaluation examples have not: a decision on that is one too many
    frozen; one on their shape would be told of every fp32 case that a runtime gets wrong."""
    examples = -np.ones((3, 4), np.float32)
    data = SimpleNamespace(
        calibration_examples=lambda: (-examples,),
        preprocessing=lambda inputs: inputs,
        evaluation=lambda start, stop: (examples[start:stop],),
    )
    outputs = (1 if on_value else -1) * np.ones((3, 2), np.float32)
    network = Cut(on_value=on_value).eval()
    assert tracing.trace(network, (torch.ones(1, 4),)).decisions
    decisions = as_called._find_decisions(network, cast(Any, data), answers(outputs))
    assert bool(decisions) == on_value
    assert all("test_as_called.py" in line for line in decisions)


def test_where_no_line_is_to_blame_the_runtime_is() -> None:
    """The advice is another backend, and not to rewrite the network."""
    compared = AsCalled(compared=16, of=16, differing=16, worst=0.1)
    text = as_called._explain_other(compared, "test[2]", 0.551, 4.21, ())
    assert "16 of 16 evaluation examples differ" in text
    assert "the runtime computes an operator otherwise; use a backend whose fp32 is ok" in text
    assert "torch.where" not in text


@pytest.mark.parametrize(("count", "lines"), [(2, "a.py:0, a.py:1"), (4, "a.py:0, a.py:1 and 2 more")])
def test_the_first_two_lines_that_decide_on_values_are_named(count: int, lines: str) -> None:
    """And how many more there are."""
    compared = AsCalled(compared=16, of=16, differing=16, worst=0.1)
    decisions = tuple(f"a.py:{number}" for number in range(count))
    text = as_called._explain_other(compared, "test[2]", 0.551, 4.21, decisions)
    assert f"decides on values at {lines}, taken as it fell for one example" in text


def test_outputs_of_nothing_but_zeros_are_the_same(tmp_path: Path) -> None:
    """There is no largest one to take a share of."""
    zeros = np.zeros((4, 3), np.float32)
    compared = compare_predictions(answers(zeros), predictions(tmp_path, zeros), 4)
    assert (compared.differing, compared.worst) == (0, 0.0)
    data: Any = SimpleNamespace(evaluation=lambda start, stop: (np.ones((1, 2), np.float32),))
    assert as_called._answers_alike(lambda x: 0 * x, data, answers(np.zeros((2, 2), np.float32)))
    with pytest.raises(EvaluateError, match="4 of 4"):
        compare_predictions(answers(zeros), predictions(tmp_path, zeros + np.float32(1e-9)), 4)


def test_nothing_that_is_kept_is_unpickled(tmp_path: Path) -> None:
    """An object in a file of predictions would be code of whoever wrote it."""
    objects = np.array([[print]], dtype=object)
    np.savez(tmp_path / "objects.npz", outputs=objects, ids=np.asarray(["test[0]"]))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        compare_predictions(answers(OUTPUTS[:1]), tmp_path / "objects.npz", 1)


@given(st.integers(1, 3000))
def test_any_first_part_is_spread_over_all_examples(count: int) -> None:
    """Each position once; of the first k of n no gap is wider than four of their mean distances."""
    positions = list(spread_positions(count))
    assert sorted(positions) == list(range(count))
    part = sorted(positions[: max(1, count // 5)])
    gaps = np.diff([-1, *part, count])
    assert gaps.max() <= 4 * count / len(part) + 1


def refuse(_: torch.Tensor) -> torch.Tensor:
    """A trace whose frozen decision does not fit the example."""
    raise RuntimeError("shape '[1, 4]' is invalid for input of size 3")


@pytest.mark.parametrize(
    ("script", "alike"),
    [
        (lambda x: 100 * x, True),
        (lambda x: 100 * x + 0.9 * 100 * as_called.SAME, True),
        (lambda x: 100 * x + 1.1 * 100 * as_called.SAME * (x == x[0, -1]), False),
        (lambda x: 100 * x[:, :1], False),
        (refuse, False),
    ],
)
def test_a_trace_answers_alike_where_rounding_explains_how_it_differs(script: Any, alike: bool) -> None:
    """By a share of the largest of all outputs, in each place and for every example."""
    examples = np.asarray([[0.1, 0.2], [0.3, 1.0]], np.float32)
    data: Any = SimpleNamespace(evaluation=lambda start, stop: (examples[start:stop],))
    assert as_called._answers_alike(script, data, answers(100 * examples)) is alike


@pytest.mark.parametrize(("seconds", "alike"), [(20.0, True), (20.5, False)])
def test_a_trace_that_takes_too_long_is_not_taken_for_alike(
    monkeypatch: pytest.MonkeyPatch, seconds: float, alike: bool
) -> None:
    """Beyond the time that asking the network itself may take."""
    clock = iter([0.0, seconds])
    monkeypatch.setattr(as_called.time, "monotonic", lambda: next(clock))
    data: Any = SimpleNamespace(evaluation=lambda start, stop: (np.ones((1, 2), np.float32),))
    assert as_called._answers_alike(lambda x: x, data, answers(np.ones((1, 2), np.float32))) is alike


def test_a_network_is_asked_once_and_answers_from_the_cache_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its decisions; another network, or other examples, are asked anew."""
    asked: list[str] = []
    own = answers(OUTPUTS[:4], decisions=("net.py:3",), of=8)

    def call(function: Any, model: Any, *_: Any, **__: Any) -> OwnAnswers:
        assert function is as_called._ask_here
        asked.append(model.weights_digest)
        return own

    monkeypatch.setattr(as_called, "call", call)
    root = store.open_cache(tmp_path)

    def ask(weights: str, examples: str) -> OwnAnswers:
        model, data = (
            SimpleNamespace(weights_digest=weights, code_digest="c"),
            SimpleNamespace(evaluation_digest=examples),
        )
        limits = Limits(seconds=60)
        return as_called.ask_network(cast(Any, model), cast(Any, data), root, limits=limits, progress=lambda *_: None)

    for _ in range(2):
        replied = ask("w", "e")
        assert np.array_equal(replied.outputs, own.outputs)
        assert (replied.positions.tolist(), replied.decisions) == ([0, 2, 4, 6], ("net.py:3",))
    assert asked == ["w"]
    ask("v", "e")
    ask("w", "f")
    assert asked == ["w", "v", "w"]
    for file in tmp_path.glob("answers/*/answers.npz"):
        facts = manifest.read(file.parent).facts
        np.savez(file, positions=np.arange(4), outputs=np.array([print] * 4, dtype=object))
        manifest.write(file.parent, facts)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        ask("w", "e")


def test_memory_that_runs_out_is_no_answer() -> None:
    """Of a trace as of the network: it is not taken for another answer."""

    def run_out(_: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    data: Any = SimpleNamespace(evaluation=lambda start, stop: (np.ones((1, 2), np.float32),))
    with pytest.raises(RuntimeError, match="allocate"):
        as_called._answers_alike(run_out, data, answers(np.ones((1, 2), np.float32)))


@pytest.mark.parametrize(
    ("count", "positions"), [(1, [0]), (2, [0, 1]), (3, [0, 2, 1]), (5, [0, 4, 2, 1, 3]), (8, [0, 4, 2, 6, 1, 5, 3, 7])]
)
def test_positions_are_numbers_read_backwards(count: int, positions: list[int]) -> None:
    """In as few binary digits as there are."""
    assert list(spread_positions(count)) == positions
