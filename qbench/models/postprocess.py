"""What makes answers of a network's outputs, behind it: boxes of a detector's cells, text of scores for each letter.

``postprocess: {python: file.py:fn}`` beside a model is the user's code, a built-in has its own. ``fn(outputs)`` is
given the outputs of a batch, floats as float32: an array where there is one (or ``output`` names one), else a dict of
them by name, and returns an array whose first axis is the example, or a list with an array for each. Arrays of
different lengths are filled up with -1 behind their end, and texts become rows of code points. A metric that needs more
than can be kept has the outputs summarized, with their labels, in the same way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from qbench import registry, user_code
from qbench.cache import store
from qbench.errors import EvaluateError

if TYPE_CHECKING:  # a plan, which needs no numpy, has one of these
    from numpy.typing import NDArray

    from qbench.metrics.base import Metric

Array: TypeAlias = "NDArray[Any]"
MakeAnswers: TypeAlias = "Callable[[Sequence[Array], Array | None], Array]"
FILL = -1  # behind the end of what is shorter; of boxes, the class that is none


@dataclass(frozen=True, kw_only=True)
class Postprocess:
    """The function ``attribute`` of the user's ``file``, or without one that of the built-in network ``attribute``, or
    the summary of the metric of that name (``of_metric``).

    ``timed``: it belongs to a call, in a measurement too. ``names``: how it is given the outputs, first the one that
    comes first; empty where it is given that one alone.
    """

    attribute: str
    file: Path | None = None
    timed: bool = False
    of_metric: bool = False
    names: tuple[str, ...] = ()

    def digest(self) -> str:
        """What names it: the user's code as its text stands, with what it imports from beside it."""
        if self.of_metric:
            metric: Metric = registry.load("metric", self.attribute)
            return f"{metric.summary}, {store.source_digest(sys.modules[type(metric).__module__])}"
        if self.file is None:
            return f"{self.attribute}, built in"
        return f"{self.attribute} {user_code.digest(self.file, user_code.read_sources(self.file))} {self.names}"

    def load(self) -> MakeAnswers:
        """A function from all outputs of a batch, in their order, and its labels to its answers; it raises
        ``EvaluateError`` where the user's code does, or returns something else. Raises ``EvaluateError`` where there is
        no such function."""
        function, file = self._find_function(), self.file
        if self.of_metric:
            return function
        if file is None:
            return lambda outputs, _: _read_answers(function(outputs[0]), len(outputs[0]), self.attribute)
        place = f"{file}: {self.attribute}()"

        def make_answers(outputs: Sequence[Array], _: Array | None = None) -> Array:
            if len(outputs) < len(self.names):
                raise EvaluateError(f"{place} takes {len(self.names)} outputs, and there are {len(outputs)} of them")
            given = dict(zip(self.names, outputs, strict=False)) if self.names else outputs[0]
            count = len(outputs[0])
            return user_code.call(  # type: ignore[no-any-return]  # what the user's function gives is read in the call
                lambda: _read_answers(function(given), count, place), path=file, error=EvaluateError
            )

        return make_answers

    def read_alphabet(self) -> tuple[str, ...] | None:
        """The letters of which its texts are made, where the function says it (``function.alphabet``, as that of
        ``ctc.BestPath``); None elsewhere."""
        function, file = self._find_function(), self.file

        def read() -> tuple[str, ...] | None:
            alphabet = getattr(function, "alphabet", None)
            return None if alphabet is None else tuple(map(str, alphabet))

        alphabet: tuple[str, ...] | None = (
            read() if file is None else user_code.call(read, path=file, error=EvaluateError)
        )
        return alphabet

    def _find_function(self) -> Callable[..., Any]:
        if self.of_metric:
            metric: Metric = registry.load("metric", self.attribute)
            return metric.summarize
        if self.file is None:
            decode: Callable[..., Any] = registry.load("model", self.attribute).postprocess
            return decode
        function = user_code.attribute(self.file, self.attribute, error=EvaluateError)
        if not callable(function):
            raise EvaluateError(f"{self.file}: '{self.attribute}' is {type(function).__name__}, not a function")
        return function  # type: ignore[no-any-return]


def _read_answers(returned: Any, count: int, place: str) -> Array:
    """What a function returned for ``count`` examples, as one array of numbers."""
    import numpy as np

    several = isinstance(returned, list | tuple)
    if several and all(isinstance(part, str) for part in returned):
        returned = [[ord(letter) for letter in text] for text in returned]
    parts = [np.asarray(part) for part in returned] if several else list(np.asarray(returned))
    expected = f"expected an array of {count} examples, or a list with an array of numbers for each"
    if len(parts) != count:
        raise EvaluateError(f"{place} returned {len(parts)} answers for {count} examples; {expected}")
    odd = next((part for part in parts if part.dtype.kind not in "biuf"), None)
    if odd is not None:
        raise EvaluateError(f"{place} returned an array of {odd.dtype}; {expected}")
    return fill_up([part.astype(np.float32) for part in parts], place)


def fill_up(parts: Sequence[Array], place: str) -> Array:
    """The arrays one behind the other as one, float32: those with a shorter first axis, or an empty one, are filled up
    with ``FILL``; raises ``EvaluateError`` where they differ in another axis."""
    import numpy as np

    rows = {part.shape[1:] for part in parts if part.size}
    if len({part.ndim for part in parts if part.size}) > 1 or len(rows) > 1:
        shapes = ", ".join(sorted({str(list(part.shape)) for part in parts}))
        raise EvaluateError(f"{place} returned answers that differ in more than their number of rows: {shapes}")
    if not rows:
        rows = {part.shape[1:] for part in parts}
    if all(part.ndim == 0 for part in parts):
        return np.stack(parts)
    longest = max(1, *(len(part) if part.size else 0 for part in parts))
    answers: Array = np.full((len(parts), longest, *rows.pop()), FILL, dtype=np.float32)
    for answer, part in zip(answers, parts, strict=True):
        if part.size:
            answer[: len(part)] = part
    return answers


def join_answers(parts: Sequence[Array]) -> Array:
    """The answers of several batches as one array, as long as the longest of all."""
    import numpy as np

    form = find_form(parts)
    return np.concatenate([fit_answers(part, form) for part in parts])


def find_form(parts: Sequence[Array]) -> tuple[int, ...]:
    """The shape behind the first axis into which the answers of several batches, or variants, fit: as long as the
    longest, and where one found nothing and does not tell what it looked for, as the others have it."""
    return max((part.ndim, part.shape[1:]) for part in parts)[1]


def fit_answers(answers: Array, form: tuple[int, ...]) -> Array:
    """Answers with so many rows for each example, filled up; as they are where they are of another form."""
    import numpy as np

    if answers.ndim == 2 and len(form) > 1 and bool((answers == FILL).all()):  # empty lists have no columns
        return np.full((len(answers), *form), FILL, dtype=answers.dtype)
    if answers.ndim != 1 + len(form) or answers.ndim < 2 or answers.shape[2:] != form[1:]:
        return answers
    behind = [(0, 0), (0, form[0] - answers.shape[1]), *[(0, 0)] * (answers.ndim - 2)]
    return np.pad(answers, behind, constant_values=FILL)
