"""Rules of qbench/backends/fake.py: what it pretends, and that nobody takes it for real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qbench.backends import fake
from qbench.backends.base import BuildJob
from qbench.backends.fake import BACKEND, CLASSES, FakeRunner, busy
from qbench.models.base import Network
from qbench.modes import HALVES, MODES, WEIGHT_ONLY
from qbench.quant.recipe import Recipe

ROWS = np.random.default_rng(0).standard_normal((6, 2, 3)).astype(np.float64)


@pytest.mark.parametrize("mode", MODES)
def test_each_mode_has_a_file_of_its_own_size_and_time(mode: str, tmp_path: Path) -> None:
    """Faster and smaller than fp32, with one layer in its precision; it says that it is made up."""
    job = BuildJob(network=Network(kind="module", module=None), mode=mode, recipe=Recipe(), calibration=(ROWS,),
                   training=None, folder=tmp_path)  # fmt: skip
    built = BACKEND.build(job)
    (layer,) = built.layers
    assert built.note == "made up, for tests and demos"
    assert BACKEND.made_up
    precision = "fp32" if mode in ("fp32", WEIGHT_ONLY) else mode if mode in HALVES else "int8"
    assert (layer.precision, layer.weight_bits) == (precision, 4 if mode == WEIGHT_ONLY else None)
    size = (tmp_path / built.file).stat().st_size
    assert size == 4000 if mode == "fp32" else size < 4000
    spent: list[float] = []
    runner = BACKEND.load(tmp_path / built.file, threads=3)
    assert runner.observed() == {"threads": 3, "interop_threads": 1}
    runner._spend = spent.append
    runner(runner.prepare((ROWS,)))
    assert spent == [1e-3] if mode == "fp32" else spent < [1e-3]


def scores(mode: str, rows: Any = ROWS) -> Any:
    """What a pretended model answers."""
    runner = FakeRunner({"seconds": 0, "mode": mode}, threads=1, spend=lambda seconds: None)
    return runner.outputs(runner(runner.prepare((rows,))))


def test_answers_are_a_projection_that_int8_rounds() -> None:
    """The same each time and for each batch; of another size of example another one."""
    exact = scores("fp32")
    assert (exact.shape, exact.dtype) == ((6, CLASSES), np.float32)
    assert np.array_equal(scores("fp32"), exact)
    np.testing.assert_allclose(scores("fp32", ROWS[2:3]), exact[2:3], rtol=1e-5)
    np.testing.assert_allclose(scores("fp32", 2 * ROWS), 2 * exact, rtol=1e-5)
    steps = scores("static") / 0.05
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-3)
    assert 0 < np.abs(scores("static") - exact).max() <= 0.026
    assert np.array_equal(scores("bf16"), exact)
    assert not np.array_equal(scores("fp32", ROWS[:, :1]), exact)


def test_sizes_and_answers_are_the_same_everywhere() -> None:
    """Demos show them: so many bytes by mode, ten classes, a projection that no machine draws otherwise."""
    assert CLASSES == 10
    sizes = (4000, 2000, 2000, 600, 1200, 1100, 1100)
    assert dict(zip(("fp32", "bf16", "fp16", "weight_only", "dynamic", "static", "qat"), sizes, strict=True)) == (
        fake.SIZE_BYTES
    )
    told = scores("fp32", np.ones((1, 6)))[0, :3]
    np.testing.assert_allclose(told, [1.457073, -4.717646, 2.337598], atol=1e-4)


def test_time_is_spent_on_the_core() -> None:
    """By default; nothing is spent for nothing."""
    import time

    busy(0)
    before = time.thread_time()
    busy(0.002)
    assert time.thread_time() - before >= 0.002
