"""The answer of a setting while it is still raced: what would be decided if the race ended now."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from qbench.compare.compare import Pairs, like_for_like
from qbench.decide import cases
from qbench.decide.decision import decide_setting
from qbench.decide.judged import SuiteRules, judge
from qbench.errors import QbenchError
from qbench.measure import estimates
from qbench.measure.protocol import Keep
from qbench.measure.samples import Samples
from qbench.record.schema import Record
from qbench.record.stored_run import MetricInfo, read_run
from qbench.suite import Suite


@dataclass(kw_only=True)
class SoFar:
    """Says the answer of one setting after each generation of its race, the decision's own sentence, whenever it reads
    otherwise than before. ``described``: its cases as they are known before they are measured."""

    described: Sequence[Record]
    metric: MetricInfo | None
    rules: SuiteRules
    pairs: Pairs
    note: Callable[[str], None]
    _said: str = field(default="", init=False)

    def __post_init__(self) -> None:
        # Answers of examples do not change while times are measured; they are asked for after each generation.
        by_id = {record.case.id: record for record in self.described}
        pairs = self.pairs
        read = functools.cache(lambda case, fp32: pairs(by_id[case], by_id[fp32]))
        self.pairs = lambda record, fp32: read(record.case.id, fp32.case.id)

    def hear(self, known: Mapping[str, Samples]) -> None:
        """A generation has ended, after which so much is known."""
        try:
            text = self._say(known)
        except QbenchError:  # what is stored cannot be read: the report will say so
            return
        if text and text != self._said:
            self._said = text
            self.note(f"so far, {text}")

    def _say(self, known: Mapping[str, Samples]) -> str:
        records = [_time(record, self.described, known) for record in self.described]
        if not any(record.latency is not None and cases.is_contender(record) for record in records):
            return ""
        judged = judge(
            records, self.metric, self.rules, self.pairs, samples=lambda record: _list_arrays(known[record.case.id])
        )
        setting = cases.setting_of(records[0].case)
        sentence = decide_setting(judged, setting).sentence
        return f"{cases.setting_name(setting)}: {sentence.removeprefix(f'{setting.model}: ')}"


def follow_race(described: Sequence[Record], suite: Suite, folder: Path, note: Callable[[str], None]) -> Keep:
    """Who hears how a race of a run goes, and says its answer; nobody where the run, in ``folder``, cannot be read,
    which the report will say."""
    try:
        run = replace(read_run(folder), records=tuple(described))
    except QbenchError:
        return lambda known: None
    metric = run.info.metric
    gate = suite.gate.settle_metric(None if metric is None else metric.name)
    rules = SuiteRules(gate=gate, decide=suite.decide, precision=suite.measure.precision)
    return SoFar(described=described, metric=metric, rules=rules, pairs=run.pairs, note=note).hear


def _time(record: Record, described: Sequence[Record], known: Mapping[str, Samples]) -> Record:
    """The record with what is measured of its case so far."""
    samples, fp32 = known.get(record.case.id), like_for_like(record, described)
    if samples is None or not len(samples.calls_ns):
        return record
    speedup = None if fp32 is None else estimates.speedup(samples, fp32.case.id, known.get(fp32.case.id))
    return replace(record, latency=estimates.latency(samples), speedup=speedup, samples=record.case.id)


def _list_arrays(samples: Samples) -> dict[str, Any]:
    return dict(vars(samples))
