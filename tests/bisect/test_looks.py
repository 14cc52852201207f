"""Rules of qbench/bisect/looks.py: what a look does, and that each is kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_bisections import MadeCandidates, make_looks, make_question

from qbench.bisect import looks as looking
from qbench.bisect.candidates import Absent
from qbench.bisect.journal import read_journal
from qbench.gating.live_case import ArmFailed
from qbench.gating.sequential_test import ProcessPair


def test_a_look_at_time_takes_pairs_up_to_the_next_look(tmp_path: Path) -> None:
    """Three fresh pairs beside the good end, then three more; it was loaded once before, to see that it runs."""
    candidates = MadeCandidates(question=make_question(), first=5, slower=0.05)
    looks = make_looks(candidates, tmp_path)
    looks.look(8)
    assert [each.candidate for each in looks.journal.observations] == [8] * 3
    assert candidates.loaded == [8] + [0, 8, 0] * 3
    looks.look(8)
    assert candidates.loaded == [8] + [0, 8, 0] * 6
    pairs = [each.pair for each in looks.journal.observations]
    assert len(pairs) == 6
    changes = [pair.change for pair in pairs if pair is not None]
    assert np.mean(changes) == pytest.approx(np.log(1.05), abs=0.01)
    assert candidates.opened == [0, 8], "each is made ready once"


def test_a_look_at_the_good_end_only_tries_it(tmp_path: Path) -> None:
    """There is nothing to time it beside."""
    candidates = MadeCandidates(question=make_question(), first=5)
    looks = make_looks(candidates, tmp_path)
    looks.look(0)
    assert [(each.candidate, each.runs) for each in looks.journal.observations] == [(0, True)]
    assert candidates.loaded == [0]


def test_a_look_is_told_step_by_step(tmp_path: Path) -> None:
    """Which candidate is made ready, and which of how many pairs runs."""
    told: list[str] = []
    looks = make_looks(MadeCandidates(question=make_question(), first=5), tmp_path)
    looks.progress.advance = lambda text, share=None: told.append(text)  # type: ignore[method-assign]
    looks.look(8)
    looks.look(8)
    ready = [f"onnxruntime 1.{minor}.0: made ready" for minor in (20, 28)]
    pairs = [f"onnxruntime 1.28.0: process pair {number + 1} of {3 if number < 3 else 6}" for number in range(6)]
    assert told == ready + pairs


def test_a_process_that_only_tries_is_fresh_and_ends(tmp_path: Path) -> None:
    """Also where the artifact does not load."""
    opened: list[dict[str, object]] = []
    closed: list[int] = []

    class Counted(MadeCandidates):
        def open_remote(self, spec, **options):
            opened.append(options)
            worker = super().open_remote(spec, **options)
            worker.close = lambda: closed.append(worker.place)
            return worker

    candidates = Counted(question=make_question("failure"), first=5, failing=frozenset({4}))
    looks = make_looks(candidates, tmp_path)
    looks.look(0)
    looks.look(4)
    assert opened == [{"limits": looks.limits, "fresh": True}] * 3
    assert closed == [0, 4, 4]


def test_what_a_look_took_is_kept_in_thousandths(tmp_path: Path) -> None:
    """From its begin to what it gave; a look at the end of the time is one too many."""
    candidates = MadeCandidates(question=make_question("failure"), first=5)
    looks = make_looks(candidates, tmp_path, most_seconds=4.0)
    candidates.now = 10.0
    assert not looks.is_over()
    load = candidates.open_remote

    def open_remote(spec, **options):
        candidates.now += 1.23456
        return load(spec, **options)

    looks.open_remote = open_remote
    looks.look(0)
    assert [each.seconds for each in looks.journal.observations] == [1.235]
    for now, is_over in ((13.999, False), (14.0, True)):
        candidates.now = now
        assert looks.is_over() is is_over


def test_pairs_are_drawn_by_the_seed_of_the_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And are told by the names of both."""
    given: list[dict[str, object]] = []

    class Live:
        def __init__(self, **options: object) -> None:
            given.append(options)

        def measure_pair(self, number: int) -> ProcessPair:
            return ProcessPair(ratio=0.0, control=0.0, drift=0.0)

    monkeypatch.setattr(looking, "LiveCase", Live)
    make_looks(MadeCandidates(question=make_question(), first=5), tmp_path, seed=7).look(8)
    assert [each["seed"] for each in given] == [7]
    assert set(given[0]["names"].values()) == {"onnxruntime 1.20.0", "onnxruntime 1.28.0"}  # type: ignore[attr-defined]


@pytest.mark.parametrize(("place", "kind"), [(3, "absent"), (4, "fails")])
def test_what_cannot_be_looked_at_is_kept_with_its_reason(place: int, kind: str, tmp_path: Path) -> None:
    """A release that has no wheel is another answer than one that cannot load the artifact."""
    candidates = MadeCandidates(question=make_question(), first=5, absent=frozenset({3}), failing=frozenset({4}))
    looks = make_looks(candidates, tmp_path)
    looks.look(place)
    (stopped,) = [each.stopped for each in looks.journal.observations]
    assert stopped is not None
    assert stopped.kind == kind
    assert candidates.names[place] in stopped.reason


def test_what_fails_once_is_tried_again(tmp_path: Path) -> None:
    """The machine may have been short of something; what fails twice fails."""

    class Shaky(MadeCandidates):
        def open_remote(self, spec, **options):
            self.failing = frozenset({4}) if 4 not in self.loaded else frozenset()
            return super().open_remote(spec, **options)

    candidates = Shaky(question=make_question("failure"), first=5)
    looks = make_looks(candidates, tmp_path)
    looks.look(4)
    assert [(each.runs, each.stopped) for each in looks.journal.observations] == [(True, None)]
    assert candidates.loaded == [4, 4]


def test_a_good_end_that_cannot_be_had_any_more_is_not_the_candidates_fault(tmp_path: Path) -> None:
    """As where an environment was removed, and a search goes on."""
    candidates = MadeCandidates(question=make_question(), first=5, absent=frozenset({0}))
    looks = make_looks(candidates, tmp_path)
    with pytest.raises(Absent, match=r"no wheel for 1\.20\.0"):
        looks.look(8)
    assert looks.journal.observations == []


def test_a_good_end_that_dies_beside_a_candidate_is_not_the_candidates_fault(tmp_path: Path) -> None:
    """The search ends with the reason, and nothing is kept of the candidate."""
    candidates = MadeCandidates(question=make_question(), first=5, failing=frozenset({0}))
    looks = make_looks(candidates, tmp_path)
    with pytest.raises(ArmFailed, match=r"onnxruntime 1\.20\.0: 1\.20\.0 cannot load"):
        looks.look(8)
    assert looks.journal.observations == []


def test_what_runs_the_very_same_as_an_end_is_not_run(tmp_path: Path) -> None:
    """Most commits change no artifact."""
    candidates = MadeCandidates(question=make_question(), first=5, slower=0.05, same=frozenset({3, 6}))
    looks = make_looks(candidates, tmp_path)
    for place in (0, 8, 3, 6):
        looks.look(place)
    assert {each.candidate: each.same for each in looks.journal.observations if each.same is not None} == {3: 0, 6: 8}
    assert not {3, 6} & set(candidates.loaded)


def test_answers_lie_beside_the_journal(tmp_path: Path) -> None:
    """Those of the good end of two processes, each in a file of its own."""
    candidates = MadeCandidates(question=make_question("bits"), first=5, answers=lambda place: np.eye(3))
    looks = make_looks(candidates, tmp_path)
    looks.look(0)
    looks.look(0)
    assert [each.answers for each in looks.journal.observations] == ["answers-0.npz", "answers-0-1.npz"]
    assert all((tmp_path / str(each.answers)).is_file() for each in looks.journal.observations)


def test_every_pair_is_on_the_disk_before_the_next(tmp_path: Path) -> None:
    """A kill loses the pair in flight."""

    class Killed(MadeCandidates):
        def open_remote(self, spec, **options):
            if len(self.loaded) == 7:
                raise KeyboardInterrupt
            return super().open_remote(spec, **options)

    candidates = Killed(question=make_question(), first=5, slower=0.05)
    with pytest.raises(KeyboardInterrupt):
        make_looks(candidates, tmp_path).look(8)
    question, observations, whole = read_journal(tmp_path / "bisect.jsonl")
    assert (question, whole) == (candidates.question, True)
    assert [each.pair is not None for each in observations] == [True, True]


def test_time_that_is_over_ends_a_look_between_two_pairs(tmp_path: Path) -> None:
    """What was measured until then is kept."""
    candidates = MadeCandidates(question=make_question(), first=5, slower=0.05)
    looks = make_looks(candidates, tmp_path, most_seconds=0.5)
    assert not looks.is_over()
    looks.look(8)
    assert looks.is_over()
    assert 0 < len(looks.journal.observations) < 3
