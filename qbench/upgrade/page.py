"""What ``qbench upgrade`` says, as one HTML page without a script; pure."""

from __future__ import annotations

from collections.abc import Sequence

from qbench import formatting
from qbench.gating import text as gate_text
from qbench.gating.verdict import Verdict
from qbench.progress.table import TextTable
from qbench.report import html
from qbench.report.history_page import POLICY
from qbench.report.plots import svg
from qbench.report.plots.svg import Words
from qbench.upgrade import picture, text
from qbench.upgrade.case_change import CaseChange
from qbench.upgrade.sentence import write_sentence
from qbench.upgrade.upgrade import Upgraded

_TONES = {"pass": "good", "fail": "bad", "invalid": "bad", "hold": "unsure"}
_CAPTION = (
    "Each case under the new libraries, beside the old file under the old ones. Bars: the limits of the gate's "
    "sequential test; dashed: how much slower the suite lets it be."
)
_METHOD = (
    "Three arms ran in one session, their calls interleaved: the old file under the old libraries, twice, as noise "
    "check; the same file under the new ones; and a file built anew by these. Each of the two ways, to keep the files "
    "and to build them anew, was judged by the suite's gate; the better one decides."
)


def render(upgraded: Upgraded) -> str:
    """The HTML text; the policy allows no source at all but inline styles. Names are escaped."""
    verdicts = gate_text.worst_first(upgraded.joined.verdicts)
    shown = [verdict for verdict in verdicts if verdict.outcome != "PASS"]
    return html.fill(
        "upgrade.jinja",
        policy=POLICY,
        suite=upgraded.suite,
        sentence=f"{write_sentence(upgraded)}.",
        versions=text.describe_versions(upgraded),
        outcome=gate_text.summary(upgraded.joined),
        picture=_draw(upgraded),
        caption=_CAPTION,
        cases=_tabulate_cases(upgraded),
        case_tones=[_choose_tone(_find_worst(upgraded, change)) for change in upgraded.changes],
        reasons=text.list_reasons(upgraded.changes),
        shown=_tabulate_verdicts(shown),
        shown_tones=[_choose_tone(verdict) for verdict in shown],
        held=_tabulate_verdicts([verdict for verdict in verdicts if verdict.outcome == "PASS"]),
        notes=[formatting.one_line(note) for note in upgraded.joined.notes],
        method=_METHOD,
        words=text.explain(upgraded.changes),
    )


def _draw(upgraded: Upgraded) -> str:
    """The picture; empty where nothing was timed."""
    rows = picture.list_rows(upgraded)
    if not rows:
        return ""
    names = frozenset(row.label for row in rows)
    return svg.inline(picture.draw(rows), Words(key="times", title="Time of a call", description=_CAPTION, names=names))


def _tabulate_cases(upgraded: Upgraded) -> TextTable:
    """A row for each case and way, with the outcome of its gate behind the case."""
    case, *head = text.HEAD
    rows = []
    for change in upgraded.changes:
        name, *cells = text.list_cells(change)
        worst = _find_worst(upgraded, change)
        rows.append((name, "not judged" if worst is None else worst.outcome, *cells))
    return TextTable(columns=(case, "gate", *head), rows=tuple(rows), words=(0, 1, 2, 5, 7))


def _find_worst(upgraded: Upgraded, change: CaseChange) -> Verdict | None:
    """The gate's verdict that weighs most of those on a case."""
    of_case = [verdict for verdict in upgraded.gates[change.way].verdicts if verdict.case == change.case]
    return next(iter(gate_text.worst_first(of_case)), None)


def _choose_tone(verdict: Verdict | None) -> str:
    return "" if verdict is None else _TONES.get(verdict.effect, "")


def _tabulate_verdicts(verdicts: Sequence[Verdict]) -> TextTable:
    rows = [
        (each.case, each.outcome, each.rule, each.text, formatting.one_line(each.reason or ""), each.source)
        for each in verdicts
    ]
    columns = ("case", "outcome", "rule", "measured", "why", "where")
    return TextTable(columns=columns, rows=tuple(rows), words=(0, 1, 2, 4, 5))
