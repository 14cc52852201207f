"""Rules of qbench/replay/comparison.py: what differs, in the order in which a run comes about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from made_records import CASE, failed, fp32, info, int8
from made_runs import predictions, run_folder, write_with_predictions

from qbench.decide.cases import setting_of
from qbench.decide.decision_type import Decision
from qbench.record.schema import Record
from qbench.record.stored_run import StoredRun, read_run
from qbench.replay.comparison import Replayed, find_sha256, list_differences


def stored(folder: Path, record: Record, classes: tuple[int, ...] = (0, 1), **described: Any) -> StoredRun:
    """A run of an fp32 and an int8 case, which answers these classes."""
    run_folder(folder, [], info(**described))
    return replace(
        read_run(folder), records=(fp32(), write_with_predictions(folder, record, predictions([*classes], [0, 1])))
    )


def decided(pick: Record | None) -> tuple[Decision, ...]:
    """A decision for this variant."""
    return (Decision(setting=setting_of(int8().case), verdict="ship", headline="", pick=pick),)


def of(digest: str) -> Record:
    """A case whose artifact has this digest."""
    record = int8()
    assert record.artifact is not None
    return replace(record, artifact=replace(record.artifact, sha256=digest * 64))


def test_the_same_run_twice_has_no_difference(tmp_path: Path) -> None:
    """Whatever its times are."""
    old = stored(tmp_path / "a", of("1"), digests={"data": "d"})
    new = stored(tmp_path / "b", replace(of("1"), latency=None), digests={"data": "d"})
    assert list_differences(old, new, (decided(int8()), decided(int8()))) == ()


def test_differences_stand_in_the_order_of_a_run(tmp_path: Path) -> None:
    """What goes in, what is built, what it answers and scores, what is decided."""
    record = of("2")
    assert record.accuracy is not None
    worse = replace(record, accuracy=replace(record.accuracy, value=0.5))
    old = stored(tmp_path / "a", of("1"), digests={"data": "d" * 40, "model m": "w"})
    new = stored(tmp_path / "b", worse, (0, 7), digests={"data": "e" * 40, "model m": "w"})
    differences = list_differences(old, new, (decided(int8()), decided(None)))
    assert [difference.what for difference in differences] == ["input", "artifact", "answers", "score", "decision"]
    assert str(differences[0]) == f"input of data: {'d' * 16}, now {'e' * 16}"
    assert str(differences[1]) == f"artifact of {CASE}: {'1' * 16}, now {'2' * 16}"
    assert str(differences[2]).startswith(f"answers of {CASE}: 2 examples, now 1 of 2 in other bits, by 1 at most")
    assert str(differences[4]) == f"decision of net, 1 thread, batch 1: ship {CASE}, now ship"


def test_fp32_stands_before_what_is_held_against_it(tmp_path: Path) -> None:
    """However the records stand: what changed in fp32 is the cause of what changed behind it."""
    old = replace(stored(tmp_path / "a", of("1")), records=(of("1"), fp32()))
    plain = fp32()
    assert plain.artifact is not None
    new = replace(old, records=(of("2"), replace(plain, artifact=replace(plain.artifact, sha256="3" * 64))))
    differences = list_differences(old, new, ((), ()))
    assert [(difference.what, difference.where) for difference in differences] == [
        ("artifact", plain.case.id),
        ("artifact", CASE),
    ]
    numbers = {"suite": "s", "before": old, "after": new, "artifacts": 2, "answers": 0, "settings": 0}
    assert Replayed(**numbers, differences=differences).exit_code == 1
    assert Replayed(**numbers, differences=()).exit_code == 0


def test_a_case_that_is_not_as_it_was(tmp_path: Path) -> None:
    """One that failed says why; one without a record that it has none; a decision that is gone, too."""
    old = stored(tmp_path / "a", of("1"))
    new = replace(old, records=(fp32(), failed(reason="no memory")))
    (difference,) = list_differences(old, new, ((), ()))
    assert str(difference) == f"status of {CASE}: ok, now failed (no memory)"
    lost = list_differences(old, replace(old, records=(fp32(),)), (decided(int8()), ()))
    assert [str(each) for each in lost] == [
        f"status of {CASE}: ok, now no record",
        f"decision of net, 1 thread, batch 1: ship {CASE}, now none",
    ]


def test_an_input_that_is_gone_differs(tmp_path: Path) -> None:
    """One that is new is none of the run's."""
    old = stored(tmp_path / "a", of("1"), digests={"data": "d", "model m": "w"})
    new = stored(tmp_path / "b", of("1"), digests={"data": "d", "model n": "w"})
    assert [str(each) for each in list_differences(old, new, ((), ()))] == ["input of model m: w, now none"]


def test_a_case_that_runs_again_differs(tmp_path: Path) -> None:
    """It has no reason to tell; two that failed are alike, whyever."""
    old = replace(stored(tmp_path / "a", of("1")), records=(fp32(), failed()))
    (difference,) = list_differences(old, replace(old, records=(fp32(), of("1"))), ((), ()))
    assert str(difference) == f"status of {CASE}: failed, now ok"
    assert list_differences(old, replace(old, records=(fp32(), failed(reason="another"))), ((), ())) == ()


def test_an_artifact_or_a_score_that_is_gone_differs(tmp_path: Path) -> None:
    """Though the case ran."""
    old = stored(tmp_path / "a", of("1"))
    bare = replace(old.records[1], artifact=None, accuracy=None)
    differences = list_differences(old, replace(old, records=(fp32(), bare)), ((), ()))
    assert [str(each) for each in differences] == [
        f"artifact of {CASE}: {'1' * 16}, now none",
        f"score of {CASE}: 0.97, now None",
    ]


def test_a_record_without_an_artifact_has_no_digest() -> None:
    """As one that failed."""
    assert find_sha256(failed()) is None
    assert find_sha256(of("1")) == "1" * 64
