"""Layer by layer: how far an int8 variant is from fp32 (SQNR), and how much it clips; float layers hatched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from qbench import formatting
from qbench.progress.table import TextTable
from qbench.report.plots import rows, scale
from qbench.report.plots.canvas import ROLES, color_of
from qbench.report.plots.cases import (
    LAYERS,
    MOST,
    FrameCase,
    measured_cases,
    nothing_to_draw,
    require_columns,
    require_name,
    require_single_run,
)
from qbench.report.plots.picture import Drawing, minus, plural, span, upper
from qbench.report.plots.rows import Flag, PictureRow, RowGroup

if TYPE_CHECKING:
    import pandas as pd

_GOOD = 20.0  # dB: the error is a hundredth of the signal's power


@dataclass(frozen=True, kw_only=True)
class LayerError:
    """One layer of one case."""

    case: str
    name: str
    sqnr_db: float | None
    clipped: float | None
    is_float: bool
    n: int = 0


def layers(frame: pd.DataFrame, numbers: pd.DataFrame, case: str | None = None, most: int = MOST) -> Any:
    """A matplotlib figure of a frame of cases and one of their layers (``qbench.load(run, "layers")``): the SQNR of
    each layer of one case (default: the one to ship), in the network's order; the worst ones where there are more."""
    cases = measured_cases(frame, most)
    require_columns(numbers, LAYERS, 'qbench.load(run, "layers")')
    require_single_run("layers", frame, numbers)
    key = case or pick_case(cases, numbers)
    if key is None:
        raise nothing_to_draw("layers", "no measured case of the frame has numbers of layers")
    require_name("layers: case", key, list(dict.fromkeys(numbers["case.id"])))
    chosen, _ = choose_layers(list_layers(numbers, key), most)
    named = {item.key: item for item in cases}
    backend, mode = (named[key].backend, named[key].mode) if key in named else ("", "static")
    values = [layer.sqnr_db for layer in chosen if layer.sqnr_db is not None]
    across = scale.from_zero([*values, _GOOD])

    def draw(axes: Any, y: float, row: PictureRow) -> None:
        layer = by_row[row.key]
        if layer.is_float:
            end = across.high if layer.sqnr_db is None else max(0.0, layer.sqnr_db)
            hatched = {"facecolor": "none", "edgecolor": ROLES["muted"], "hatch": "////", "linewidth": 0.8}
            axes.barh([y - 1], [end], height=8, **hatched)
        elif layer.sqnr_db is not None:
            axes.barh([y - 1], [max(0.0, layer.sqnr_db)], height=8, color=color_of(backend))
        if layer.clipped:
            axes.barh([y - 5.5], [across.high * layer.clipped], height=3, color=ROLES["bad"])

    by_row = {f"{number}": layer for number, layer in enumerate(chosen)}
    listed = [
        PictureRow(key=row, label=layer.name, text=show_layer(layer), mode=mode, backend=backend)
        for row, layer in by_row.items()
    ]
    flags = [Flag(at=_GOOD, text="20 dB: 1 % error power", role="muted", dashed=True)]
    heading = named[key].variant + ", " + str(named[key]["case.model"]) if key in named else key
    return rows.draw_rows([RowGroup(heading=heading, rows=listed)], across, "SQNR, dB (right is better)", draw, flags)


def list_drawings(frame: pd.DataFrame, cases: Sequence[FrameCase], numbers: pd.DataFrame) -> Iterator[Drawing]:
    """The picture, where a case has numbers of its layers."""
    key = pick_case(cases, numbers)
    if key is not None:
        listed = list_layers(numbers, key)
        chosen, _ = choose_layers(listed)
        yield Drawing(
            key="layers",
            heading="Layer by layer",
            draw=partial(layers, frame, numbers),
            caption=_conclude(listed, len(chosen)),
            data=_tabulate(chosen),
        )


def _conclude(layers: Sequence[LayerError], drawn: int) -> str:
    """The layer that is farthest from fp32, what clips most, and how many are in float."""
    floats = sum(layer.is_float for layer in layers)
    compared = [(layer.sqnr_db, layer) for layer in layers if layer.sqnr_db is not None]
    clauses = []
    if compared:
        sqnr, worst = min(compared, key=lambda pair: pair[0])
        clauses.append(f"farthest from fp32 is {worst.name}, with an SQNR of {minus(f'{sqnr:.1f}')} dB")
    clipping = [(layer.clipped, layer) for layer in layers if layer.clipped]
    if clipping:
        clipped, most = max(clipping, key=lambda pair: pair[0])
        clauses.append(f"{most.name} clips most, {formatting.share(clipped)} of its values")
    elif any(layer.clipped is not None for layer in layers):
        clauses.append("no layer clips")
    stay = "stays" if floats == 1 else "stay"
    clauses.append(f"{floats} of {plural(len(layers), 'layer')} {stay} in float (hatched)")
    cut = f" The {drawn} that are farthest are shown." if drawn < len(layers) else ""
    values = span([layer.n for layer in layers if layer.n])
    bars = f"Compared are n = {values} values a layer, on evaluation examples; without intervals; red: share clipped"
    return f"{upper('; '.join(clauses))}. {bars}.{cut}"


def _tabulate(layers: Sequence[LayerError]) -> TextTable:
    """The numbers of each layer."""
    rows = [
        (
            layer.name,
            formatting.DASH if layer.sqnr_db is None else f"{layer.sqnr_db:.1f}",
            formatting.share(layer.clipped),
            "float" if layer.is_float else "int8",
        )
        for layer in layers
    ]
    return TextTable(columns=("layer", "SQNR, dB", "clipped", "runs in"), rows=tuple(rows))


def pick_case(cases: Sequence[FrameCase], numbers: pd.DataFrame) -> str | None:
    """The case whose layers are shown: one to ship, else one that ties, else the fastest; None where none has any."""
    with_layers = set(numbers["case.id"])
    order = {"ship": 0, "either": 0, "undecided": 1, "tied": 2}
    by_role = sorted((order.get(case.role, 3), case.seconds, case.key) for case in cases if case.key in with_layers)
    return by_role[0][2] if by_role else None


def list_layers(numbers: pd.DataFrame, key: str) -> list[LayerError]:
    """The layers of a case, in the order of the network."""
    of_case = numbers[numbers["case.id"] == key]
    columns = (of_case["layer"], of_case["sqnr_db"], of_case["clipped"], of_case["is_float"], of_case["n"])
    return [
        LayerError(
            case=key, name=str(name), sqnr_db=_number(sqnr), clipped=_number(clipped), is_float=bool(is_float), n=int(n)
        )
        for name, sqnr, clipped, is_float, n in zip(*columns, strict=True)
    ]


def choose_layers(layers: Sequence[LayerError], most: int = MOST) -> tuple[list[LayerError], int]:
    """The layers that are shown, in order: those farthest from fp32 where there are more; and how many are not."""
    ranked = sorted(range(len(layers)), key=lambda i: _badness(layers[i]))[:most]
    return [layers[i] for i in sorted(ranked)], len(layers) - len(ranked)


def _badness(layer: LayerError) -> tuple[bool, float]:
    if layer.sqnr_db is None:
        return True, 0.0
    return False, layer.sqnr_db - 100 * (layer.clipped or 0.0)


def show_layer(layer: LayerError) -> str:
    """``31.2 dB, 0.1 % clipped``."""
    words = ["float"] if layer.is_float else []
    words += [] if layer.sqnr_db is None else [minus(f"{layer.sqnr_db:.1f} dB")]
    words += [f"{formatting.share(layer.clipped)} clipped"] if layer.clipped else []
    return ", ".join(words) or formatting.DASH


def _number(value: Any) -> float | None:
    return None if value is None or value != value else float(value)
