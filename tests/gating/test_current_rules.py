"""Rules of qbench/gating/current_rules.py: which rules a run is judged by, and what is said of what changed since."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_records import fp32, info, int8

from qbench import suite as suites
from qbench.errors import SuiteError, UsageError
from qbench.gating.current_rules import note_idle_overrides, read_rules, require_rules
from qbench.record.stored_run import PlanInfo, SkipInfo, StoredRun, SuiteInfo
from qbench.suite import Suite

RULES = "gate:\n  latency: {max_regression: 5%}\n  overrides: [{mode: static, size: {max_growth: 2%}}]\n"
TEXT = f"suite: demo\nmodels: [digits-cnn]\ndata: {{dataset: digits}}\nmatrix: {{backends: [fbgemm]}}\n{RULES}"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The suite's file, in the folder that one works in."""
    monkeypatch.chdir(tmp_path)
    file = Path("demo.yaml")
    file.write_text(TEXT)
    return file


def run_of(folder: str = "reports/demo/x", file: str = "demo.yaml", *overrides: str) -> StoredRun:
    """A run of the suite as it was first written."""
    described = replace(info(), suite=SuiteInfo(name="demo", file=file, text=TEXT, overrides=overrides))
    return StoredRun(folder=Path(folder), info=described, records=(fp32(), int8()))


def test_an_unchanged_file_needs_no_note(file: Path) -> None:
    """Nor do comments and other line breaks; places are those of the file as it is."""
    file.write_text("# more\n" + TEXT)
    suite, notes = read_rules(run_of())
    assert notes == ()
    assert suite.place("gate.latency.max_regression") == "demo.yaml:7"


def test_rules_that_were_edited_after_the_run_hold(file: Path) -> None:
    """What changed is named; everything but the rules is as it was run."""
    file.write_text(
        TEXT.replace("max_regression: 5%", "min_speedup: 2").replace("2%", "3%").replace("fbgemm", "onednn")
    )
    suite, notes = read_rules(run_of())
    assert suite.gate.latency.min_speedup == 2
    assert suite.matrix.backends == ("fbgemm",)
    assert notes == (
        "demo.yaml: the rules changed after the run and hold as they are now: gate.latency.max_regression 0.05 -> not "
        "written, gate.overrides[0] mode=static, size.max_growth=0.02 -> mode=static, size.max_growth=0.03, "
        "gate.latency.min_speedup not written -> 2.0",
        "demo.yaml: since the run, matrix changed; the gate judges what was run: `qbench run demo.yaml` runs what "
        "stands there now",
    )


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("5%}", "null}", "gate.latency.max_regression 0.05 -> null"),
        ("gate:\n", "gate:\n  inconclusive: fail\n", "gate.inconclusive hold -> fail"),
        ("gate:\n", "gate:\n  missing: {new: fail}\n", "gate.missing.new skip -> fail"),
        (
            "size: {max_growth: 2%}",
            "inconclusive: skip",
            "gate.overrides[0] mode=static, size.max_growth=0.02 -> mode=static, inconclusive=skip",
        ),
    ],
)
def test_every_kind_of_rule_that_changed_is_named(file: Path, before: str, after: str, told: str) -> None:
    """With its value then and now."""
    file.write_text(TEXT.replace(before, after))
    _, notes = read_rules(run_of())
    assert notes == (f"demo.yaml: the rules changed after the run and hold as they are now: {told}",)


def test_rules_that_never_had_a_file_need_no_note(file: Path) -> None:
    """A suite that was given as a text is no lost file."""
    assert read_rules(run_of(file="<text>"))[1] == ()


def test_a_case_that_only_has_a_record_is_one_that_an_override_may_be_for(file: Path) -> None:
    """As in a run whose plan is not stored."""
    run = run_of()
    assert run.info.plan.cases == ()
    assert note_idle_overrides(run, read_rules(run)[0]) == ()


def test_an_id_that_is_no_case_s_is_one_that_no_override_is_for(file: Path) -> None:
    """A plan is data of whoever made the run: what stands there is passed over, and the others are looked at."""
    run = run_of()
    run = replace(run, records=(), info=replace(run.info, plan=PlanInfo(cases=("odd", "net/static/fbgemm/t1/b1"))))
    assert note_idle_overrides(run, read_rules(run)[0]) == ()
    odd = replace(run, info=replace(run.info, plan=PlanInfo(cases=("odd",))))
    assert len(note_idle_overrides(odd, read_rules(odd)[0])) == 1


def test_what_was_set_for_the_run_stays_set(file: Path) -> None:
    """``--set`` on a rule outlives an edit of the file, as it would if the suite were run again."""
    suite, notes = read_rules(run_of("reports/demo/x", "demo.yaml", "gate.latency.max_regression=20%"))
    assert (suite.gate.latency.max_regression, notes) == (0.2, ())


def test_a_file_that_is_named_counts_wherever_it_lies(file: Path) -> None:
    """Also where the run's own is gone."""
    other = file.rename("other.yaml")
    other.write_text(TEXT.replace("5%", "7%"))
    suite, notes = read_rules(run_of(), other)
    assert suite.gate.latency.max_regression == 0.07
    assert suite.place("gate.latency") == "other.yaml:6"
    assert "gate.latency.max_regression 0.05 -> 0.07" in notes[0]


def test_without_its_file_the_rules_are_those_of_the_run(file: Path) -> None:
    """The note says so, and how to name one."""
    suite, notes = read_rules(run_of(file="gone.yaml"))
    assert suite.gate.latency.max_regression == 0.05
    reason = "gone.yaml is not there"
    assert notes == (f"judged by the rules that the run was made with: {reason}; --suite FILE takes those of a file",)


def test_the_file_is_found_from_elsewhere(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the folder that holds the run's reports, when one works in another."""
    file.write_text(TEXT.replace("5%", "7%"))
    home = tmp_path / "elsewhere"
    home.mkdir()
    run = run_of(str(file.absolute().parent / "reports/demo/x"))
    monkeypatch.chdir(home)
    assert read_rules(run)[0].gate.latency.max_regression == 0.07


def test_a_run_that_was_just_made_is_judged_as_it_was_made(file: Path) -> None:
    """What is edited meanwhile, or not committed, has no part in it."""
    file.write_text(TEXT.replace("5%", "90%"))
    suite, notes = read_rules(run_of(), as_run=True)
    assert (suite.gate.latency.max_regression, notes) == (0.05, ())


def test_a_wrong_file_is_an_error(file: Path) -> None:
    """The rules in it cannot be read; another suite's are not this run's; none at all judge nothing."""
    file.write_text(TEXT.replace("5%", "much"))
    with pytest.raises(SuiteError, match=r"demo\.yaml:6:\d+: gate\.latency\.max_regression"):
        read_rules(run_of())
    file.write_text(TEXT.replace("suite: demo", "suite: other"))
    with pytest.raises(UsageError, match=r"demo\.yaml: this is suite 'other', the run is of 'demo'"):
        read_rules(run_of())
    file.write_text(TEXT.partition("gate:")[0])
    with pytest.raises(UsageError, match="the suite has no gate section"):
        read_rules(run_of())


def planned(*cases: str, only: str | None = None) -> StoredRun:
    """A run whose plan has those cases."""
    run = run_of()
    return replace(run, info=replace(run.info, plan=PlanInfo(cases=cases), filter=only))


@pytest.mark.parametrize(
    ("override", "idle"),
    [("mode: static", False), ("mode: qat", True), ("threads: 4, mode: static", False), ("threads: 8", True)],
)
def test_an_override_that_is_for_no_case_is_noted(file: Path, override: str, idle: bool) -> None:
    """Most likely it is a slip, by which the case that was meant is judged by other values; the note has its line."""
    file.write_text(TEXT.replace("mode: static", override))
    run = planned("net/static/fbgemm/t4/b1")
    notes = note_idle_overrides(run, read_rules(run)[0])
    assert notes == (("demo.yaml:7: gate.overrides[0] is for no case of this run",) if idle else ())


def test_a_skipped_case_is_one_that_an_override_may_be_for(file: Path) -> None:
    """A suite travels between machines; on this one the case cannot run."""
    run = replace(run_of(), records=())
    skips = (SkipInfo(id="net/static/fbgemm/t64/b1", reason="there are 2 cores"),)
    run = replace(run, info=replace(run.info, plan=PlanInfo(skipped=skips)))
    assert note_idle_overrides(run, read_rules(run)[0]) == ()


def test_a_run_of_some_cases_does_not_tell_whether_an_override_is_for_others(file: Path) -> None:
    """``qbench run --filter`` leaves the cases out of the plan that an override may be for."""
    run = planned("net/static/fbgemm/t4/b1", only="*/t4/*")
    file.write_text(TEXT.replace("mode: static", "mode: qat"))
    assert note_idle_overrides(run, read_rules(run)[0]) == ()


def parse_rules(rules: str) -> Suite:
    """A suite with those rules."""
    head = "suite: demo\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n"
    return suites.parse(head + rules, file="suites/demo.yaml")


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("", "the suite has no gate section"),
        ("gate: {}\n", "the gate has no rule"),
        ("gate: {latency: {}}\n", "the gate has no rule"),
        ("gate: {inconclusive: fail}\n", "the gate has no rule"),
        ("gate: {latency: {max_regression: null}}\n", "the gate has no rule"),
    ],
)
def test_a_suite_without_a_rule_is_told_what_to_write(rules: str, message: str) -> None:
    """Otherwise the gate would judge by what qbench thinks of, and nobody would know."""
    spec = parse_rules(rules)
    with pytest.raises(UsageError, match=message) as raised:
        require_rules(spec.gate, spec.place("gate"), written="gate" in spec.model_fields_set)
    assert "max_regression: 5%" in str(raised.value)


def test_what_to_write_fits_what_the_run_was_judged_by() -> None:
    """A margin in points, pasted beside outputs that are no classes, would make of the run one that top1 judges."""
    spec = parse_rules("")
    with pytest.raises(UsageError) as raised:
        require_rules(spec.gate, spec.place("gate"), written=False, metric="sqnr")
    pasted = parse_rules(str(raised.value).partition("write, for example:\n")[2] + "\n").gate
    assert (pasted.accuracy.metric, pasted.accuracy.at_least) == ("sqnr", 20)
    assert pasted.has_rules
