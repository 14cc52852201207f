"""What an artifact answers on another host, from records and predictions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made_records import accuracy, failed, fp32, info, int8
from made_runs import run_folder

from qbench.portability.compare_hosts import compare_hosts, compare_outputs, find_remedy, is_other_file, judge_change
from qbench.record.schema import EmulatedExamples, HostFacts, TargetFacts, read_case_id
from qbench.record.stored_run import MetricInfo, SuiteInfo, read_run
from qbench.report.build import judge

TEXT = """
suite: demo
models: [digits-cnn]
data: {dataset: digits}
matrix: {}
hosts: [native, avx2]
gate: {accuracy: {margin: 2.0}}
"""
STATIC, FP32, N = "net/static/onednn/t1/b1", "net/fp32/torch/t1/b1", 400


def on(record, host):
    """The record as that of another host."""
    return replace(record, case=read_case_id(f"{record.case.id}/{host}"))


@pytest.fixture
def run_of(tmp_path):
    """A run of one artifact on two hosts, whose outputs on the second one are as given."""

    def run_of(native, limited, *more):
        labels = np.arange(N) % 10
        records = [fp32(FP32), int8(STATIC, accuracy=accuracy(n=N, right=388))]
        records += [on(record, "avx2") for record in records]
        outputs = [native, native, native, limited]
        stored = [
            replace(record, predictions=f"predictions/{number}.npz") for number, record in enumerate(records)
        ]  # fmt: skip
        described = info(suite=SuiteInfo(name="demo", file="s.yaml", text=TEXT))
        folder = run_folder(tmp_path / "run", [*stored, *more], described)
        (folder / "predictions").mkdir()
        for number, array in enumerate(outputs):
            np.savez(folder / f"predictions/{number}.npz", outputs=array, labels=labels, ids=labels.astype(str))
        return read_run(folder)

    return run_of


def compare(run):
    """The answers of a run's artifacts."""
    return compare_hosts(run, judge(run))


def right_answers():
    """Outputs that choose each example's label."""
    return np.eye(10, dtype=np.float32)[np.arange(N) % 10]


def test_the_same_outputs_are_the_same_bits(run_of):
    """No example differs, and the verdict is no loss at all."""
    (artifact,) = compare(run_of(right_answers(), right_answers()))
    native, limited = artifact.hosts
    assert (native.host, native.outputs, native.against_native) == ("native", None, None)
    assert limited.outputs is not None
    assert limited.outputs.same_bits
    assert (limited.outputs.largest, limited.outputs.agreement, limited.outputs.n) == (0.0, 1.0, N)
    assert limited.against_native is not None
    assert limited.against_native.outcome == "PASS"


def test_a_second_output_that_differs_is_seen(run_of):
    """All outputs are looked at, also where the first one is the same bit by bit."""
    run = run_of(right_answers(), right_answers())
    for number, more in enumerate((0.0, 0.0, 0.0, 0.25)):
        file = run.folder / f"predictions/{number}.npz"
        boxes = np.ones((N, 2, 3), dtype=np.float32)
        boxes[:7] += more
        with np.load(file) as stored:
            arrays = {**stored, "outputs.1": boxes}
        np.savez(file, **arrays)
    ((_, limited),) = (artifact.hosts for artifact in compare(read_run(run.folder)))
    assert limited.outputs is not None
    assert (limited.outputs.differing, limited.outputs.largest, limited.outputs.agreement) == (7, 0.25, 1.0)


@pytest.mark.parametrize("more", [0.0, 0.25])
def test_answers_are_compared_where_outputs_are_not_kept(run_of, more):
    """Of all examples, and also where one host found a row more than the other in each."""
    run = run_of(right_answers(), right_answers())
    for number in range(4):
        file = run.folder / f"predictions/{number}.npz"
        boxes = np.full((N, 3 if number == 3 else 2, 6), -1, dtype=np.float32)
        boxes[:, 0] = 1
        boxes[-7:, 0] += more * (number == 3)
        with np.load(file) as stored:
            arrays = {**stored, "outputs": stored["outputs"][:5], "answers": boxes}
        np.savez(file, **arrays)
    read = read_run(run.folder)
    native, limited = (next(r for r in read.records if r.case.id == case) for case in (STATIC, f"{STATIC}/avx2"))
    change = compare_outputs(read, limited, replace(native, accuracy=replace(native.accuracy, flips=None)))
    assert change is not None
    assert (change.n, change.differing, change.largest) == (N, 7 if more else 0, more)


def test_outputs_that_choose_no_class_agree_on_none(run_of):
    """Where the metric counts no flips, how often the same class is chosen is not known, and is not 100 %."""
    run = run_of(right_answers(), right_answers() * 0.5)
    native = next(r for r in run.records if r.case.id == STATIC)
    limited = next(r for r in run.records if r.case.id == f"{STATIC}/avx2")
    plain = replace(native, accuracy=replace(native.accuracy, flips=None))
    change = compare_outputs(run, limited, plain)
    assert change is not None
    assert (change.agreement, change.other_class, change.differing) == (None, (), N)


@pytest.mark.parametrize(("wrong", "outcome"), [(0, "PASS"), (8, "INCONCLUSIVE"), (60, "FAIL")])
def test_the_loss_is_held_against_the_margin(run_of, wrong, outcome):
    """Examples that were right here and are wrong there are paired, against the suite's margin of 2 points."""
    limited = right_answers() * 0.5
    limited[:wrong] = np.roll(limited[:wrong], 1, axis=1)
    (artifact,) = compare(run_of(right_answers(), limited))
    answer = artifact.hosts[1]
    assert answer.outputs is not None
    assert (answer.outputs.differing, answer.outputs.agreement) == (N, 1 - wrong / N)
    assert answer.outputs.largest == (1.0 if wrong else 0.5)
    assert answer.outputs.other_class == tuple(str(i % 10) for i in range(wrong))  # the ids of the fixture
    assert answer.against_native is not None
    assert answer.against_native.outcome == outcome
    assert (answer.margin, answer.value, answer.p50_seconds) == (2.0, 388 / 400, 0.001)
    assert (answer.against_fp32, artifact.sha256, artifact.target) == (artifact.hosts[0].against_fp32, "0" * 64, None)
    assert answer.against_fp32 is not None


@pytest.mark.parametrize(
    ("case", "remedy"),
    [
        ("net/static/onednn/t1/b1/avx2", "`quantize.target: [avx2]`"),
        ("net/static/openvino/t1/b1/avx512", "`quantize.target: [avx512]`"),
        ("net/static/onnxruntime/t1/b1/other", "`quantize.target: [avx2]`"),
        ("net/static@framework-default/fbgemm/t1/b1/avx2", "qbench's own recipe with `quantize.target: [avx2]`"),
        (
            "net/static@file-mine/onnxruntime/t1/b1/avx2",
            "int8 built by qbench from the fp32 network, with `quantize.target: [avx2]`",
        ),
    ],
)
def test_the_remedy_is_how_it_is_built_anew(case, remedy):
    """Where sums are added in 16 bits, and the artifact was not built for such a CPU already."""
    record = replace(int8(STATIC), case=read_case_id(case), host=HostFacts(kind="limited", int8_sums="16 bits"))
    assert find_remedy(record) == remedy
    assert find_remedy(replace(record, host=HostFacts(kind="limited", int8_sums="32 bits"))) is None
    assert record.artifact is not None
    built_so = replace(record.artifact, target=TargetFacts(cpus=("avx2", "avx512")))
    assert find_remedy(replace(record, artifact=built_so)) is None


def test_another_file_on_a_host_is_compared_with_nothing(run_of):
    """The same case of other bytes is no answer of this artifact."""
    run = run_of(right_answers(), right_answers())
    there = run.records[3]
    assert there.artifact is not None
    other = replace(there, artifact=replace(there.artifact, sha256="f" * 64))
    (artifact,) = compare(replace(run, records=[*run.records[:3], other]))
    answer = artifact.hosts[1]
    assert (answer.other_file, answer.outputs, answer.against_native) == (True, None, None)
    assert not artifact.hosts[0].other_file


def test_a_host_without_a_case_of_an_artifact_is_named(run_of):
    """A run that was cut has other artifacts there."""
    alone = int8("net/static/fbgemm/t1/b1", accuracy=accuracy(n=N, right=388))
    first, second = compare(run_of(right_answers(), right_answers(), alone))
    assert (first.missing, second.missing) == ((), ("avx2",))


def test_what_does_not_run_there_keeps_its_reason(run_of):
    """An artifact without a record on this machine is compared with nothing, and a failure says why."""
    reason = "does not run on avx2: the process was ended by SIGILL"
    crashed = on(failed("net/static/inductor/t1/b1", reason=reason), "avx2")
    artifacts = compare(run_of(right_answers(), right_answers(), crashed))
    answer = artifacts[1].hosts[0]
    assert (answer.host, answer.status, answer.reason, answer.outputs) == ("avx2", "failed", reason, None)


def test_a_run_of_one_host_has_nothing_to_compare(tmp_path):
    """No artifact is said to be safe where it was not tried."""
    assert compare(read_run(run_folder(tmp_path / "run", [fp32(FP32), int8(STATIC)]))) == ()


def test_examples_that_a_host_left_out_are_not_compared(run_of):
    """A host that answered some is held against the native answers to just those, and the ids are theirs."""
    answers = right_answers()
    there = answers[[3, 5]].copy()
    there[1] = np.roll(there[1], 1)
    run = run_of(answers, there)
    native = next(r for r in run.records if r.case.id == STATIC)
    limited = next(r for r in run.records if r.case.id == f"{STATIC}/avx2")
    file = run.folder / str(limited.predictions)
    stored = dict(np.load(file)) | {"positions": np.array([3, 5])}
    np.savez(file, **stored)
    change = compare_outputs(run, limited, native)
    assert change is not None
    assert (change.n, change.differing, change.agreement, change.other_class) == (2, 1, 0.5, ("5",))
    np.savez(file, **stored | {"positions": np.array([3, N])})
    assert compare_outputs(run, limited, native) is None


def test_a_remedy_is_for_sums_of_a_case_that_ran():
    """Without the facts of a host, without a run, or without an artifact to tell its target."""
    there = replace(on(int8(STATIC), "avx2"), host=HostFacts(kind="limited", int8_sums="16 bits"))
    assert find_remedy(replace(there, host=None)) is None
    assert find_remedy(replace(there, status="failed")) is None
    assert find_remedy(replace(there, artifact=None)) == "`quantize.target: [avx2]`"
    assert there.artifact is not None
    other = replace(there.artifact, target=TargetFacts(cpus=("avx512",)))
    assert find_remedy(replace(there, artifact=other)) == "`quantize.target: [avx2]`"
    own = replace(there, case=replace(there.case, recipe="file"))
    assert str(find_remedy(own)).startswith("int8 built by qbench")
    named = replace(there, case=replace(there.case, recipe="files"))
    assert find_remedy(named) == "`quantize.target: [avx2]`"


def test_files_are_other_ones_only_where_both_are_known():
    """One that is not known says nothing."""
    record = int8(STATIC)
    assert record.artifact is not None
    changed = replace(record, artifact=replace(record.artifact, sha256="f" * 64))
    bare = replace(record, artifact=None)
    assert [is_other_file(*pair) for pair in ((record, record), (record, changed), (record, bare), (bare, record))] == [
        *(False, True, False, False)
    ]


@pytest.mark.parametrize(
    ("metric", "margin", "outcome"),
    [
        (MetricInfo(name="top1"), 3.0, "PASS"),
        (MetricInfo(name="top1"), 1.0, "FAIL"),
        (MetricInfo(name="error", higher_is_better=False), 1.0, "PASS"),
        (MetricInfo(name="score", percent=False), 0.03, "PASS"),
        (MetricInfo(name="score", percent=False), 0.01, "FAIL"),
    ],
)
@pytest.mark.parametrize("right", [1.0, 0.99])
def test_a_loss_is_held_against_the_margin_in_the_metrics_own_direction(metric, margin, outcome, right):
    """20 of 1,000 that were right are wrong: a loss of 2 points of a score, and none of an error; of right or wrong by
    the flips, of other values by their mean."""
    old = np.full(1000, right)
    new = old.copy()
    new[:20] = 0.0
    verdict = judge_change(new, old, metric, margin)
    assert verdict.outcome == outcome
    assert verdict.delta.value == pytest.approx(-0.02 * right * metric.sign)
    assert verdict.method == ("score" if right == 1.0 else "weighted mean")


def place(run, record, **arrays):
    """Other predictions of a record."""
    np.savez(run.folder / str(record.predictions), **arrays)


def of_case(run, case):
    """The record of a case."""
    return next(record for record in run.records if record.case.id == case)


@pytest.mark.parametrize(
    ("native", "limited", "expected"),
    [
        ([[1, np.nan]], [[1, np.nan]], (0, 0.0)),
        ([[1, np.nan]], [[3, np.nan]], (1, 2.0)),
        ([[1, np.nan]], [[1, 5]], (1, 0.0)),
        ([[1, 5]], [[1, np.nan]], (1, 0.0)),
        ([[1, 2]], [[1, 2, 3]], None),
        (np.zeros((0, 2)), np.zeros((0, 2)), None),
        ([[200], [3]], np.array([[100], [3]], np.uint8), (1, 100.0)),
    ],
)
def test_outputs_are_compared_bit_by_bit(run_of, native, limited, expected):
    """What is no number on both is the same; of other shapes, or of nothing, nothing is known."""
    run = run_of(right_answers(), right_answers())
    ours, theirs = of_case(run, f"{STATIC}/avx2"), of_case(run, STATIC)
    place(run, ours, outputs=np.asarray(limited))
    place(run, theirs, outputs=np.asarray(native, np.uint8 if np.asarray(limited).dtype == np.uint8 else float))
    change = compare_outputs(run, ours, replace(theirs, accuracy=None))
    assert (None if change is None else (change.differing, change.largest)) == expected


def test_outputs_that_are_kept_of_a_few_are_compared_as_far_as_both_go(run_of):
    """Where one host has no answers of all examples beside them."""
    run = run_of(right_answers(), right_answers())
    ours, theirs = of_case(run, f"{STATIC}/avx2"), of_case(run, STATIC)
    rows = np.eye(4, 6)
    place(run, ours, outputs=rows[:3], answers=np.zeros((9, 1, 6)))
    place(run, theirs, outputs=rows)
    change = compare_outputs(run, ours, replace(theirs, accuracy=None))
    assert change is not None
    assert (change.n, change.differing) == (3, 0)
    place(run, theirs, labels=np.zeros(4))
    assert compare_outputs(run, ours, theirs) is None
    assert compare_outputs(run, theirs, ours) is None


@pytest.mark.parametrize("positions", [None, [1, 2]])
def test_an_output_that_one_side_lacks_is_left_out(run_of, positions):
    """What both have is compared; answers beside outputs of all examples add nothing to these."""
    run = run_of(right_answers(), right_answers())
    ours, theirs = of_case(run, f"{STATIC}/avx2"), of_case(run, STATIC)
    rows = np.eye(4, 6)
    kept = rows if positions is None else rows[positions]
    more = {} if positions is None else {"positions": np.array(positions)}
    place(run, ours, **{"outputs": kept, "outputs.1": np.ones((len(kept), 2))}, **more)
    place(run, theirs, outputs=rows)
    native = replace(theirs, accuracy=None)
    change = compare_outputs(run, ours, native)
    assert change is not None
    assert (change.n, change.differing) == (len(kept), 0)
    place(run, ours, outputs=kept + 0.5, answers=np.zeros((len(kept), 1)), **more)
    place(run, theirs, outputs=rows, answers=np.zeros((4, 1)))
    change = compare_outputs(run, ours, native)
    assert change is not None
    assert (change.n, change.differing) == (len(kept), len(kept))
    place(run, ours, outputs=rows[:0], positions=np.array([], dtype=int))
    assert compare_outputs(run, ours, native) is None


def test_outputs_of_two_runs_are_those_of_each(run_of, tmp_path):
    """A case has the same name in both."""
    run = run_of(right_answers(), right_answers())
    record = of_case(run, STATIC)
    other = run_folder(tmp_path / "other", list(run.records))
    (other / "predictions").mkdir()
    np.savez(other / str(record.predictions), outputs=right_answers() * 0.5)
    change = compare_outputs(run, record, replace(record, accuracy=None), read_run(other))
    assert change is not None
    assert (change.differing, change.largest) == (N, 0.5)


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        ({"ids": np.array(["x", "y"]), "positions": np.array([3, 5])}, ("x", "y")),
        ({"positions": np.array([3, 5])}, ("3", "5")),
        ({}, ("0", "1")),
        ({"ids": np.array(["x"])}, ("x", "1")),
    ],
)
def test_examples_of_another_class_have_their_ids_or_else_their_places(run_of, stored, told):
    """Those among all examples, where a host answered some of them."""
    run = run_of(right_answers(), right_answers())
    ours, theirs = of_case(run, f"{STATIC}/avx2"), of_case(run, STATIC)
    place(run, theirs, outputs=np.eye(8))
    rows = np.eye(8)[stored.get("positions", [0, 1])]
    place(run, ours, outputs=np.roll(rows, 1, axis=1), **stored)
    if "positions" not in stored:
        place(run, theirs, outputs=np.eye(8)[:2])
    change = compare_outputs(run, ours, theirs)
    assert change is not None
    assert (change.agreement, change.other_class) == (0.0, told)


def test_an_emulated_host_tells_which_others_give_its_bits(run_of):
    """Of those that answered the same examples, this machine and other emulated ones aside; it is judged by no
    margin."""
    answers = right_answers()
    run = run_of(answers, answers * 0.5)
    avx2 = of_case(run, f"{STATIC}/avx2")
    examples = EmulatedExamples(n=2, of=N, chosen="nearest to flipping")
    emulated = replace(
        on(int8(STATIC), "qemu:max"),
        host=HostFacts(kind="emulated", examples=examples),
        predictions="predictions/4.npz",
    )
    np.savez(run.folder / "predictions/4.npz", outputs=answers[[3, 5]] * 0.5, positions=np.array([3, 5]))
    failed_there = replace(on(int8(STATIC), "avx512"), status="failed", predictions=avx2.predictions)
    twin = replace(emulated, case=read_case_id(f"{STATIC}/qemu:Haswell"))
    (artifact,) = compare(replace(run, records=[*run.records, emulated, failed_there, twin]))
    assert [answer.host for answer in artifact.hosts] == ["native", "avx2", "qemu:max", "avx512", "qemu:Haswell"]
    by_host = {answer.host: answer for answer in artifact.hosts}
    assert by_host["qemu:max"].same_as == ("avx2",)
    assert by_host["avx2"].same_as == ()
    assert by_host["qemu:max"].against_native is None
    assert by_host["avx2"].against_native is not None
    assert by_host["qemu:max"].outputs is not None
    assert by_host["qemu:max"].outputs.differing == 2
    np.savez(run.folder / "predictions/4.npz", outputs=answers[[3, 5]], positions=np.array([3, 5]))
    (artifact,) = compare(replace(run, records=[*run.records, emulated]))
    assert artifact.hosts[2].same_as == ()
    unstored = replace(avx2, case=read_case_id(f"{STATIC}/avx512"), predictions=None)
    (artifact,) = compare(replace(run, records=[*run.records, emulated, unstored]))
    assert artifact.hosts[2].same_as == ()


def test_artifacts_are_grouped_by_what_answers(run_of):
    """Threads and batches of a static one are one, this machine's answer first; a dynamic one answers by the batch, and
    an fp32 is none."""
    run = run_of(right_answers(), right_answers())
    more = [
        on(int8("net/static/onednn/t2/b8"), "avx2"),
        *(on(int8(f"net/dynamic/onednn/t1/b{batch}"), "avx2") for batch in (1, 8)),
        int8("net/dynamic/onednn/t1/b8"),
    ]
    artifacts = compare(replace(run, records=[*more, *run.records]))
    told = [(artifact.case, [answer.case for answer in artifact.hosts]) for artifact in artifacts]
    dynamic = "net/dynamic/onednn/t1/b8"
    assert sorted(told) == sorted(
        [
            (dynamic, [dynamic, f"{dynamic}/avx2"]),
            (STATIC, [STATIC, "net/static/onednn/t2/b8/avx2"]),
            ("net/dynamic/onednn/t1/b1/avx2", ["net/dynamic/onednn/t1/b1/avx2"]),
        ]
    )
