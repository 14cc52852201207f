"""Rules of qbench/record/stored_run.py: how the suite's metric is shown."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qbench import registry
from qbench.datasets.preprocessing import Preprocessing
from qbench.errors import UsageError
from qbench.record import run_files
from qbench.record.schema import Accuracy, Record, read_case_id
from qbench.record.stored_run import (
    BOUNDS,
    ExamplesInfo,
    MetricInfo,
    QuickInfo,
    RunInfo,
    StoredRun,
    SuiteInfo,
    read_info,
    read_run,
)
from qbench.stats.interval_type import Interval

CHANGE = Interval(value=-0.002, low=-0.01, high=0.005)


@pytest.mark.parametrize(
    ("metric", "change", "shown"),
    [
        (MetricInfo(name="top1"), CHANGE, "-0.2 [-1.0, +0.5] points"),
        (MetricInfo(name="top1"), Interval(value=0.0), "0.0 points"),
        (MetricInfo(name="mae", percent=False, own_unit="px"), CHANGE, "-0.002 [-0.010, +0.005] px"),
        (MetricInfo(name="loss", percent=False), CHANGE, "-0.002 [-0.010, +0.005]"),
    ],
)
def test_a_change_has_its_sign_its_limits_and_the_unit_of_differences(
    metric: MetricInfo, change: Interval, shown: str
) -> None:
    """The same wherever it stands; points for shares, else the metric's own unit, where it has one."""
    assert metric.show_change(change) == shown


@pytest.mark.parametrize(("axis", "fits"), [(-4, True), (-5, False), (3, True), (4, False), (1, True)])
def test_the_axis_of_the_channels_lies_within_a_batch(axis: int, fits: bool) -> None:
    """Of examples of three axes a batch has four; counted from either side."""
    facts = {"types": ("float32",), "shapes": ((3, 8, 8),), "mean": (0.1, 0.2, 0.3), "channel_axis": axis}
    if fits:
        assert ExamplesInfo(**facts).channel_axis == axis  # type: ignore[arg-type]
    else:
        with pytest.raises(ValueError, match="channel_axis lies outside"):
            ExamplesInfo(**facts)  # type: ignore[arg-type]


def test_examples_are_prepared_as_the_data_set_prepares_them_where_a_run_says_nothing() -> None:
    """An older run lacks the keys that came later, and what they stood for then is what data sets do by themselves."""
    told = asdict(ExamplesInfo(types=("float32",), shapes=((3, 8, 8),)))
    assert {key: told[key] for key in asdict(Preprocessing())} == asdict(Preprocessing())


@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_no_example_lies_beyond_the_bounds_of_its_metric(name: str) -> None:
    """The best that an example can be, and the worst of a metric that has one, are the bounds themselves, in the sense
    in which more is better."""
    metric = registry.load("metric", name)
    info = MetricInfo(name=name, percent=metric.percent, higher_is_better=metric.higher_is_better)
    low, high = info.bounds
    fp32 = np.random.default_rng(0).standard_normal((30, 4))
    perfect, opposite, zeros = (info.sign * metric.per_example(outputs, fp32) for outputs in (fp32, -fp32, 0 * fp32))
    assert perfect.tolist() == [high] * 30
    assert low is None or min(*opposite, *zeros) <= low
    assert low is None or low in (opposite[0], zeros[0])


@pytest.mark.parametrize(("higher_is_better", "lowest"), [(True, 0.0), (False, None)])
def test_a_share_of_which_more_is_better_is_at_least_0(higher_is_better: bool, lowest: float | None) -> None:
    """Nothing bounds it from above for sure: an example of a macro score may count more than once."""
    assert MetricInfo(name="top1", higher_is_better=higher_is_better).bounds == (lowest, None)


def test_a_score_against_fp32_is_shown_whole() -> None:
    """Where fp32 scores ``perfect`` by itself, the change from it is the whole distance; else it is shown as a change,
    and a metric of which less is better has the sign -1."""
    change = Interval(value=-60.0, low=-62.0, high=-58.0)
    sqnr = MetricInfo(name="sqnr", percent=False, against="fp32", own_unit="dB", perfect=100.0)
    assert sqnr.show_against_fp32(change) == "40 [38, 42] dB"
    assert replace(sqnr, perfect=None).show_against_fp32(change) == sqnr.show_change(change)
    agreement = MetricInfo(name="top1_agreement", against="fp32", perfect=1.0)
    assert agreement.show_against_fp32(Interval(value=-0.5)) == "50.0 %"
    assert agreement.show_change(Interval(value=-1.0)) == "-100.0 points"
    assert (sqnr.sign, replace(sqnr, higher_is_better=False).sign) == (1.0, -1.0)


def test_the_values_of_a_case_are_those_of_the_output_that_was_judged(tmp_path: Path) -> None:
    """Of its own predictions and of its fp32's, where a network returns several and the worst is another than the
    first."""
    random = np.random.default_rng(0)
    first, second = random.standard_normal((2, 30, 4))
    folder = tmp_path / "run"
    (folder / "predictions").mkdir(parents=True)
    np.savez(folder / "predictions/fp32.npz", **{"outputs": first, "outputs.1": second})
    np.savez(folder / "predictions/int8.npz", **{"outputs": first + 0.01, "outputs.1": second + 0.5})
    key = read_case_id("m/static/onnxruntime/t1/b1")
    base = Record(case=read_case_id("m/fp32/onnxruntime/t1/b1"), status="ok", predictions="predictions/fp32.npz")
    scored = Accuracy(metric="sqnr", value=6.0, low=5.0, high=7.0, n=30, judged=1)
    case = Record(case=key, status="ok", predictions="predictions/int8.npz", accuracy=scored)
    info = RunInfo(suite=SuiteInfo(name="s"), metric=MetricInfo(name="sqnr"))
    run = StoredRun(folder=folder, info=info, records=(base, case))
    sqnr = registry.load("metric", "sqnr")
    values = run.values(case, base)
    assert values is not None
    np.testing.assert_allclose(values, sqnr.per_example(second + 0.5, second))
    new, old = run.pairs(case, base) or (None, None)
    assert old is not None
    assert new is not None
    assert (old == 100.0).all()
    np.testing.assert_allclose(new, values)
    assert run.judged_predictions(case)["outputs"].tolist() == (second + 0.5).tolist()
    assert run.predictions(case)["outputs"].tolist() == (first + 0.01).tolist()


@pytest.mark.parametrize(
    ("examples", "of", "scored"),
    [
        (None, None, "few evaluation examples"),
        (None, 9_000, "few evaluation examples"),
        (1_500, None, "all 1,500 evaluation examples"),
        (1_500, 1_500, "all 1,500 evaluation examples"),
        (1_500, 1_499, "all 1,500 evaluation examples"),
        (1_500, 1_501, "1,500 of 1,501 evaluation examples"),
    ],
)
def test_a_quick_look_says_how_much_it_scored(examples: int | None, of: int | None, scored: str) -> None:
    """And what to do for more."""
    assert QuickInfo(examples=examples, of=of).text == (
        f"quick look: coarse timing in one process, {scored}, nothing trained; run it without --quick to decide"
    )


@pytest.mark.parametrize(
    ("mean", "std", "words"),
    [
        ((0.1, 0.2), (1.0, 1.0, 1.0), "mean and std must hold"),
        ((0.1, 0.2, 0.3), (1.0, 1.0), "mean and std must hold"),
        ((), (1.0,), "mean and std must hold"),
        ((), (), "mean and std must hold"),
        ((0.1, 0.2, 0.3), (), "mean and std must hold"),
    ],
)
def test_a_mean_and_a_deviation_are_one_number_or_one_for_each_channel(
    mean: tuple[float, ...], std: tuple[float, ...], words: str
) -> None:
    """And none is missing."""
    with pytest.raises(ValueError, match=words):
        ExamplesInfo(types=("float32",), shapes=((3, 8, 8),), mean=mean, std=std)


def test_facts_of_examples_belong_together() -> None:
    """Each input has a type and a shape; the axis of the channels tells nothing where there is one number for all, and
    lies within the batch where there are no examples, too."""
    with pytest.raises(ValueError, match="types and shapes differ in length"):
        ExamplesInfo(types=("float32",), shapes=())
    assert ExamplesInfo(types=("float32",), shapes=((3,),), channel_axis=9).channel_axis == 9
    for mean, std in (((0.1, 0.2), (1.0,)), ((0.0,), (1.0, 2.0))):
        assert ExamplesInfo(types=("float32",), shapes=((2,),), mean=mean, std=std).channel_axis == 1
    assert ExamplesInfo(types=(), shapes=(), mean=(0.1, 0.2), channel_axis=0).channel_axis == 0
    with pytest.raises(ValueError, match="channel_axis lies outside"):
        ExamplesInfo(types=(), shapes=(), mean=(0.1, 0.2), channel_axis=1)


def run_with(folder: Path, *records: Record, **changes: Any) -> StoredRun:
    """A run of a metric of right or wrong."""
    facts = {"metric": MetricInfo(name="top1"), **changes}
    return StoredRun(folder=folder, info=RunInfo(suite=SuiteInfo(name="s"), **facts), records=records)


def write(folder: Path, name: str, **arrays: Any) -> str:
    """A file of a run."""
    file = folder / f"{name}.npz"
    np.savez(file, **{key: np.asarray(array) for key, array in arrays.items()})
    return file.name


def test_damage_is_noted_once_and_read_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is to be noted: under the name of the file, with the reason; what is whole is read once for it, and
    every file that a record names is looked at."""
    (tmp_path / "broken.npz").write_bytes(b"no archive")
    (tmp_path / "layers.json").write_text("no numbers")
    good = write(tmp_path, "good", outputs=np.zeros((2, 3)))
    key = read_case_id("m/static/x86/t1/b1")
    assert key is not None
    case = Record(case=key, status="ok", samples=good, predictions="broken.npz", layers="layers.json")
    gone = replace(case, samples="gone.npz", predictions=None, layers=None)
    run = replace(run_with(tmp_path, case, gone), damage={})
    read: list[str] = []
    for name in ("read_arrays", "read_layers"):
        function = getattr(run_files, name)
        monkeypatch.setattr(
            run_files, name, lambda folder, file, function=function: read.append(file) or function(folder, file)
        )
    assert run.samples(case)["outputs"].shape == (2, 3)
    assert read == [good]
    assert (run.predictions(case), run.layer_numbers(case), run.samples(gone)) == ({}, (), {})
    damage = run.find_damage()
    assert sorted(damage) == ["broken.npz", "gone.npz", "layers.json"]
    assert damage["gone.npz"] == "is not there"
    assert damage["layers.json"] == "cannot be read as numbers of layers"
    assert damage["broken.npz"].startswith("cannot be read as stored arrays")
    assert read == [good, "broken.npz", "layers.json"]
    assert replace(run, damage={}, _intact=set()).find_damage() == damage
    strict = replace(run, damage=None)
    assert strict.find_damage() == {}
    assert strict.samples(gone) == {}
    with pytest.raises(UsageError, match="broken.npz: cannot be read"):
        strict.predictions(case)


def test_the_metric_of_a_foreign_run_loads_no_code(tmp_path: Path) -> None:
    """Neither that of a file that its metric names, nor a plug-in's that is not installed here; what such a score said
    of each example is read where the run kept it, for as many as there are outputs."""
    (tmp_path / "score.py").write_text("raise SystemExit('ran')")
    key = read_case_id("m/static/x86/t1/b1")
    assert key is not None
    predictions = write(tmp_path, "p", outputs=np.zeros((2, 3)), labels=[0, 1])
    case = Record(case=key, status="ok", predictions=predictions)
    for name in (f"python:{tmp_path}/score.py:score", "of_nobody"):
        (tmp_path / "p.values.npz").unlink(missing_ok=True)
        run = run_with(tmp_path, case, metric=MetricInfo(name=name))
        assert run.values(case) is None
        assert run.score_of_facts is None
        assert run.examples(case) is None
        write(tmp_path, "p.values", values=[0.25, 0.5])
        values = run.values(case)
        assert values is not None
        assert values.tolist() == [0.25, 0.5]
        assert run.examples(case) is not None
        write(tmp_path, "p.values", values=[0.25, 0.5, 1.0])
        assert run.values(case) is None
    assert run_with(tmp_path, replace(case, predictions=None), metric=None).values(case) is None
    assert run.values(replace(case, predictions=None)) is None
    assert run_with(tmp_path).score_of_facts is not None


@pytest.mark.parametrize(
    ("metric", "agrees"),
    [
        (None, False),
        (MetricInfo(name="top1"), False),
        (MetricInfo(name="top1_agreement"), True),  # what is installed tells, not the file
        (MetricInfo(name="top1", against="fp32"), False),
        (MetricInfo(name="of_nobody", against="fp32"), True),
        (MetricInfo(name="of_nobody"), False),
        (MetricInfo(name="of_nobody", against="fp32", percent=False), False),
    ],
)
def test_a_share_of_answers_that_are_fp32s_is_judged_by_agreement(metric: MetricInfo | None, agrees: bool) -> None:
    """Its outputs are classes without labels."""
    assert run_with(Path(), metric=metric).judged_by_agreement is agrees


@pytest.mark.parametrize(
    ("new", "old", "paired"),
    [
        ([0.0, 1.0], [0.0, 1.0], True),
        ([0.5, 1.0], [0.5, 1.0], False),
        ([0.5, 1.0], [0.5, 0.0], True),
        ([0.5, 0.5], [0.5, 0.0], True),
        (None, [0.0, 1.0], False),
        ([0.0, 1.0], None, False),
    ],
)
def test_values_are_paired_where_they_tell_how_far_apart_two_cases_are(
    tmp_path: Path, new: list[float] | None, old: list[float] | None, paired: bool
) -> None:
    """Of the same values of all examples only right or wrong tells; and both have to be there."""
    keys = [read_case_id(f"m/{variant}/t1/b1") for variant in ("static/x86", "fp32/torch")]
    records = []
    for name, key, values in zip("no", keys, (new, old), strict=True):
        assert key is not None
        stored = write(tmp_path, name, outputs=np.zeros((2, 3)))
        if values is not None:
            write(tmp_path, f"{name}.values", values=values)
        records.append(Record(case=key, status="ok", predictions=stored))
    run = run_with(tmp_path, *records, metric=MetricInfo(name="python:score.py:score"))
    pairs = run.pairs(*records)
    assert (pairs is not None) is paired
    if pairs is not None:
        assert [values.tolist() for values in pairs] == [new, old]


def test_values_of_unequal_numbers_of_examples_are_no_pairs(tmp_path: Path) -> None:
    """Which belong together is not known; nor has a case values whose labels are of another number."""
    keys = [read_case_id(f"m/{variant}/t1/b1") for variant in ("static/x86", "fp32/torch")]
    assert keys[0] is not None
    assert keys[1] is not None
    case = Record(case=keys[0], status="ok", predictions=write(tmp_path, "a", outputs=np.eye(3), labels=[0, 1, 2]))
    base = Record(case=keys[1], status="ok", predictions=write(tmp_path, "b", outputs=np.eye(4), labels=[0, 1, 2, 3]))
    run = run_with(tmp_path, case, base)
    assert run.pairs(case, base) is None
    short = replace(case, predictions=write(tmp_path, "c", outputs=np.eye(3), labels=[0, 1]))
    assert run.values(short) is None
    assert run.examples(short) is None
    unlabelled = replace(case, predictions=write(tmp_path, "d", outputs=np.eye(3)))
    assert run.values(unlabelled) is None
    agreement = run_with(tmp_path, case, base, metric=MetricInfo(name="sqnr", percent=False))
    assert agreement.values(case, base) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read: No such file or directory; is {folder} the folder of a run?"),
        ("{", "not the description of a run: Expecting property name enclosed in double quotes; take it from a copy, "
              "or make a new run with `qbench run SUITE`"),
        ("[]", "not the description of a run: it holds no mapping; take it from a copy, or make a new run with "
               "`qbench run SUITE`"),
        ('{"schema": 2}', "has schema 2, this qbench reads up to 1; install a newer qbench"),
        ('{"schema": 1}', "suite: Field required; take it from a copy, or make a new run with `qbench run SUITE`"),
        ('{"suite": {"name": "a/b"}, "schema": "x"}',
         "suite.name: 'a/b' leads to another folder, so it is no name of a file; take it from a copy, or make a new "
         "run with `qbench run SUITE`"),
    ],
)  # fmt: skip
def test_a_description_that_is_none_is_refused_by_its_file_and_field(
    tmp_path: Path, text: str | None, said: str
) -> None:
    """With what to do; of several faults the first one is told."""
    file = tmp_path / "run.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_info(file)
    assert str(caught.value) == f"{file}: {said.format(folder=tmp_path)}"


def test_a_folder_is_read_as_it_is(tmp_path: Path) -> None:
    """One without any record yet has none; where damage is to be noted there is room for it. None is no run."""
    (tmp_path / "run.json").write_text('{"suite": {"name": "s"}, "schema": 1}')
    run = read_run(tmp_path)
    assert (run.records, run.by_id, run.damage, run.info.suite.name) == ((), {}, None, "s")
    assert read_run(tmp_path, lenient=True).damage == {}
    with pytest.raises(UsageError) as caught:
        read_run(tmp_path / "none")
    assert str(caught.value) == (
        f"{tmp_path / 'none'}: no such folder; a run lies in reports/<suite>/<time>-<id>/ or \u2026/latest"
    )
