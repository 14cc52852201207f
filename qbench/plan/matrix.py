"""The matrix of a suite, multiplied out. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

from qbench.errors import UsageError
from qbench.quant.recipe import DEFAULT
from qbench.record.schema import NATIVE
from qbench.suite.suite import Suite

# A plan of this size takes about 9 s and 400 MB; a larger one is a slip in the matrix.
MAX_CELLS = 1_000_000

# (model, mode, backend, threads, batch size, recipe's name, host): the axes of the matrix, in this order.
Cell = tuple[str, str, str, int, int, str, str]
_RECIPE = 5


def case_id(cell: Cell) -> str:
    """The id of the case that a cell stands for."""
    model, mode, backend, threads, batch_size, recipe, host = cell
    return setting_id(variant_id(model, mode, backend, recipe), threads, batch_size, host)


def setting_id(variant: str, threads: int, batch_size: int, host: str) -> str:
    """The id of a case from that of its variant: ``…/t<threads>/b<batch size>``, and ``/<host>`` but for ``native``."""
    return f"{variant}/t{threads}/b{batch_size}{'' if host == NATIVE else f'/{host}'}"


def variant_id(model: str, mode: str, backend: str, recipe: str) -> str:
    """``model/mode/backend``, ``model/mode@recipe/backend`` for a recipe that is not the default."""
    return f"{model}/{mode}{'' if recipe == DEFAULT else f'@{recipe}'}/{backend}"


def requested(suite: Suite) -> tuple[list[Cell], list[str]]:
    """The cells of the matrix without the excluded ones, then the included ones; what had no effect, as notes."""
    matrix = suite.matrix
    models = tuple(model.name for model in suite.models)
    recipes = tuple(recipe.name for recipe in suite.recipe)
    axes = (models, matrix.modes, matrix.backends, matrix.threads, matrix.batch_sizes, recipes, suite.hosts)
    limits = [tuple(dict(cell).values()) for cell in matrix.exclude]
    added = [tuple(dict(cell).values()) for cell in matrix.include]
    most = math.prod(len(axis) for axis in axes)
    most += sum(math.prod(len(axis) for axis in _restrict_axes(axes, cell)) for cell in added)
    if most > MAX_CELLS:
        raise UsageError(f"{suite.place('matrix')}: the matrix has {most:,} cells; qbench plans up to {MAX_CELLS:,}")
    notes = []
    own_cells = _list_own_cells(suite)
    own = {cell[_RECIPE] for cell in own_cells}
    cells: dict[Cell, None] = _multiply(axes) | own_cells
    for index, limit in enumerate(limits):
        before = len(cells)
        taken = [cell for cell in own_cells if _matches(cell, limit)]
        for cell in (*taken, *(_multiply(_restrict_axes(axes, limit)) if limit[_RECIPE] not in own else ())):
            cells.pop(cell, None)
        if len(cells) == before:
            notes.append(_note_idle(suite, f"matrix.exclude[{index}]", "takes out no cell"))
    for index, cell_keys in enumerate(added):
        if cell_keys[_RECIPE] in own:
            raise UsageError(
                f"{suite.place(f'matrix.include[{index}].recipe')}: the cells of int8 files of your own are in the "
                "matrix already, on every backend, number of threads and batch size; take some out with matrix.exclude"
            )
        before = len(cells)
        cells |= _multiply(_restrict_axes(axes, cell_keys))
        if len(cells) == before:
            notes.append(_note_idle(suite, f"matrix.include[{index}]", "adds no cell"))
    return list(cells), notes


def _multiply(axes: Iterable[tuple[Any, ...]]) -> dict[Cell, None]:
    """Every combination once; fp32 has no recipe, so it stands there once for all of them."""
    every = itertools.product(*axes)
    return dict.fromkeys((*cell[:_RECIPE], DEFAULT, cell[-1]) if cell[1] == "fp32" else cell for cell in every)


def _list_own_cells(suite: Suite) -> dict[Cell, None]:
    """The cells of int8 files that the user brings: whatever modes and recipes the matrix has."""
    matrix = suite.matrix
    axes = (matrix.backends, matrix.threads, matrix.batch_sizes)
    return {
        (model.name, file.mode, *place, file.recipe, host): None
        for model in suite.models
        for file in model.int8
        for place in itertools.product(*axes)
        for host in suite.hosts
    }


def _matches(cell: Cell, limit: tuple[Any, ...]) -> bool:
    """Whether a cell has every value that an excluded cell gives."""
    return all(key is None or key == value for key, value in zip(limit, cell, strict=True))


def _restrict_axes(axes: tuple[tuple[Any, ...], ...], keys: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """The axes, each cut down to the value that a cell of include or exclude gives for it."""
    return [axis if key is None else (key,) for axis, key in zip(axes, keys, strict=True)]


def _note_idle(suite: Suite, key: str, what: str) -> str:
    return f"{suite.place(key)}: {key} {what}"
