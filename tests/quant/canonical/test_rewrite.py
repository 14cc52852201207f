"""What canonicalization did, in words."""

from __future__ import annotations

import pytest

from qbench.quant.canonical.rewrite import Rewrite, in_words


@pytest.mark.parametrize(("names", "told"), [("a", "a"), ("abc", "a, b, c"), ("abcd", "a, b, c, …")])
def test_three_layers_of_a_kind_are_named(names: str, told: str) -> None:
    """And how many there are, in the order of the first of each kind."""
    rewrites = [Rewrite(what="folded", name=name) for name in names]
    rewrites.insert(1, Rewrite(what="replaced", name="z"))
    assert in_words(rewrites) == (f"folded ({len(names)}): {told}", "replaced (1): z")
