"""The matrix of a suite, multiplied out. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from qbench.errors import UsageError
from qbench.modes import FLOATS
from qbench.quant.recipe import DEFAULT
from qbench.record.schema import CaseKey, make_case_key
from qbench.suite.gate import CASE_KEYS
from qbench.suite.suite import Suite

# A plan of this size takes about 13 s and 630 MB; a larger one is a slip in the matrix.
MAX_CELLS = 1_000_000

Axes = dict[str, Sequence[Any]]  # by CASE_KEYS, in their order
Cell = tuple[Any, ...]  # a value of each axis


def expand_matrix(suite: Suite) -> tuple[list[CaseKey], list[str]]:
    """The cells of the matrix without the excluded ones, then the included ones; what had no effect, as notes."""
    axes = _read_axes(suite)
    excluded = [{name: value for name, value in cell if value is not None} for cell in suite.matrix.exclude]
    included = [dict(cell) for cell in suite.matrix.include]
    _require_few(suite, [axes, *(_restrict(axes, cell) for cell in included)])
    of_files = {file.recipe for model in suite.models for file in model.int8}
    cells = _multiply(axes) | _list_cells_of_files(suite)
    notes = _note_chosen_engines(suite)
    for index, limit in enumerate(excluded):
        before = len(cells)
        cells = {cell: None for cell in cells if not _agrees(cell, limit)}
        if len(cells) == before:
            notes.append(_note_idle(suite, f"matrix.exclude[{index}]", "takes out no cell"))
    for index, restriction in enumerate(included):
        if restriction["recipe"] in of_files:
            raise UsageError(
                f"{suite.place(f'matrix.include[{index}].recipe')}: the cells of int8 files of your own are in the "
                "matrix already, on every backend, number of threads and batch size; take some out with matrix.exclude"
            )
        before = len(cells)
        cells |= _multiply(_restrict(axes, restriction))
        if len(cells) == before:
            notes.append(_note_idle(suite, f"matrix.include[{index}]", "adds no cell"))
    return [make_case_key(*cell) for cell in cells], notes


def _read_axes(suite: Suite) -> Axes:
    matrix = suite.matrix
    models = [model.name for model in suite.models]
    recipes = [recipe.name for recipe in suite.recipe]
    values = (models, matrix.modes, matrix.backends, matrix.threads, matrix.batch_sizes, recipes, suite.hosts)
    return dict(zip(CASE_KEYS, values, strict=True))


def _require_few(suite: Suite, products: Sequence[Axes]) -> None:
    count = sum(math.prod(len(values) for values in axes.values()) for axes in products)
    if count > MAX_CELLS:
        raise UsageError(f"{suite.place('matrix')}: the matrix has {count:,} cells; qbench plans up to {MAX_CELLS:,}")


def _multiply(axes: Axes) -> dict[Cell, None]:
    """Every combination once; Floats have no recipe, so they stand there once for all of them."""
    return {
        (model, mode, backend, threads, batch_size, DEFAULT if mode in FLOATS else recipe, host): None
        for model, mode, backend, threads, batch_size, recipe, host in itertools.product(*axes.values())
    }


def _list_cells_of_files(suite: Suite) -> dict[Cell, None]:
    """The cells of int8 files that the user brings: whatever modes and recipes the matrix has."""
    matrix = suite.matrix
    return {
        (model.name, file.mode, backend, threads, batch_size, file.recipe, host): None
        for model in suite.models
        for file in model.int8
        for backend, threads, batch_size in itertools.product(
            file.choose_backends(matrix.backends), matrix.threads, matrix.batch_sizes
        )
        for host in suite.hosts
    }


def _note_chosen_engines(suite: Suite) -> list[str]:
    """A note for each int8 file of the user's whose engine neither the file nor the matrix names."""
    backends = suite.matrix.backends
    return [
        f"{file.file} names no engine, and neither does matrix.backends: it runs on {engine}, which torch takes here; "
        "`engine:` beside `file:` names another"
        for model in suite.models
        for file in model.int8
        if file.engine is None
        for engine in set(file.choose_backends(backends)) - set(backends)
    ]


def _agrees(cell: Cell, limit: dict[str, Any]) -> bool:
    """Whether a cell has every value that an excluded cell gives."""
    return all(limit.get(name, value) == value for name, value in zip(CASE_KEYS, cell, strict=True))


def _restrict(axes: Axes, cell: dict[str, Any]) -> Axes:
    """The axes, each cut down to the value that an included cell gives for it."""
    return {name: values if cell[name] is None else (cell[name],) for name, values in axes.items()}


def _note_idle(suite: Suite, key: str, effect: str) -> str:
    return f"{suite.place(key)}: {key} {effect}"
