"""What a score rests on, example by example, so that two runs are compared on the same examples; pure.

An example of one run is found in the other by its content (the values of its inputs and its label), whatever its
place or name; and where its content changed, say since images are cut to another size, by its id and label. Equal
contents are told apart by counting them.

Where a metric has another unit, its values are of units: a query, which is the same where its text and all documents
that it is held against are, and by its name where those are others; a pair of texts.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from qbench.metrics.base import Units

    Array = NDArray[Any]

# Two of 50,000 examples share a key of 48 bits once in 200,000 sets.
KEY_BYTES = 6


@dataclass(frozen=True, kw_only=True, eq=False)
class ExampleScores:
    """One row an example. ``values``: the metric of each (n), else what a metric that no example has alone is made
    from (``facts``; n x …). ``contents`` and ``ids``: keys (uint64, n) of what each example is and of its name; null
    where the contents are not known, and where ids are mere positions beside known contents."""

    values: Array
    facts: bool = False
    contents: Array | None = None
    ids: Array | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Paired:
    """The same examples in two runs: ``new`` and ``old`` have one row each, in one order. ``of_new`` and ``of_old``:
    how many examples each run has; ``by_id``: how many of the pairs have the same id, but another content."""

    new: Array
    old: Array
    facts: bool
    of_new: int
    of_old: int
    by_id: int = 0

    @property
    def n(self) -> int:
        """How many pairs there are."""
        return len(self.new)

    @property
    def whole(self) -> bool:
        """Whether both runs have these very examples and no others."""
        return self.n == self.of_new == self.of_old and not self.by_id


def example_scores(
    values: Array, predictions: Mapping[str, Array], *, facts: bool = False, units: Units | None = None
) -> ExampleScores:
    """``values`` with the keys that stored predictions (``contents``, ``ids``, ``labels``) give; ``units``: what each
    value is of (None: of one example each, in their order)."""
    n = len(values) if units is None else len(predictions["outputs"])
    labels = _rows(predictions.get("labels"), n)
    contents = predictions.get("contents")
    rows = None if contents is None or len(contents) != n else list(_joined(contents, labels))
    named = [str(name) for name in predictions.get("ids", ())]
    if len(named) != n:
        named = [str(place) for place in range(n)]
    mere_positions = named == [str(place) for place in range(n)]
    ids = None if rows is not None and mere_positions else [name.encode() for name in _with(named, labels)]
    if units is not None:
        rows = None if rows is None else _join_members(rows, units.members, _digest(rows, units.among))
        ids = None if ids is None else _join_members(ids, units.members, b"")
    return ExampleScores(
        values=values,
        facts=facts,
        contents=None if rows is None else _keys(rows),
        ids=None if ids is None else _keys(ids),
    )


def _join_members(rows: Sequence[bytes], members: Iterable[Array], context: bytes) -> list[bytes]:
    """A row for each unit, whatever the order of its members."""
    return [_digest(rows, places) + context for places in members]


def _digest(rows: Sequence[bytes], places: Iterable[int]) -> bytes:
    digests = sorted(hashlib.sha256(rows[place]).digest() for place in places)
    return hashlib.sha256(b"".join(digests)).digest()


def pair(new: ExampleScores, old: ExampleScores) -> Paired:
    """The examples that both have; none where they share none or their values are of two kinds. Numbers are rounded to
    float32, as which a baseline keeps them."""
    import numpy as np

    from qbench.stats.jackknife import align_facts

    matches = [_shared(new.contents, old.contents, [], [])]
    matches.append(_shared(new.ids, old.ids, *matches[0]))
    here, there = (np.concatenate([np.asarray(side[i], dtype=np.intp) for side in matches]) for i in (0, 1))
    order = np.argsort(here, kind="stable")
    here, there = here[order], there[order]
    values, old_values = align_facts(new.values, old.values) if new.facts and old.facts else (new.values, old.values)
    alike = new.facts == old.facts and values.shape[1:] == old_values.shape[1:]
    by_id = len(matches[1][0]) if new.contents is not None and old.contents is not None else 0
    return Paired(
        new=_rounded(values[here if alike else []]),
        old=_rounded(old_values[there if alike else []]),
        facts=new.facts,
        of_new=len(new.values),
        of_old=len(old.values),
        by_id=by_id,
    )


def pair_scores(new: ExampleScores | None, old: ExampleScores | None, *, has_score: bool) -> Paired | None:
    """The examples that two runs share; None where either keeps none, or keeps facts of which no score can be made
    (``has_score``: there is a function for it), or both keep values of two kinds."""
    if new is None or old is None or new.facts != old.facts or (new.facts and not has_score):
        return None
    return pair(new, old)


def _rounded(values: Array) -> Array:
    import numpy as np

    whole = values.dtype.kind in "biu"
    rounded: Array = values.astype(np.int64) if whole else values.astype(np.float32).astype(np.float64)
    return rounded


def _shared(
    new: Array | None, old: Array | None, taken_new: Iterable[int], taken_old: Iterable[int]
) -> tuple[list[int], list[int]]:
    """Places of equal keys that are not taken yet."""
    if new is None or old is None:
        return [], []
    gone_new, gone_old = set(taken_new), set(taken_old)
    where = {key: place for place, key in enumerate(old.tolist()) if place not in gone_old}
    pairs = [(place, where[key]) for place, key in enumerate(new.tolist()) if place not in gone_new and key in where]
    return [here for here, _ in pairs], [there for _, there in pairs]


def _rows(labels: Array | None, n: int) -> list[bytes]:
    """The label of each example as bytes, the same for whole numbers of any width; empty without labels."""
    import numpy as np

    if labels is None or len(labels) != n:
        return [b""] * n
    kind = np.int64 if labels.dtype.kind in "biu" else np.float64 if labels.dtype.kind == "f" else labels.dtype
    return [row.tobytes() for row in np.ascontiguousarray(labels.reshape(n, -1), dtype=kind)]


def _with(names: Iterable[str], labels: Iterable[bytes]) -> Iterable[str]:
    return (f"{name}\0{label.hex()}" for name, label in zip(names, labels, strict=True))


def _joined(contents: Array, labels: Iterable[bytes]) -> Iterable[bytes]:
    return (row.tobytes() + label for row, label in zip(contents, labels, strict=True))


def _keys(rows: Iterable[bytes]) -> Array:
    """A key for each row, equal rows numbered so that each has its own."""
    import numpy as np

    met: Counter[bytes] = Counter()
    keys = []
    for row in rows:
        digest = hashlib.sha256(met[row].to_bytes(8, "little") + row).digest()
        met[row] += 1
        keys.append(int.from_bytes(digest[:KEY_BYTES], "little"))
    return np.asarray(keys, dtype=np.uint64)
