"""Which data a gate may open: a run's folder can come from anybody, and its suite can name Python to import.

Artifacts are run again on real examples. A built-in data set is qbench's own code; any other is taken from the suite on
this disk, where its data are the run's. A suite that came with the run proves nothing: it does not count.
"""

from __future__ import annotations

from pathlib import Path

from qbench.errors import UsageError
from qbench.gate.sequential_test import NotRun
from qbench.record.origin import came_with
from qbench.record.stored_run import StoredRun
from qbench.suite import Suite, read


def suite_to_open(run: StoredRun, suite: Suite, explicit: Path | None) -> Suite | NotRun:
    """The suite whose data may be opened: ``suite``, as the run has it, where its data set is built in, else the one on
    disk, ``explicit`` by the user or where the run says. ``NotRun`` with the reason where there is none."""
    if suite.data.value is None and explicit is None:
        return suite
    file = explicit or Path(run.info.suite.file)
    advice = "the suite's data are opened only from a suite on this disk whose data are the run's"
    way_out = "name it with --suite" if explicit is None else "name the suite of this run with --suite"
    if not file.is_file():
        return NotRun(reason=f"{advice}, and {file} is not there; {way_out}")
    if explicit is None and came_with(run.folder, file):
        return NotRun(
            reason=f"{advice}, and {file} lies beside the run; {way_out} if you trust the Python that it names"
        )
    try:
        ours, bare = read(file, run.info.suite.overrides), read(file)
    except UsageError as error:
        return NotRun(reason=f"{advice}, and that cannot be read: {error}")
    if ours.data != bare.data:
        return NotRun(reason=f"{advice}, and the run was made with --set on its data; write that into the suite")
    if ours.data != suite.data:
        return NotRun(reason=f"{advice}, and {file} has others; run the suite again")
    return ours
