"""Every interval that is printed of a run, held against its records.

    python tests/benchmarks/page_intervals.py RUN

Reads ``report.html`` and ``summary.md`` of the run, takes each ``value [low, high]`` from them, and looks for a figure
of the records that reads so: rounded as it is printed, in any unit. A figure has one interval (the change of accuracy
that of its test), so a second one for the same figure is printed here. Rebuild the files first: ``qbench report RUN``.
"""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from qbench.decide.decision import decide
from qbench.decide.judged import Judged
from qbench.decide.paired_times import as_ratio, paired_times
from qbench.decide.tested_change import change_of, score_of
from qbench.record.schema import Record, flatten
from qbench.record.stored_run import StoredRun, read_run
from qbench.report import build
from qbench.report.plots.cases import read_cases
from qbench.report.plots.ratios import over_best
from qbench.stats.interval_type import Interval

_NUMBER = r"[+-]?\d[\d,]*(?:\.\d+)?"
_PRINTED = re.compile(rf"({_NUMBER})~?[^\d\[\]]{{0,20}}\[\s*({_NUMBER}),\s*({_NUMBER})\s*\]")
_NOT_SHOWN = re.compile(r"<(script|style)\b.*?</\1>", re.DOTALL)
SCALES = (1.0, 100.0, 1e3, 1e6, 1e9)


@dataclass(frozen=True, kw_only=True)
class Printed:
    """An interval as it stands in a text: its numbers as written, with what stands around it."""

    numbers: tuple[str, str, str]
    around: str

    def reads_like(self, interval: Interval) -> bool:
        """Whether the three numbers are those of the interval, rounded, in some unit."""
        ends = (interval.value, interval.low, interval.high)
        return any(
            all(end is not None and _rounds_to(end * scale, text) for end, text in zip(ends, self.numbers, strict=True))
            for scale in SCALES
        )


def _rounds_to(value: float, text: str) -> bool:
    plain = text.replace(",", "")
    decimals = len(plain.partition(".")[2])
    return abs(value - float(plain)) <= 0.5 * 10**-decimals * 1.000001


def list_printed(source: str) -> Iterator[Printed]:
    """The intervals of a page or of Markdown."""
    text = html.unescape(re.sub(r"<[^>]+>", " ", _NOT_SHOWN.sub(" ", source)))
    text = re.sub(r"\s+", " ", text.replace("\N{MINUS SIGN}", "-").replace("\\", ""))
    for match in _PRINTED.finditer(text):
        value, low, high = match.groups()
        around = text[max(0, match.start() - 60) : match.end() + 20]
        yield Printed(numbers=(value, low, high), around=around)


def list_figures(run: StoredRun, judged: Judged) -> Iterator[Interval]:
    """Every figure of the run that has an interval, each once."""
    for record in run.records:
        yield from _list_times(record)
        shown = (change_of(judged, record), score_of(judged, record))
        yield from (change.interval for change in shown if change is not None)
        yield from (test.delta for test in [judged.test_of(record)] if test is not None)
        if record.accuracy is not None and record.accuracy.twin is not None and record.accuracy.twin.delta is not None:
            yield record.accuracy.twin.delta
    yield from (ratio for case in read_cases(build.read_cases(run)) if (ratio := over_best(case)) is not None)
    yield from (
        ratio for case in read_cases(build.read_cases(run)) if (ratio := case.interval("over_best_fp32")) is not None
    )
    yield from _list_comparisons(run, judged)
    for spread in judged.seed_spreads.values():
        yield from (test.delta for test in [spread.test] if test is not None)


def _list_comparisons(run: StoredRun, judged: Judged) -> Iterator[Interval]:
    """Each case beside the pick and the fastest fp32 of its setting: the ratio, and by how much it is slower."""
    for decision in decide(judged):
        times = paired_times(run.records, judged.samples)
        rivals = [record.case.id for record in (decision.pick, decision.fastest) if record is not None]
        for case, rival in product([record.case.id for record in run.records], rivals):
            if case != rival and (comparison := times.compare(case, rival)) is not None:
                yield as_ratio(comparison)
                ratio = comparison.ratio()
                yield Interval(value=ratio.value - 1, low=_less_one(ratio.low), high=_less_one(ratio.high))


def _less_one(end: float | None) -> float | None:
    return None if end is None else end - 1


def _list_times(record: Record) -> Iterator[Interval]:
    """The figures of a record whose names end in low and high; of accuracy those that were tested are shown."""
    fields = dict(flatten(record))
    for name in fields:
        start = name.removesuffix("low")
        if start == name or name.startswith("accuracy.") or not isinstance(fields[name], float):
            continue
        value = fields.get(f"{start}value", fields.get(f"{start}seconds"))
        if isinstance(value, float):
            yield Interval(value=value, low=fields[name], high=fields[f"{start}high"])


def find_unknown(sources: Iterable[str], figures: Iterable[Interval]) -> tuple[int, list[Printed]]:
    """How many intervals the texts hold, and those that are no figure of the run."""
    known = list(figures)
    flipped = [Interval(value=-each.value, low=_negate(each.high), high=_negate(each.low)) for each in known]
    printed = [interval for source in sources for interval in list_printed(source)]
    return len(printed), [each for each in printed if not any(map(each.reads_like, [*known, *flipped]))]


def _negate(end: float | None) -> float | None:
    return None if end is None else -end


def check_run(folder: Path) -> tuple[int, list[Printed]]:
    """``find_unknown`` of what a run's folder holds."""
    run = read_run(folder, lenient=True)
    texts = [(folder / name).read_text(encoding="utf-8") for name in ("report.html", "summary.md")]
    return find_unknown(texts, list_figures(run, build.judge(run)))


if __name__ == "__main__":
    count, unknown = check_run(Path(sys.argv[1]))
    print(f"{count} intervals, {len(unknown)} that are no figure of the records")
    for each in unknown:
        print(f"  {each.around}")
    sys.exit(bool(unknown))
