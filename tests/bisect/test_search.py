"""Rules of qbench/bisect/search.py: halving with undecided and skipped candidates, and the chance of the answer."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.bisect.search import ENOUGH, Bracket, Judged, Look, find_bracket, search, weigh_answers

GOOD, BAD = Judged(side="good", p_bad=0.001), Judged(side="bad", p_bad=0.999)
BROKEN = Judged(side="skipped", p_bad=None)
END = {0: Judged(side="good", p_bad=0.0)}


def run_search(last: int, judge, known=None) -> tuple[Bracket, list[int]]:
    """The answer where ``judge(place)`` says what each look shows, and the looks."""
    judged = {**END, last: judge(last), **(known or {})}
    looks: list[int] = []
    while isinstance(step := search(judged, last), Look):
        looks.append(step.candidate)
        judged[step.candidate] = judge(step.candidate)
    return step, looks


@given(last=st.integers(1, 200), data=st.data())
def test_the_first_bad_candidate_is_found_in_as_many_looks_as_halving_takes(last: int, data: st.DataObject) -> None:
    """Where every look is right and sure."""
    first = data.draw(st.integers(1, last))
    bracket, looks = run_search(last, lambda place: BAD if place >= first else GOOD)
    assert (bracket.last_good, bracket.first_bad) == (first - 1, first)
    assert len(looks) <= math.ceil(math.log2(last)) + 1


@given(last=st.integers(2, 40), data=st.data())
def test_the_answer_lies_among_the_candidates_that_are_named(last: int, data: st.DataObject) -> None:
    """Whatever cannot be looked at: then several are named, and all but the last of these could not be judged."""
    first = data.draw(st.integers(1, last))
    broken = data.draw(st.sets(st.integers(1, last - 1)))

    def judge(place: int) -> Judged:
        return BROKEN if place in broken else BAD if place >= first else GOOD

    bracket, _ = run_search(last, judge)
    assert first in bracket.candidates
    assert set(bracket.candidates[:-1]) <= broken
    assert bracket.is_named == (len(bracket.candidates) == 1)


def test_an_undecided_candidate_is_looked_at_longer_then_its_neighbours_are() -> None:
    """Longer as long as that may tell; then the nearest to the middle of those that nobody has looked at."""
    judged = {**END, 8: BAD, 4: Judged(side="open", p_bad=0.5, more=True)}
    assert search(judged, 8) == Look(candidate=4)
    judged[4] = Judged(side="open", p_bad=0.5)
    assert search(judged, 8) == Look(candidate=3)
    judged[3] = BROKEN
    assert search(judged, 8) == Look(candidate=5)


def test_an_open_candidate_beside_the_answer_does_not_hide_it() -> None:
    """It is on one side with 98 %, which is not enough for a look to decide, and enough for an answer."""
    judged = {**END, 4: BAD, 2: GOOD, 3: Judged(side="open", p_bad=0.02)}
    bracket = search(judged, 4)
    assert isinstance(bracket, Bracket)
    assert (bracket.last_good, bracket.first_bad, bracket.is_named) == (3, 4, True)
    judged[3] = Judged(side="open", p_bad=0.98)
    bracket = search(judged, 4)
    assert isinstance(bracket, Bracket)
    assert (bracket.last_good, bracket.first_bad, bracket.is_named) == (2, 3, True)
    judged[3] = Judged(side="open", p_bad=0.2)
    bracket = search(judged, 4)
    assert isinstance(bracket, Bracket)
    assert (bracket.last_good, bracket.first_bad, bracket.is_named) == (2, 4, False)


def test_a_doubtful_answer_is_looked_at_again_where_the_doubt_is() -> None:
    """One wrong look early leaves all later ones on one side of it: then that one is looked at longer."""
    weak = Judged(side="bad", p_bad=0.9, more=True)
    judged = {**END, 32: BAD, 8: weak, **dict.fromkeys((4, 6, 7), GOOD)}
    bracket = find_bracket(judged, 32)
    assert (bracket.last_good, bracket.first_bad) == (7, 8)
    assert bracket.chance < ENOUGH
    assert search(judged, 32) == Look(candidate=8)
    judged[8] = Judged(side="bad", p_bad=0.9)
    assert search(judged, 32) == bracket, "what no look can tell is given as it is"
    assert not bracket.is_named


def test_where_no_look_can_tell_more_of_the_doubtful_end_the_other_one_is_looked_at() -> None:
    """It may be wrong as well."""
    judged = {**END, 32: BAD, 8: Judged(side="bad", p_bad=0.9), **dict.fromkeys((4, 6, 7), GOOD)}
    judged[7] = Judged(side="good", p_bad=0.001, more=True)
    assert search(judged, 32) == Look(candidate=7)


@pytest.mark.parametrize(
    ("first_bad", "chance", "is_named"), [(3, ENOUGH, True), (3, 0.999 * ENOUGH, False), (4, 1.0, False)]
)
def test_one_candidate_that_is_sure_enough_is_named(first_bad: int, chance: float, is_named: bool) -> None:
    """Of several none is."""
    assert Bracket(last_good=2, first_bad=first_bad, chance=chance).is_named == is_named


def test_a_good_end_of_the_bracket_can_be_the_doubtful_one() -> None:
    """Where more of the chance lies before it."""
    judged = {**END, 32: BAD, 24: Judged(side="good", p_bad=0.2, more=True), 25: BAD}
    assert search(judged, 32) == Look(candidate=24)


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=12))
def test_chances_are_shares_of_one(p_bad: list[float | None]) -> None:
    """Whatever was seen, also what contradicts itself."""
    judged = {place: Judged(side="open", p_bad=p) for place, p in enumerate(p_bad, start=1)}
    chances = weigh_answers(judged, len(p_bad))
    assert math.fsum(chances) == pytest.approx(1)
    assert min(chances) >= 0


def test_many_looks_that_contradict_each_other_leave_a_chance() -> None:
    """However improbable all of them are together."""
    judged = {place: BAD if place % 2 else GOOD for place in range(1, 400)}
    chances = weigh_answers(judged, 400)
    assert math.fsum(chances) == pytest.approx(1)
    assert max(chances) < 0.1


def test_what_is_known_of_the_good_end_favours_no_answer() -> None:
    """It comes before each of them."""
    known = {1: GOOD, 3: BAD}
    assert weigh_answers({0: Judged(side="good", p_bad=0.3), **known}, 3) == pytest.approx(weigh_answers(known, 3))


def test_a_good_end_that_nobody_looked_at_is_one() -> None:
    """It is what the search was given."""
    bracket = find_bracket({3: BAD}, 3)
    assert (bracket.last_good, bracket.first_bad) == (0, 3)


def test_without_looks_all_answers_are_alike() -> None:
    """Nothing favours a candidate before."""
    assert weigh_answers({}, 4) == pytest.approx([0.25] * 4)


@pytest.mark.parametrize("judged", [{}, {3: GOOD}, {0: BAD, 3: BAD}, {1: BAD}])
def test_ends_that_are_no_ends_are_refused(judged: dict[int, Judged]) -> None:
    """There is nothing to search for between them."""
    with pytest.raises(ValueError, match="a good end and a bad end"):
        search(judged, 3)
