"""The photos that a package carries: where crops of them lie."""

from __future__ import annotations

from qbench.datasets.photos import _places


def test_crops_lie_in_the_middle_and_in_each_corner() -> None:
    """Of what is left over below and to the right: none is moved by a pixel."""
    assert list(_places(10, 21)) == [
        ("centre", 5, 10), ("top-left", 0, 0), ("top-right", 0, 21), ("bottom-left", 10, 0), ("bottom-right", 10, 21),
    ]  # fmt: skip
