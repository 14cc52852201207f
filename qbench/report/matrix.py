"""Many settings at a glance: models down, threads and batch sizes across, what to ship and how much faster; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qbench import formatting
from qbench.decide.decision_type import Decision
from qbench.record.schema import NATIVE
from qbench.report.cards import Card
from qbench.report.cells import RATIO_DIGITS
from qbench.report.ruling import Rulings

MOST_CARDS = 6  # settings whose cards are read one by one; of more there is a matrix above them


@dataclass(frozen=True, kw_only=True)
class Square:
    """One setting: a link to its card, a verdict and its symbol, what is shipped, how many times as fast as fp32."""

    anchor: str
    verdict: str
    symbol: str
    name: str
    ratio: str


@dataclass(frozen=True, kw_only=True)
class SettingMatrix:
    """``columns``: threads and batch sizes in words; ``rows``: a model and its squares, None where none was run."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Square | None, ...]], ...]


def matrix(decisions: Sequence[Decision], cards: Sequence[Card], rulings: Rulings) -> SettingMatrix | None:
    """The matrix of a run of many settings; None where the cards alone are read at a glance."""
    if len(decisions) <= MOST_CARDS:
        return None
    shapes = sorted({_shape(decision) for decision in decisions})
    squares = {
        (decision.setting.model, _shape(decision)): _square(decision, card, rulings)
        for decision, card in zip(decisions, cards, strict=True)
    }
    models = dict.fromkeys(decision.setting.model for decision in decisions)
    return SettingMatrix(
        columns=tuple(
            f"{threads} thread{'' if threads == 1 else 's'}, batch {batch}{f', on {host}' if host else ''}"
            for host, threads, batch in shapes
        ),
        rows=tuple((model, tuple(squares.get((model, shape)) for shape in shapes)) for model in models),
    )


def _shape(decision: Decision) -> tuple[str, int, int]:
    """The column of a setting: its host (empty for this machine as it is), threads and batch size."""
    setting = decision.setting
    return "" if setting.host == NATIVE else setting.host, setting.threads, setting.batch_size


def _square(decision: Decision, card: Card, rulings: Rulings) -> Square:
    pick = decision.pick
    shipped = pick is not None and decision.verdict in ("ship", "either")
    over = rulings[pick.case.id].over_fp32 if pick is not None and pick.case.id in rulings else None
    return Square(
        anchor=card.anchor,
        verdict=decision.status,
        symbol=card.sign.symbol,
        name=pick.case.variant if pick is not None and shipped else card.sign.word,
        ratio="" if over is None else f"{formatting.fixed(over.value, RATIO_DIGITS)} ×",  # noqa: RUF001 (times)
    )
