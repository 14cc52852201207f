"""Causes of the machine: what is tried, from which values on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_situations import situation

from qbench.explain.causes import machine
from qbench.explain.change import Change
from qbench.process import imports
from qbench.quant.recipe import Recipe


@pytest.mark.parametrize(
    ("cause", "field", "least"),
    [
        (machine.DENORMALS, "flushing_gain", machine.LEAST_FLUSHING_GAIN),
        (machine.PAGE_FAULTS, "faults_per_call", machine.LEAST_FAULTS),
    ],
)
def test_what_was_seen_is_tried_from_its_threshold_on(cause, field, least):
    """The threshold itself is enough; a little less is not, nor is what nobody looked at."""
    assert cause.propose(situation(**{field: least}))
    assert cause.propose(situation(**{field: 0.99 * least})) == ()
    assert cause.propose(situation(**{field: None})) == ()


def test_thresholds_are_those_that_the_guide_states():
    """A gain of 3 %; ten page faults a call; calls of up to 20 ms may have too little work."""
    assert (machine.LEAST_FLUSHING_GAIN, machine.LEAST_FAULTS, machine.LONGEST) == (1.03, 10.0, 0.02)
    assert machine.LITTLE_WORK.propose(situation(call_seconds=machine.LONGEST))
    assert machine.LITTLE_WORK.propose(situation(call_seconds=1.01 * machine.LONGEST)) == ()


def test_examples_are_put_together_eight_times_as_many():
    """Of the case's own batch, whichever of the two causes it is."""
    for cause, changes in (
        (machine.LITTLE_WORK, {}),
        (machine.MEMORY_BOUND, {"call_seconds": 1e-3, "reading_seconds": 8e-4}),
    ):
        case = replace(situation(**changes), times=None)
        (proposed,) = cause.propose(replace(case, case=replace(case.case, batch_size=4)))
        assert proposed.change == Change(batch_size=32)
        assert "batches of 32" in proposed.text


def test_reading_weights_explains_a_call_from_half_of_it_on():
    """Half is enough; where either is not known, or a call takes no time, nothing is said."""
    waiting = replace(situation(call_seconds=1e-3, reading_seconds=5e-4), times=None)
    assert machine.MEMORY_BOUND.propose(waiting)
    assert machine.MEMORY_BOUND.propose(replace(waiting, reading_seconds=4.9e-4)) == ()
    for nothing in ({"reading_seconds": None}, {"call_seconds": None}, {"call_seconds": 0.0}):
        assert machine.MEMORY_BOUND.propose(replace(waiting, **nothing)) == ()
        assert machine.LITTLE_WORK.propose(replace(waiting, **nothing))


def test_threads_are_taken_away_where_there_are_several():
    """One thread is what is tried."""
    (proposal,) = machine.THREADS.propose(situation(threads=4))
    assert proposal.change == Change(threads=1)


def test_what_the_process_is_told_is_what_takes_the_cause_away():
    """Denormals flushed, memory kept, the variables that hide instructions emptied (their values are no names)."""
    (flushed,) = machine.DENORMALS.propose(situation(flushing_gain=2.0))
    (kept,) = machine.PAGE_FAULTS.propose(situation(faults_per_call=20.0))
    hidden = ("ONEDNN_MAX_CPU_ISA=AVX2", "ATEN_CPU_CAPABILITY=default")
    (shown,) = machine.OLDER_INSTRUCTIONS.propose(situation(hiding_variables=hidden))
    assert flushed.change == Change(flush_denormals=True)
    assert kept.change == Change(environment=machine.KEEPING)
    assert shown.change == Change(environment={"ONEDNN_MAX_CPU_ISA": "", "ATEN_CPU_CAPABILITY": ""})
    assert shown.text == "without ONEDNN_MAX_CPU_ISA=AVX2, ATEN_CPU_CAPABILITY=default"


def test_machine_code_is_for_an_older_cpu_where_the_recipe_names_one():
    """An artifact without machine code has no such fault, nor has one for this machine alone."""
    recipe = Recipe(target=("avx2", "vnni"))
    (proposed,) = machine.OLDER_TARGET.propose(situation(recipe=recipe, machine_code=True))
    assert proposed.change == Change(recipe={"target": ()})
    assert proposed.text == "for this CPU alone, not avx2 and vnni"
    assert machine.OLDER_TARGET.propose(situation(recipe=recipe, machine_code=False)) == ()
    assert machine.OLDER_TARGET.propose(situation(recipe=Recipe(target=()), machine_code=True)) == ()


@pytest.mark.parametrize(("count", "cores"), [(4, (0, 1, 2, 3)), (None, (0,))])
def test_amx_is_imported_on_all_cores_that_the_system_has(count, cores, monkeypatch):
    """On the first one where it does not tell how many."""
    monkeypatch.setattr("os.cpu_count", lambda: count)
    (proposed,) = machine.UNUSED_AMX.propose(situation(amx_tiles=False, pinned=True))
    assert proposed.change == Change(environment=imports.name_cores(cores))


def test_amx_is_not_left_out_where_the_timed_core_is_not_known():
    """Nothing could be named for the process to be imported on."""
    assert machine.SMALL_FOR_AMX.propose(situation(amx_tiles=True)) == ()


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("tiles", [True, False, None])
def test_amx_is_unused_where_no_tiles_were_seen_in_a_pinned_process(tiles: bool | None, pinned: bool) -> None:
    """With tiles nothing is missing, what was not looked at is not known, and a free process has all cores."""
    proposed = machine.UNUSED_AMX.propose(situation(amx_tiles=tiles, pinned=pinned, timed_core=1))
    assert bool(proposed) == (tiles is False and pinned)
