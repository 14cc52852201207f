"""Which node works next."""

from __future__ import annotations

import random
import threading

import pytest

from qbench.errors import CaseError
from qbench.fleet.schedule import FleetNode, Schedule


def make(count=2, *, machine=None, group="a", places=2, patience=60.0):
    schedule = Schedule(patience_seconds=patience)
    for number in range(count):
        schedule.add(FleetNode(name=f"n{number}", group=group, machine=machine or f"m{number}", places=places))
    return schedule


def test_work_goes_to_the_least_busy_node():
    """Places are filled evenly."""
    schedule = make()
    assert sorted(schedule.take_place("a").name for _ in range(4)) == ["n0", "n0", "n1", "n1"]


def test_the_node_that_did_such_work_last_does_it_again_if_it_is_free():
    """It has what the work shares in its cache; a busy one is not waited for."""
    schedule = make(3, places=1)
    schedule.take_place("a")
    first = schedule.take_place("a", near="digits")
    schedule.give_back(first)
    assert schedule.take_place("a", near="digits") == first
    second = schedule.take_place("a", near="digits")
    assert second != first
    schedule.give_back(first)
    schedule.give_back(second)
    assert schedule.take_place("a", near="digits") == second


def test_the_choice_is_that_of_looking_at_every_node():
    """Whatever was taken, given back, measured and lost before."""
    draw, schedule, taken, measured, places = random.Random(0), make(0), [], [], 0
    for number in range(3000):
        step = draw.randrange(6)
        if step == 0 and number % 5 == 0:
            schedule.add(FleetNode(name=f"n{number}", group="a", machine=f"m{number // 2}", places=draw.randint(1, 4)))
        elif step == 1 and number % 9 == 0 and schedule.names():
            schedule.lose(draw.choice(sorted(schedule.names())))
        elif step <= 2 and taken:
            schedule.give_back(taken.pop(draw.randrange(len(taken))))
        elif step == 3 and measured:
            schedule.give_machine_back(measured.pop())
        elif step == 4 and (node := schedule._find_idle("a")):
            assert not any(other.machine == node.machine for other in (*taken, *measured))
            measured.append(node)
        elif step == 5:
            loads = {
                node.name: taken.count(node) / node.places
                for node in schedule._nodes.values()
                if node.machine not in {other.machine for other in measured}
            }
            node = schedule._find_free("a")
            assert (node is None) == (min(loads.values(), default=1) >= 1)
            if node is not None:
                assert loads[node.name] == min(loads.values())
                taken.append(node)
                places += 1
    assert len(schedule._by_load["a"]) <= 16 * len(schedule.names()) + 1
    assert places > 100


def test_a_machine_that_measures_does_nothing_else():
    """Nor do other nodes on the same machine: they share its cores."""
    schedule = make(machine="one")
    measuring = schedule.take_machine("a")
    waiting = threading.Thread(target=lambda: schedule.give_back(schedule.take_place("a")))
    waiting.start()
    assert schedule._find_free("a") is None
    assert schedule._find_idle("a") is None
    schedule.give_machine_back(measuring)
    waiting.join(10)
    assert not waiting.is_alive()
    assert schedule._find_idle("a") is not None


def test_a_machine_with_work_is_not_measured_on():
    """It is free again once the work has ended."""
    schedule = make(1)
    working = schedule.take_place("a")
    assert schedule._find_idle("a") is None
    schedule.give_back(working)
    assert schedule.take_machine("a").name == "n0"


def test_helpers_of_an_evaluation_never_wait_for_the_place_that_it_holds():
    """After a node was lost there are fewer places than the evaluation was given: it would wait for itself."""
    schedule = make(1, places=1)
    assert [schedule.take_place("a", beyond=True).name for _ in range(2)] == ["n0", "n0"]


def test_who_waits_takes_a_node_that_joins():
    """A class may be without a node for a while."""
    schedule = make(0)
    names = []
    waiting = threading.Thread(target=lambda: names.append(schedule.take_place("a").name))
    waiting.start()
    schedule.add(FleetNode(name="late", group="a", machine="m", places=1))
    waiting.join(10)
    assert names == ["late"]


def test_a_class_whose_nodes_are_all_lost_is_told():
    """Its cases fail with what to do; those of another class go on."""
    schedule = make(1, patience=0.01)
    schedule.add(FleetNode(name="other", group="b", machine="m9", places=1))
    assert schedule.lose("n0")
    assert not schedule.lose("n0")
    with pytest.raises(CaseError, match="no node of the class a is left.*--resume"):
        schedule.take_place("a")
    assert schedule.take_place("b").name == "other"


def test_a_run_that_ends_lets_nobody_wait():
    """A cancelled run has threads that wait for places."""
    schedule = make(0)
    schedule.close()
    with pytest.raises(CaseError, match="ended"):
        schedule.take_machine("a")


def test_places_nodes_and_machines_are_counted_by_class():
    """Nodes of one machine share it; what is lost counts no more."""
    schedule = make(2, machine="one")
    schedule.add(FleetNode(name="c", group="a", machine="two", places=3))
    schedule.add(FleetNode(name="d", group="b", machine="three", places=5))
    assert (schedule.count("a"), schedule.machines("a"), schedule.count("b"), schedule.count("x")) == (7, 2, 5, 0)
    assert schedule.names() == {"n0", "n1", "c", "d"}
    schedule.lose("c")
    assert (schedule.count("a"), schedule.machines("a"), schedule.names()) == (4, 1, {"n0", "n1", "d"})


def test_a_full_node_is_given_to_nobody_else():
    """The last place of it is; beyond that, only to whoever holds places already."""
    schedule = make(1, places=2)
    assert [schedule._find_free("a") is None for _ in range(3)] == [False, False, True]
    assert schedule._find_free("a", beyond=True).name == "n0"


def test_the_work_of_the_other_node_on_a_machine_keeps_it_from_being_measured_on():
    """The last that ends frees the machine, for either node."""
    schedule = make(2, machine="one", places=1)
    first, second = schedule.take_place("a"), schedule.take_place("a")
    schedule.give_back(first)
    assert schedule._find_idle("a") is None
    schedule.give_back(second)
    assert schedule._find_idle("a") is not None
    assert schedule._find_idle("a") is None


def test_shared_work_goes_to_no_node_that_is_full_measured_on_or_lost():
    """Nor is what one class shares known to another."""
    schedule = make(3, places=1)
    first = schedule.take_place("a", near="digits")
    assert schedule._find_last("a", "digits") is None
    schedule.give_back(first)
    assert schedule._find_last("a", "digits") == first
    assert schedule._find_last("b", "digits") is None
    assert schedule._find_last("a", "other") is None
    measured = schedule.take_machine("a")
    while measured.name != first.name:
        measured = schedule.take_machine("a")
    assert schedule._find_last("a", "digits") is None
    schedule.give_machine_back(measured)
    assert schedule._find_last("a", "digits") == first
    schedule.lose(first.name)
    assert schedule._find_last("a", "digits") is None


def test_work_that_shares_nothing_is_not_remembered():
    """It goes to the least busy node, whoever had such work before."""
    schedule = make(2, places=2)
    first = schedule.take_place("a")
    assert schedule.take_place("a").name != first.name


def test_a_class_with_nodes_is_waited_for_beyond_the_patience():
    """All are busy: that is no reason to give up."""
    schedule = make(1, places=1, patience=0.01)
    taken, names = schedule.take_place("a"), []
    waiting = threading.Thread(target=lambda: names.append(schedule.take_place("a").name))
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    schedule.give_back(taken)
    waiting.join(10)
    assert names == ["n0"]


def test_the_end_of_a_run_and_a_place_that_is_free_are_heard_of_at_once():
    """Not only once the patience is over."""
    schedule, ended = make(1, places=1), []
    taken = schedule.take_place("a")

    def wait():
        try:
            ended.append(schedule.take_place("a").name)
        except CaseError as error:
            ended.append(str(error))

    for act, told in ((lambda: schedule.give_back(taken), "n0"), (schedule.close, "the run was ended")):
        waiting = threading.Thread(target=wait)
        waiting.start()
        while not schedule._changed._waiters:
            pass
        act()
        waiting.join(10)
        assert not waiting.is_alive()
        assert ended.pop() == told


def test_a_node_has_a_minute_to_join(monkeypatch):
    """Where nothing else is asked for."""
    schedule = Schedule()
    monkeypatch.setattr(schedule._changed, "wait_for", lambda ready, timeout: timeout != 60.0)
    with pytest.raises(CaseError, match="none joined within 60 s"):
        schedule.take_place("a")
