"""Which metric judges a run: named by the suite, else decided by whether the data has labels."""

from __future__ import annotations

from collections.abc import Iterable

from qbench import python_file
from qbench.record import Record
from qbench.run_state import RunState
from qbench.suite import Suite
from qbench.suite.accuracy import DEFAULTS, file_of
from qbench.suite.judged import judged


def as_before(suite: Suite, records: Iterable[Record]) -> Suite:
    """The suite with the metric of the part of the run that these records come from, as far as it was decided."""
    metrics = {record.accuracy.metric for record in records if record.accuracy is not None}
    return judged(suite, labelled=metrics != {DEFAULTS[1]})[0]


def judge(state: RunState) -> None:
    """Settles the metric of the state's suite, now that the data is known; tells it where the data decided.

    Raises ``UsageError`` where the file of the user's own score changed since this run was started.
    """
    state.suite, note = judged(state.suite, labelled=state.examples.evaluation_labels() is not None)
    if note is not None:
        state.progress.note(note)
        state.folder.write_info(state.suite, state.plan, started=state.started, finished=None, elapsed_seconds={})
    own = file_of(state.suite.gate.accuracy.metric)
    if own is not None:
        state.folder.require_same_inputs({f"the score in {own.name}": python_file.digest(own)})
