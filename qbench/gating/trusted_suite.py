"""Which data a gate may open: a run's folder can come from anybody, and its suite can name Python to import.

Artifacts are run again on real examples. A built-in data set is qbench's own code; any other is taken from the suite on
this disk, where its data are the run's, and the user names that suite or ran those data here. So is a ``postprocess``
that is timed with a network.
"""

from __future__ import annotations

from pathlib import Path

from qbench import consent
from qbench.errors import UsageError
from qbench.gating.sequential_test import NotRun
from qbench.record.stored_run import StoredRun
from qbench.suite import Suite, read
from qbench.suite.models_and_data import PostprocessSpec


def suite_to_open(run: StoredRun, suite: Suite, explicit: Path | None) -> Suite | NotRun:
    """The suite whose data, and timed ``postprocess``, may be opened: ``suite``, as the run has it, where its data set
    is built in and nothing else is timed, else the one on disk, ``explicit`` by the user or where the run says.
    ``NotRun`` with the reason where there is none."""
    timed = _list_timed(suite)
    parts: list[consent.Part] = ["data", "postprocess"] if timed else ["data"]
    if explicit is None and not consent.list_sources(suite, parts):
        return suite
    file = explicit or consent.find_suite(run.folder, run.info.suite)
    advice = "the suite's data are opened only from a suite on this disk whose data are the run's"
    if not file.is_file():
        way_out = "name it with --suite" if explicit is None else "name the suite of this run with --suite"
        return NotRun(reason=f"{advice}, and {file} is not there; {way_out}")
    try:
        ours = read(file, run.info.suite.overrides)
        refused = consent.why_refused(ours, named=None if explicit is None else read(explicit), parts=parts)
    except UsageError as error:
        return NotRun(reason=f"{advice}, and that cannot be read: {error}")
    if _list_timed(ours) != timed:
        return NotRun(reason=f"{file} times another postprocess than the run; run the suite again")
    if ours.data != suite.data:
        return NotRun(reason=f"{advice}, and {file} has others; run the suite again")
    if refused is not None and explicit is not None:
        return NotRun(reason=f"with the --set of the run, {refused}; write that into the suite and run it again")
    if refused is not None:
        return NotRun(reason=f"{refused}; if you trust that, name the suite: --suite {file}")
    return ours


def _list_timed(suite: Suite) -> dict[str, PostprocessSpec]:
    """By model, what is timed behind its network."""
    return {model.name: model.postprocess for model in suite.models if model.postprocess and model.postprocess.timed}
