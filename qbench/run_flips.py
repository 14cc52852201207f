"""A run's third stage, at its end: images of the examples that flip, for the report."""

from __future__ import annotations

from qbench import flip_images
from qbench.errors import CaseError
from qbench.run_state import RunState


def keep_images(state: RunState) -> None:
    """Writes the run folder's ``flips/``; without images the report still lists every flip, so no case fails."""
    known = state.predicted
    pairs = {
        (known[one.case.id], known[one.baseline])
        for one in state.plan.cases
        if one.baseline is not None and one.case.id in known and one.baseline in known
    }
    if not pairs or state.data is None:
        return
    try:
        flip_images.keep(
            sorted(pairs), state.data, state.folder.path, limits=state.limits, progress=state.telling("flips")
        )
    except CaseError as error:
        state.progress.note(f"the report shows no images of flipped examples: {error}")
