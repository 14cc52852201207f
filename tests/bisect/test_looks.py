"""Rules of qbench/bisect/looks.py: what a look does, and that each is kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_bisections import MadeCandidates, make_looks, make_question

from qbench.bisect.candidates import Absent
from qbench.bisect.journal import read_journal
from qbench.gating.live_case import ArmFailed


def test_a_look_at_time_takes_pairs_up_to_the_next_look(tmp_path: Path) -> None:
    """Three fresh pairs beside the good end, then three more; it was loaded once before, to see that it runs."""
    candidates = MadeCandidates(question=make_question(), first=5, slower=0.05)
    looks = make_looks(candidates, tmp_path)
    looks.look(8)
    assert [each.candidate for each in looks.journal.observations] == [8] * 3
    assert candidates.loaded == [8] + [0, 8, 0] * 3
    looks.look(8)
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
