"""Rules of qbench/gating/trusted_suite.py: whose suite opens data when somebody else's run is gated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_records import fp32, info, int8

from qbench import consent, suite
from qbench.gating.sequential_test import NotRun
from qbench.gating.trusted_suite import suite_to_open
from qbench.record.stored_run import StoredRun, SuiteInfo

TEXT = "suite: demo\nmodels: [digits-cnn]\ndata: {{dataset: {{python: '{file}:examples'}}}}\nmatrix: {{}}\n"
TRAP = "from pathlib import Path\nPath(__file__).with_name('imported').touch()\ndef examples(): ...\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that one works in, with a suite of one's own whose data are Python."""
    folder = tmp_path / "project"
    (folder / "suites").mkdir(parents=True)
    (folder / "suites" / "data.py").write_text(TRAP)
    (folder / "suites" / "demo.yaml").write_text(TEXT.format(file="data.py"))
    monkeypatch.chdir(folder)
    return folder


def run_of(folder: Path, file: str, text: str, *overrides: str) -> StoredRun:
    """A run in a folder, of a suite with that text."""
    described = info()
    described = replace(described, suite=SuiteInfo(name="demo", file=file, text=text, overrides=overrides))
    return StoredRun(folder=folder, info=described, records=(fp32(), int8()))


@pytest.fixture
def consented(project: Path) -> None:
    """The suite was run here."""
    assert consent.note_suite(suite.read(project / "suites" / "demo.yaml")) is None


def opened(run: StoredRun, given: Path | None = None) -> suite.Suite | NotRun:
    """What may be opened for a run."""
    message = run.info.suite
    return suite_to_open(run, suite.parse(message.text, file="<run>", overrides=message.overrides), given)


@pytest.mark.usefixtures("consented")
def test_the_suite_on_disk_opens_the_data_where_it_says_the_same(project: Path) -> None:
    """One's own run is run again: its suite was run here, and nothing is imported to find that out."""
    text = (project / "suites" / "demo.yaml").read_text()
    own = opened(run_of(project / "reports" / "demo" / "x", "suites/demo.yaml", text, "measure.max_seconds=1"))
    assert isinstance(own, suite.Suite)
    assert own.base == project / "suites"
    assert not (project / "suites" / "imported").exists()


@pytest.mark.parametrize(
    ("file", "changed", "reason"),
    [
        ("suites/gone.yaml", "", "suites/gone.yaml is not there; name it with --suite"),
        ("suites/demo.yaml", "calibrate: {samples: 7}", "suites/demo.yaml has others; run the suite again"),
    ],
)
def test_another_suite_opens_nothing(project: Path, file: str, changed: str, reason: str) -> None:
    """What the run's own file says of its suite is data: no Python is imported for it."""
    text = (project / "suites" / "demo.yaml").read_text().replace("examples'}", f"examples'}}, {changed}")
    refused = opened(run_of(project / "reports" / "demo" / "x", file, text))
    assert isinstance(refused, NotRun)
    assert reason in refused.reason


@pytest.mark.usefixtures("consented")
def test_rules_that_were_edited_after_the_run_do_not_close_the_data(project: Path) -> None:
    """The data are the run's all the same."""
    run = run_of(project / "reports" / "demo" / "x", "suites/demo.yaml", (project / "suites" / "demo.yaml").read_text())
    with (project / "suites" / "demo.yaml").open("a") as file:
        file.write("gate: {size: {max_ratio: 1}}\n")
    assert isinstance(opened(run), suite.Suite)


@pytest.mark.usefixtures("consented")
@pytest.mark.parametrize("given", [False, True])
def test_an_override_leads_to_no_other_data(project: Path, given: bool) -> None:
    """Overrides are the run's, too: with them the suite's own text may name any Python, also one that is named."""
    text = (project / "suites" / "demo.yaml").read_text()
    (project / "evil.py").write_text(TRAP)
    change = f"data.dataset={{python: '{project / 'evil.py'}:examples'}}"
    run = run_of(project / "reports" / "demo" / "x", "suites/demo.yaml", text, change)
    refused = opened(run, Path("suites/demo.yaml") if given else None)
    assert isinstance(refused, NotRun)
    assert ("with the --set of the run" in refused.reason) == given
    assert "names what you never ran here" in refused.reason


@pytest.mark.usefixtures("consented")
@pytest.mark.parametrize("beside", ["reports/demo/x", "reports", ".", "..", "../suites"])
def test_a_suite_that_was_not_run_here_opens_nothing(project: Path, tmp_path: Path, beside: str) -> None:
    """An archive with a run, its suite and its Python says the same in both places, wherever they lie, be it over one's
    own suite; --suite says that it is trusted."""
    archive = project / "unpacked"
    folder = archive / "reports" / "demo" / "x"
    folder.mkdir(parents=True)
    file = archive / beside / "demo.yaml"
    (archive / beside / "data.py").write_text(f"{TRAP}# theirs\n")
    file.write_text(TEXT.format(file="data.py"))
    run = run_of(folder, str(file.resolve().relative_to(project)), file.read_text())
    refused = opened(run)
    assert isinstance(refused, NotRun)
    way_out = f"if you trust that, name the suite: --suite {file.resolve().relative_to(project)}"
    assert (
        refused.reason == f"{file.resolve().relative_to(project)} names what you never ran here, or not as it is now "
        f"(data set: python: data.py:examples); {way_out}"
    )
    assert isinstance(opened(run, given=file), suite.Suite)
    assert not list(project.rglob("imported"))


def test_a_built_in_data_set_needs_no_suite_on_disk(project: Path) -> None:
    """It is qbench's own code, whoever made the run; one that is named must be there all the same."""
    text = "suite: demo\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n"
    assert isinstance(opened(run_of(project / "x", "nowhere.yaml", text)), suite.Suite)
    named = opened(run_of(project / "x", "nowhere.yaml", text), Path("gone.yaml"))
    assert isinstance(named, NotRun)
    assert named.reason.endswith("gone.yaml is not there; name the suite of this run with --suite")


@pytest.mark.parametrize("timed", [True, False])
def test_a_postprocess_that_is_timed_is_the_users_code_too(project: Path, timed: bool) -> None:
    """Also behind built-in data it is run again only where somebody trusts it; one that is not timed is not run."""
    behind = f"{{python: 'd.py:f', timed: {str(timed).lower()}}}"
    text = (
        f"suite: demo\nmodels:\n- {{name: net, source: {{onnx: n.onnx}}, postprocess: {behind}}}\n"
        "data: {dataset: digits}\nmatrix: {}\n"
    )
    assert isinstance(opened(run_of(project / "x", "nowhere.yaml", text)), NotRun) is timed
