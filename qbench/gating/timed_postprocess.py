"""What belongs to a call beside a network where artifacts are run again: a ``postprocess`` with ``timed: true``.

Both artifacts get today's function, so that what is compared is the artifacts; where it is no longer the run's, nothing
is run. It is the user's code, of a suite that may be opened (``trusted_suite``).
"""

from __future__ import annotations

from dataclasses import replace

from qbench.gating.sequential_test import NotRun
from qbench.models.postprocess import Postprocess
from qbench.record.schema import Record
from qbench.record.stored_run import POSTPROCESS, StoredRun
from qbench.suite import Suite


def find_timed(suite: Suite, run: StoredRun, record: Record) -> Postprocess | NotRun | None:
    """What is timed with the network of a case, given its outputs by name where the record tells of several; None where
    nothing is. ``NotRun`` where it is not what the run timed."""
    reference = next((each for each in suite.references() if each.name == record.case.model), None)
    timed = None if reference is None else reference.own_postprocess
    if reference is None or timed is None or not timed.timed:
        return None
    described = () if record.accuracy is None else record.accuracy.outputs or ()
    if reference.output is None and len(described) > 1:
        timed = replace(timed, names=tuple(output.name for output in described))
    known = run.info.digests.get(f"{POSTPROCESS}{record.case.model}")
    if known is not None and known != reference.own_postprocess.digest():  # type: ignore[union-attr]
        return NotRun(reason=f"{timed.file}: {timed.attribute}() is no longer what this run timed; run the suite again")
    return timed
