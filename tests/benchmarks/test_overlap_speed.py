"""How long it takes to keep evaluation and training apart: 60,000 against 10,000 examples of 3 KB in about 0.5 s.

Run with ``pytest tests/benchmarks --benchmark-enable -n 0``; without that option it runs once, untimed.
"""

from __future__ import annotations

import numpy as np
from pytest_benchmark.fixture import BenchmarkFixture

from qbench.datasets.base import Examples
from qbench.datasets.overlap import find_shared


def test_comparing_a_training_split_with_its_test_split(benchmark: BenchmarkFixture) -> None:
    """Every example by content, as large as CIFAR-10 with a fifth more; the one that is in both is found."""
    random = np.random.default_rng(0)
    train = random.integers(0, 256, (60_000, 3, 32, 32), dtype=np.uint8)
    test = random.integers(0, 256, (10_000, 3, 32, 32), dtype=np.uint8)
    test[9_999] = train[59_999]
    sides = [Examples(inputs=(array,), labels=None) for array in (train, test)]
    assert benchmark.pedantic(find_shared, args=([sides[0]], sides[1]), rounds=3) == {9_999: (0, 59_999)}
