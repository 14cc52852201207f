"""Which cases can be explained, and from whose suite their variants are built."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from made_records import failed, fp32, info, int8
from made_runs import run_folder

from qbench import consent
from qbench import suite as suites
from qbench.errors import CaseError, UsageError
from qbench.explain.change import Change
from qbench.explain.open_case import (
    OpenCase,
    _differs,
    find_record,
    load_all_backends,
    open_case,
    read_suite,
    why_not_built,
    why_not_explained,
)
from qbench.measure.worker import INPUTS
from qbench.models.postprocess import Postprocess
from qbench.progress.live import Silent
from qbench.record.schema import Accuracy, read_case_id
from qbench.record.stored_run import MetricInfo, SuiteInfo, read_run
from qbench.suite import parse

STATIC, FP32, BROKEN = "net/static/onednn/t1/b1", "net/fp32/torch/t1/b1", "net/static/fbgemm/t1/b1"
TEXT = "suite: demo\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {modes: [fp32, static]}\n"


@pytest.fixture
def stored(tmp_path):
    """A run whose suite lies in a folder of its own."""
    file = tmp_path / "suites/demo.yaml"
    file.parent.mkdir()
    file.write_text(TEXT, encoding="utf-8")
    elsewhere = int8(STATIC)
    records = [fp32(FP32), int8(STATIC), failed(BROKEN)]
    records.append(replace(elsewhere, case=read_case_id(f"{STATIC}/avx2")))
    described = info(suite=SuiteInfo(name="demo", file=str(file), text=TEXT, overrides=()))
    return read_run(run_folder(tmp_path / "work/reports/demo/1", records, described))


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("net/static/nobody/t1/b1", "no case"),
        (FP32, "it is fp32"),
        (BROKEN, "it is failed"),
        (f"{STATIC}/avx2", "--of accuracy says what it loses there"),
    ],
)
def test_a_case_that_cannot_be_explained_is_refused_with_those_that_can(stored, case, reason):
    """One message: why, and what to name."""
    with pytest.raises(UsageError, match=reason) as error:
        find_record(stored, case)
    assert STATIC in str(error.value)


@pytest.mark.parametrize("count", [0, 1, 5, 6, 9])
def test_of_many_cases_that_can_be_explained_five_are_named(tmp_path, count):
    """And how many more there are; `none` where there are none."""
    ids = [f"net/static/onednn/t1/b{number}" for number in range(1, count + 1)]
    run = read_run(run_folder(tmp_path / "run", [fp32(FP32), *map(int8, ids)]))
    more = f" and {count - 5} more" if count > 5 else ""
    for case, why in ((FP32, f"{FP32}: it is fp32"), ("nobody", f"no case 'nobody' in {tmp_path}/run")):
        with pytest.raises(UsageError) as error:
            find_record(run, case)
        assert str(error.value).startswith(why)
        assert str(error.value).endswith(f"; cases to explain: {', '.join(ids[:5]) or 'none'}{more}")


def test_accuracy_is_explained_on_a_host_that_this_cpu_acts_as(stored):
    """An emulated one has too few answers."""
    assert find_record(stored, f"{STATIC}/avx2", ["accuracy"]).case.host == "avx2"
    emulated = replace(stored.by_id[STATIC], case=read_case_id(f"{STATIC}/qemu:Haswell"))
    assert "only what runs on this machine" in why_not_explained(emulated, ["accuracy"])


def test_variants_are_built_from_the_suite_on_disk(stored):
    """As the run had it."""
    assert read_suite(stored).suite == "demo"


def test_rules_may_have_changed_since_but_not_what_artifacts_come_from(stored, tmp_path):
    """What is built must be what was measured."""
    file = tmp_path / "suites/demo.yaml"
    file.write_text(TEXT + "gate: {accuracy: {margin: 3}}\n", encoding="utf-8")
    assert read_suite(stored).gate.accuracy.margin == 3
    file.write_text(TEXT.replace("digits-cnn", "digits-lstm"), encoding="utf-8")
    with pytest.raises(UsageError, match="since the run, models changed"):
        read_suite(stored)


def test_overrides_of_a_run_that_lead_to_other_code_are_refused(stored):
    """A run's folder can come from anybody."""
    overrides = ("data.dataset={python: evil.py:load}",)
    suite = replace(stored.info.suite, overrides=overrides)
    evil = Path(suite.file).with_name("evil.py")
    evil.write_text("def load(split): ...\n", encoding="utf-8")
    overridden = replace(stored, info=replace(stored.info, suite=suite))
    with pytest.raises(UsageError, match="names what you never ran here"):
        read_suite(overridden)
    with pytest.raises(UsageError, match=r"with the --set of the run .*evil\.py.* never ran here.*run it again"):
        read_suite(overridden, explicit=Path(suite.file))
    assert consent.note_suite(suites.read(suite.file, overrides)) is None
    assert read_suite(overridden).data.loader == "python"
    suite = replace(suite, overrides=("measure.max_seconds=1",))
    assert read_suite(replace(stored, info=replace(stored.info, suite=suite))).measure.max_seconds == 1


def test_a_suite_that_was_not_run_here_is_not_trusted(stored):
    """It can name Python; --suite is the user's word for it."""
    beside, text = stored.folder / "demo.yaml", TEXT.replace("dataset: digits", "dataset: {python: 'd.py:load'}")
    beside.write_text(text, encoding="utf-8")
    beside.with_name("d.py").write_text("def load(split): ...\n", encoding="utf-8")
    described = replace(stored.info, suite=replace(stored.info.suite, file=str(beside), text=text))
    with pytest.raises(UsageError, match=f"names what you never ran here.*name the suite: --suite {beside}"):
        read_suite(replace(stored, info=described))
    assert read_suite(replace(stored, info=described), explicit=beside).suite == "demo"
    beside.unlink()
    with pytest.raises(UsageError, match="is not there; name it with --suite"):
        read_suite(replace(stored, info=described))


def test_a_relative_path_is_found_from_below_the_folder_of_the_reports(stored, tmp_path, monkeypatch):
    """And from anywhere else; whether its code runs is another question."""
    file = tmp_path / "work/suites/demo.yaml"
    for folder in (file.parent, tmp_path / "work/notes"):
        folder.mkdir()
    file.write_text(TEXT, encoding="utf-8")
    moved = replace(stored, info=replace(stored.info, suite=replace(stored.info.suite, file="suites/demo.yaml")))
    monkeypatch.chdir(tmp_path / "work/notes")
    assert read_suite(moved).suite == "demo"
    monkeypatch.chdir(tmp_path / "suites")
    assert read_suite(moved).base == file.parent


def test_a_damaged_copy_of_the_suite_is_the_run_s_fault(stored):
    """Not that of the file on disk, which is sound."""
    suite = replace(stored.info.suite, text="suite: [demo\n")
    with pytest.raises(UsageError, match=r"run\.json: its copy of .*demo\.yaml is no suite: .*; run the suite again"):
        read_suite(replace(stored, info=replace(stored.info, suite=suite)))


def test_a_relative_path_is_looked_for_where_the_command_runs(stored):
    """The message says where that is."""
    suite = replace(stored.info.suite, file="elsewhere/demo.yaml")
    with pytest.raises(UsageError, match=f"demo.yaml is not there below {Path.cwd()}; name it"):
        read_suite(replace(stored, info=replace(stored.info, suite=suite)))


@pytest.mark.parametrize(("mode", "precision"), [("static", "fp32"), ("bf16", "bf16")])
def test_a_case_is_measured_in_the_format_that_it_has(mode: str, precision: str) -> None:
    """A rival of 16-bit floats beside int8 is read back as that, or it would be called another case."""
    case: Any = SimpleNamespace(variant=SimpleNamespace(backend="openvino", mode=mode), threads=1, batch_size=1)
    data = SimpleNamespace(evaluation_count=1, evaluation=lambda first, count: ())
    opened: Any = SimpleNamespace(data=data, cores=(0,), postprocess=None)
    spec = OpenCase.specify_worker(opened, "rival", case, cast("Any", SimpleNamespace(file=Path("model"))))
    assert spec.precision == precision


@pytest.mark.parametrize("timed", [False, True])
def test_a_postprocess_is_timed_where_the_suite_says_so(timed: bool) -> None:
    """As in the run: else it lies outside of what is timed."""
    case: Any = SimpleNamespace(variant=SimpleNamespace(backend="openvino", mode="static"), threads=1, batch_size=1)
    data = SimpleNamespace(evaluation_count=1, evaluation=lambda first, count: ())
    own = Postprocess(attribute="shapes-detector", timed=timed)
    opened: Any = SimpleNamespace(data=data, cores=(0,), postprocess=own)
    spec = OpenCase.specify_worker(opened, "rival", case, cast("Any", SimpleNamespace(file=Path("model"))))
    assert spec.postprocess == (own if timed else None)


@pytest.mark.parametrize(
    ("gate", "judged", "labelled", "name"),
    [
        ("", "sqnr", False, "sqnr"),
        ("", "top1_agreement", False, "top1_agreement"),
        ("", "top1", True, "top1"),
        ("gate: {accuracy: {metric: mae, margin: 1.0}}\n", "mae", True, "mae"),
        ("gate: {accuracy: {metric: cosine, at_least: 0.9}}\n", "cosine", False, "cosine"),
    ],
)
def test_a_case_is_explained_by_the_metric_that_judged_it(stored, gate, judged, labelled, name):
    """Also where the outputs decided on it, which are no classes: top1_agreement would refuse them."""
    accuracy = Accuracy(metric=judged, value=1.0, low=None, high=None, n=8)
    run = replace(stored, records=tuple(replace(record, accuracy=accuracy) for record in stored.records))
    data: Any = SimpleNamespace(evaluation_labels=lambda: [0] if labelled else None)
    opened: Any = SimpleNamespace(run=run, suite=parse(TEXT + gate), data=data)
    assert cast("Any", OpenCase.metric).fget(opened).name == name


def get(name: str, **facts: Any) -> Any:
    """What a case with these facts says of itself under that name."""
    return cast("Any", getattr(OpenCase, name)).fget(SimpleNamespace(**facts))


def test_what_the_run_says_of_its_metric_goes_before_what_the_suite_does():
    """A run of before says nothing: the metric's name is known then."""
    metric = SimpleNamespace(name="mae")
    for told, expected in ((MetricInfo(name="own", percent=False), "own"), (None, "mae")):
        run = SimpleNamespace(info=SimpleNamespace(metric=told))
        assert get("metric_info", run=run, metric=metric).name == expected


@pytest.mark.parametrize(("accuracy", "place"), [(None, 0), (SimpleNamespace(judged=2), 2)])
def test_the_judged_output_is_the_record_s(accuracy, place):
    """The first one where nothing was scored."""
    assert get("judged_output", record=SimpleNamespace(accuracy=accuracy)) == place


def test_what_the_suite_says_is_that_of_the_case_s_own_recipe():
    """Not what it says in another one."""
    choices = (
        SimpleNamespace(name="mine", keys=(("percentile", 90),)),
        SimpleNamespace(name="other", keys=(("calibrator", "minmax"),)),
    )
    for name, keys in (("mine", {"percentile": 90}), ("other", {"calibrator": "minmax"}), ("default", {})):
        case = SimpleNamespace(variant=SimpleNamespace(recipe=SimpleNamespace(name=name)))
        assert get("recipe_keys", case=case, suite=SimpleNamespace(recipe=choices)) == keys


@pytest.mark.parametrize(("asked", "cores"), [(None, None), (1, (3,)), (2, (2, 3))])
def test_a_child_has_the_last_cores_where_it_is_told_how_many(asked, cores, monkeypatch):
    """Those where cases are measured; any where nobody says."""
    monkeypatch.setattr(
        "qbench.explain.open_case.call", lambda function, *words, limits, cores, progress: (words, cores)
    )
    opened: Any = SimpleNamespace(cores=(1, 2, 3), limits=None, progress=SimpleNamespace(advance=None))
    assert OpenCase.call_child(opened, print, "a", cores=asked) == (("a",), cores)


def test_a_case_is_measured_on_the_last_cores_with_real_examples():
    """As many batches as a worker keeps, or as many examples as there are."""
    for batch_size, available, count in ((2, 1000, 2 * INPUTS), (2, 5, 5), (1, 1000, INPUTS)):
        variant = SimpleNamespace(backend="openvino", mode="static")
        case: Any = SimpleNamespace(variant=variant, threads=2, batch_size=batch_size)
        data = SimpleNamespace(evaluation_count=available, evaluation=lambda first, count: ((first, count),))
        opened: Any = SimpleNamespace(data=data, cores=(1, 2, 3), postprocess=None)
        spec = OpenCase.specify_worker(opened, "case", case, cast("Any", SimpleNamespace(file=Path("model"))), A="1")
        assert (spec.cores, spec.inputs, spec.environment) == ((2, 3), ((0, count),), {"A": "1"})


@pytest.mark.parametrize(("given", "used"), [(None, "own"), ("other", "other")])
def test_a_variant_is_built_with_the_case_s_data_and_never_trained(given, used, monkeypatch):
    """Unless other examples are to calibrate it; a training takes hours."""
    told: dict[str, Any] = {}
    monkeypatch.setattr("qbench.explain.open_case.build", lambda variant, **named: told.update(named) or "artifact")
    opened: Any = SimpleNamespace(model="model", data="own", cache="cache", limits=None, progress=None)
    assert OpenCase.build(opened, cast("Any", "variant"), given) == "artifact"
    assert (told["data"], told["train_qat"], told["watched"], told["root"]) == (used, False, False, "cache")


def test_backends_of_a_suite_and_those_that_are_installed_can_be_tried(monkeypatch):
    """One that a suite asks for stays with what that suite says of it, installed or not."""
    plugins = {
        "asked": SimpleNamespace(missing=lambda: None),
        "here": SimpleNamespace(missing=lambda: None),
        "gone": SimpleNamespace(missing=lambda: "not installed"),
    }
    own = SimpleNamespace(missing=lambda: "not installed")
    monkeypatch.setattr("qbench.explain.open_case.load_backends", lambda suite: {"asked": own})
    monkeypatch.setattr("qbench.explain.open_case.registry.names", lambda kind: list(plugins))
    monkeypatch.setattr("qbench.explain.open_case.registry.load", lambda kind, name: plugins[name])
    assert load_all_backends(cast("Any", None)) == {"asked": own, "here": plugins["here"]}


@pytest.mark.parametrize(
    ("record", "differs"),
    [
        (None, False),
        (SimpleNamespace(artifact=None), False),
        (SimpleNamespace(artifact=SimpleNamespace(sha256="a")), False),
        (SimpleNamespace(artifact=SimpleNamespace(sha256="b")), True),
    ],
)
def test_an_artifact_differs_from_one_that_is_known(record, differs):
    """By its bytes; of none nothing is said."""
    assert _differs(record, cast("Any", SimpleNamespace(sha256="a"))) == differs


@pytest.mark.parametrize(
    ("mode", "change", "trained"),
    [
        ("qat", Change(mode="qat"), True),
        ("qat", Change(batch_size=8), False),
        ("static", Change(mode="static"), False),
    ],
)
def test_only_what_would_be_trained_anew_is_not_built(mode, change, trained):
    """A trained network with another batch size is the same file."""
    case: Any = SimpleNamespace(variant=SimpleNamespace(mode=mode))
    assert (why_not_built(change, case) is not None) == trained


@pytest.mark.parametrize(("modes", "train"), [(("static", "fp32"), False), (("static", "fp32", "qat"), True)])
def test_examples_to_train_on_are_prepared_where_the_run_trained(stored, modes, train, monkeypatch):
    """Else the network and its data are those of another request, and come from no cache."""
    asked = []

    def call(function, request, *words, **named):
        asked.append(request.train)
        raise CaseError("enough")

    monkeypatch.setattr("qbench.explain.open_case.request_of", lambda *_, train: SimpleNamespace(train=train))
    monkeypatch.setattr("qbench.explain.open_case.call", call)
    ids = {"static": "digits-cnn/static/onednn/t1/b1", "fp32": "digits-cnn/fp32/torch/t1/b1"}
    ids["qat"] = "digits-cnn/qat/onednn/t1/b1"
    run = replace(stored, records=tuple(int8(ids[mode]) for mode in modes))
    with pytest.raises(CaseError, match="enough"):
        open_case(run, run.records[0], parse(TEXT), Path("cache"), Silent())
    assert asked == [train]
