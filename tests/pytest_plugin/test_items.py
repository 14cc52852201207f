"""Rules of qbench/pytest_plugin: suites as tests, in a project of their own and in processes of its own."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
from short_measurements import PEAK

from qbench.cache.store import open_cache
from qbench.machine.peak import measure_peak
from qbench.process.child_process import Limits
from qbench.progress.live import Silent
from qbench.pytest_plugin import items
from qbench.pytest_plugin.judged import ItemVerdict, JudgedRun, match_exactly

pytest_plugins = ["pytester"]

SUITE = """\
suite: small
models: [{name: net, source: {python: "network.py:perceptron"}}]
data: {dataset: {npz: data.npz}, calibrate: {samples: 16}}
matrix:
  modes: [fp32, dynamic, static]
  backends: [fake]
  threads: [1, 4096]
measure: {protocol: sequential, warmup_calls: 2, calls: 20, cold_starts: 1}
gate:
  size: {max_ratio: 0.28}
  accuracy: {margin: 50.0}
"""
NETWORK = """\
from torch import nn

def perceptron():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
"""
SETTINGS = """\
[pytest]
addopts = --strict-markers -p no:anyio -p no:hypothesispytest
filterwarnings = error
"""
FP32, STATIC, DYNAMIC = "net/fp32/fake/t1/b1", "net/static/fake/t1/b1", "net/dynamic/fake/t1/b1"


@pytest.fixture(scope="module", autouse=True)
def _alone():
    """The pytest of a project is no worker, and knows the peak of this machine, which takes seconds to measure."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
            patch.delenv(name, raising=False)
        measure_peak(open_cache(), limits=Limits(), call=lambda *args, **options: PEAK)
        yield


@pytest.fixture
def project(pytester):
    """A project with a suite, its network and its data; warnings are errors."""
    write_project(pytester.path)
    return pytester


@pytest.fixture(scope="module")
def run_of_static(tmp_path_factory):
    """A project in which the test of static was run, by ``-k``, and its times saved."""
    folder = tmp_path_factory.mktemp("project")
    write_project(folder)
    words = ("-p", "no:xdist", "-k", "static and t1", "--benchmark-save=first")
    done = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=folder, capture_output=True, text=True)
    assert "1 passed, 6 deselected" in done.stdout, done.stdout
    return folder


@pytest.fixture
def project_with_run(pytester, run_of_static):
    """A copy of that project."""
    shutil.copytree(run_of_static, pytester.path, symlinks=True, dirs_exist_ok=True)
    return pytester


def write_project(folder):
    rng = np.random.default_rng(0)
    arrays = {"train_inputs": rng.random((32, 1, 8, 8), dtype=np.float32), "train_labels": np.arange(32) % 10}
    arrays |= {"test_inputs": rng.random((20, 1, 8, 8), dtype=np.float32), "test_labels": np.arange(20) % 10}
    np.savez(folder / "data.npz", **arrays)
    (folder / "network.py").write_text(NETWORK)
    (folder / "qbench_small.yaml").write_text(SUITE)
    (folder / "tox.ini").write_text(
        "[pytest]\naddopts = --strict-markers -p no:anyio -p no:hypothesispytest\nfilterwarnings = error\n"
    )


def test_each_case_is_a_test_that_its_gate_judges(project):
    """One run for all items: fp32 and static pass, dynamic is too large for the rule and fails with its line, the cases
    with too many threads are skipped with the reason, and pytest-benchmark gets the calls that the run stored."""
    result = project.runpytest_subprocess(
        "-p", "no:xdist", "-rs", "--benchmark-json=times.json", "--junitxml=junit.xml"
    )
    result.assert_outcomes(passed=3, failed=1, skipped=3)
    result.stdout.fnmatch_lines(["*net/dynamic/fake/t1/b1*size*qbench_small.yaml:10*", "*qbench report*reports*small*"])
    result.stdout.fnmatch_lines(["qbench small: build (* ...", "qbench small: measure* ..."])  # a sign of life
    result.stdout.fnmatch_lines(["SKIPPED*4096*"])
    result.stdout.fnmatch_lines(["*benchmark 'net t1 b1': 3 tests*"])
    assert len([path for path in (project.path / "reports/small").iterdir() if not path.is_symlink()]) == 1
    benchmarks = json.loads((project.path / "times.json").read_text())["benchmarks"]
    assert {benchmark["name"] for benchmark in benchmarks} == {FP32, STATIC, DYNAMIC}
    (folder,) = (project.path / "reports/small").glob("2*")
    exported = _export(folder, project.path)
    for benchmark in benchmarks:
        assert benchmark["stats"]["data"] == exported[benchmark["name"]]
    tests = ElementTree.parse(project.path / "junit.xml").getroot().iter("testcase")
    assert sum(test.find("failure") is not None for test in tests) == 1


def _export(folder, here):
    """The calls of each case by ``qbench export``."""
    command = [sys.executable, "-m", "qbench", "export", str(folder), "--format", "pytest-benchmark", "-o", "x.json"]
    subprocess.run(command, cwd=here, check=True)
    return {each["name"]: each["stats"]["data"] for each in json.loads((here / "x.json").read_text())["benchmarks"]}


def test_k_selects_what_is_run_and_compare_fail_works(project_with_run):
    """``-k`` runs what it keeps and the fp32 that it needs; a slowdown against a saved file fails the session."""
    project = project_with_run
    (folder,) = (project.path / "reports/small").glob("2*")
    records = [json.loads(line)["case"]["id"] for line in (folder / "records.jsonl").read_text().splitlines()]
    assert set(records) == {FP32, STATIC}
    (saved,) = (project.path / ".benchmarks").rglob("*.json")
    faster = json.loads(saved.read_text())
    for benchmark in faster["benchmarks"]:
        benchmark["stats"] |= {name: benchmark["stats"][name] / 1000 for name in ("min", "mean", "median")}
    saved.write_text(json.dumps(faster))
    result = project.runpytest_subprocess(
        "-p", "no:xdist", "-k", "static and t1", "--benchmark-compare=0001", "--benchmark-compare-fail=mean:50%"
    )
    assert result.ret != 0
    result.stderr.fnmatch_lines(["*Performance has regressed*"])


def test_what_k_leaves_out_of_the_gate_is_not_lost(project_with_run):
    """A quick look as the baseline holds nothing: the test ``gate`` says so, and where it is deselected, the case."""
    project = project_with_run
    (folder,) = (project.path / "reports/small").glob("2*")
    subprocess.run([sys.executable, "-m", "qbench", "baseline", str(folder)], cwd=project.path, check=True)
    described = project.path / "reports/baselines/small.run.json"
    content = json.loads(described.read_text())
    described.write_text(json.dumps(content | {"quick": {"examples": 5, "of": 20}}))
    result = project.runpytest_subprocess(
        "-p", "no:xdist", "-p", "no:benchmark", "-k", "static and t1", "--qbench-stored"
    )
    result.assert_outcomes(failed=1, deselected=6)
    result.stdout.fnmatch_lines(["*INVALID*the baseline is a quick look*"])


def test_a_suite_of_any_name_is_given_by_option(project):
    """``--qbench`` alone collects that suite and nothing else, also without pytest-benchmark."""
    (project.path / "suites").mkdir()
    (project.path / "qbench_small.yaml").rename(project.path / "ci.yaml")
    project.makepyfile(test_other="def test_other():\n    assert True\n")
    result = project.runpytest_subprocess(
        "-p", "no:xdist", "-p", "no:benchmark", "--qbench", "ci.yaml", "-k", "t1", "--qbench-out", "elsewhere"
    )
    result.assert_outcomes(passed=2, failed=1, deselected=4)
    assert list((project.path / "elsewhere/small").glob("2*"))


def test_a_wrong_suite_is_a_collection_error_with_all_problems(project):
    """No traceback; file, line and what to do."""
    (project.path / "qbench_small.yaml").write_text(SUITE.replace("fake", "fakee").replace("[fp32", "[fp33"))
    result = project.runpytest_subprocess("-p", "no:xdist")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*qbench_small.yaml:5:*", "*qbench_small.yaml:6:*fakee*"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_workers_share_one_run(project):
    """Below xdist, however it distributes, the suite is run once."""
    result = project.runpytest_subprocess("-n", "2", "--dist", "load", "-k", "t1", "-W", "default")
    result.assert_outcomes(passed=2, failed=1)
    assert len(list((project.path / "reports/small").glob("2*"))) == 1


def test_who_does_not_use_it_pays_nothing(pytester):
    """A project without a suite: no item more, no module of qbench loaded but the hooks."""
    pytester.makepyfile(
        "import sys\n\n"
        "def test_own():\n"
        "    loaded = {name for name in sys.modules if name.partition('.')[0] == 'qbench'}\n"
        "    assert loaded <= {'qbench', 'qbench.pytest_plugin', 'qbench.pytest_plugin.hooks'}, loaded\n"
        "    assert 'pydantic' not in sys.modules\n"
    )
    (pytester.path / "other.yaml").write_text("a: 1\n")
    pytester.runpytest_subprocess("-p", "no:xdist", "-p", "no:hypothesispytest").assert_outcomes(passed=1)


def test_the_plugin_is_found_by_pytest():
    """The entry point leads to the hooks; a clone that was installed before it had one installs itself again."""
    (point,) = (point for point in entry_points(group="pytest11") if point.name == "qbench")
    assert point.value == "qbench.pytest_plugin.hooks"


def test_a_case_is_matched_by_its_own_name_only():
    """Characters of a glob in a name are taken as they are."""
    assert match_exactly(["net[1]/static", "net*/qat"]) == "net[[]1]/static,net[*]/qat"


def test_the_timer_gives_the_durations_back():
    """Read before and after a call, its difference is the next stored duration."""
    timer = items.Replay()
    timer.seconds = [0.25, 0.5]
    differences = []
    for _ in range(2):
        start = timer()
        differences.append(timer() - start)
    assert differences == [0.25, 0.5]


def test_what_was_not_timed_is_no_benchmark():
    """A case that failed would be listed with the time of nothing."""
    calls = []
    benchmark = SimpleNamespace(disabled=False, pedantic=lambda function, **rounds: calls.append(rounds))
    item = SimpleNamespace(get_closest_marker=lambda name: SimpleNamespace(kwargs={}))
    items._replay(benchmark, item, [], None)
    assert (benchmark.disabled, calls) == (True, [{}])


@pytest.mark.parametrize(
    ("effects", "outcome", "words"),
    [
        (("pass", "note"), None, ""),
        (("pass", "skip"), pytest.skip.Exception, "verdict 1"),
        (("skip", "skip"), pytest.skip.Exception, "verdict 0; verdict 1"),
        (("skip", "fail"), pytest.fail.Exception, "verdict 1"),
        (("invalid", "hold"), pytest.fail.Exception, "verdict 0\nverdict 1"),
    ],
)
def test_verdicts_settle_a_test(effects, outcome, words):
    """What fails outweighs what is skipped; every verdict is in the report."""
    verdicts = [ItemVerdict(case="c", effect=effect, text=f"verdict {i}") for i, effect in enumerate(effects)]
    item = SimpleNamespace(user_properties=[])
    with contextlib.nullcontext() if outcome is None else pytest.raises(outcome) as raised:
        items.settle(verdicts, item)
    assert outcome is None or str(raised.value) == words
    assert item.user_properties == [("qbench", verdict.text) for verdict in verdicts]


class Terminal:
    """pytest's terminal, and what is captured: the lines, and whether capturing was off for each."""

    def __init__(self, *, captures=True):
        self.lines, self.off = [], False
        capture = SimpleNamespace(global_and_fixture_disabled=self.uncapture) if captures else None
        self.config = SimpleNamespace(pluginmanager=SimpleNamespace(get_plugin=lambda name: capture))

    @contextlib.contextmanager
    def uncapture(self):
        self.off = True
        yield
        self.off = False

    def ensure_newline(self):
        self.lines.append("")

    def write_line(self, line):
        self.lines.append((line, self.off))


@pytest.mark.parametrize("captures", [True, False])
def test_each_stage_of_a_run_is_a_line_once(captures):
    """On a line of its own, seen though output is captured; a stage that is named again is the same."""
    terminal = Terminal(captures=captures)
    lines = items.StageLines(terminal, "small")
    for name, total in (("build", 3), ("build", 3), ("measure", None)):
        lines.stage(name, total)
    told = [("qbench small: build (3) ...", captures), ("qbench small: measure ...", captures)]
    assert terminal.lines == ["", told[0], "", told[1]]


@pytest.mark.parametrize(
    ("terminal", "verbosity", "worker", "shown"),
    [
        (True, 0, False, True),
        (True, 1, False, True),
        (True, -1, False, False),
        (True, 0, True, False),
        (False, 0, False, False),
    ],
)
def test_stages_are_shown_where_somebody_looks(terminal, verbosity, worker, shown):
    """Not with ``-q``, and not in a worker of xdist."""
    plugin = Terminal() if terminal else None
    config = SimpleNamespace(
        pluginmanager=SimpleNamespace(get_plugin=lambda name: plugin if name == "terminalreporter" else None),
        get_verbosity=lambda: verbosity,
        **({"workerinput": {}} if worker else {}),
    )
    assert type(items.show_stages(config, "small")) is (items.StageLines if shown else Silent)


class File(SimpleNamespace):
    """A suite's file as its methods see it; compared by identity, as pytest's are."""

    __hash__ = object.__hash__

    def __eq__(self, other):
        return self is other


def request_run(selected, **options):
    """What is asked for where these items of two suites' are selected."""
    given = {"qbench_out": None, "qbench_baseline": None, "qbench_stored": False} | options
    plugins = SimpleNamespace(get_plugin=lambda name: None)
    file = File(
        suite=SimpleNamespace(suite="small"), cases=("a", "b"),
        config=SimpleNamespace(getoption=given.__getitem__, pluginmanager=plugins, get_verbosity=lambda: 0),
    )  # fmt: skip
    if "worker" in options:
        file.config.workerinput = options["worker"]
    listed = [SimpleNamespace(name=name, parent=file) for name in selected]
    session = SimpleNamespace(items=[*listed, SimpleNamespace(name="b", parent=File())])
    return items.SuiteFile._request(file, session), items.SuiteFile._has_gate(file, session)


@pytest.mark.parametrize(
    ("selected", "cases"),
    [("ab", None), (("a", "b", "gate"), None), (("gate",), None), ("a", ("a",)), (("b", "gate"), ("b",)), ("ba", None)],
)
def test_what_is_selected_is_run(selected, cases):
    """All of a suite is no filter, and neither is its gate alone, which is about every case; items of another suite do
    not count."""
    asked, has_gate = request_run(selected)
    assert (asked.cases, has_gate) == (cases, "gate" in selected)
    assert (asked.out, asked.baseline, asked.stored, asked.session) == (None, None, False, None)
    assert type(asked.progress) is Silent


def test_the_options_reach_the_run():
    """And the session of xdist, by its own number."""
    asked, _ = request_run(
        "a", qbench_out="o", qbench_baseline="b.jsonl", qbench_stored=True, worker={"testrunuid": "7"}
    )
    assert (asked.out, asked.baseline, asked.stored, asked.session) == (Path("o"), Path("b.jsonl"), True, "7")


def check(monkeypatch, record, verdicts=(), *, seconds=(), gate=True, benchmark=None):
    """Runs the test of the case ``c`` of a judged run that has that record."""
    judged = JudgedRun(folder=Path("run"), verdicts=tuple(verdicts))
    file = SimpleNamespace(_judge=lambda request: judged, _has_gate=lambda session: gate, cases=("c", "d"))
    run = SimpleNamespace(by_id={} if record is None else {"c": record})
    monkeypatch.setattr(items, "read_run", lambda folder: run if folder == Path("run") else None)
    monkeypatch.setattr(items.pytest_benchmark, "call_seconds", lambda run, record: list(seconds))
    monkeypatch.setattr(items.pytest_benchmark, "extra_info", lambda record: {"mode": "static"})
    marker = SimpleNamespace(kwargs={"timer": items.Replay()})
    node = SimpleNamespace(user_properties=[], get_closest_marker=lambda name: marker)
    items.SuiteFile._check_case(file, "c", SimpleNamespace(node=node, session=None), benchmark)
    return marker.kwargs["timer"].seconds


def test_a_case_is_settled_by_its_own_verdicts(monkeypatch):
    """Those on the run as a whole are the gate's, or its own where the gate is deselected; another case's never."""
    whole, other = ItemVerdict(case="run", effect="fail", text="whole"), ItemVerdict(case="d", effect="fail", text="d")
    record = SimpleNamespace(status="ok")
    check(monkeypatch, record, [whole, other])
    with pytest.raises(pytest.fail.Exception, match="^whole$"):
        check(monkeypatch, record, [whole, other], gate=False)
    with pytest.raises(pytest.fail.Exception, match="^slow$"):
        check(monkeypatch, record, [ItemVerdict(case="c", effect="fail", text="slow")])


@pytest.mark.parametrize(
    ("record", "outcome", "words"),
    [
        (None, pytest.fail.Exception, "the run did not reach it"),
        (SimpleNamespace(status="failed", stage="build", reason="no"), pytest.fail.Exception, "build: no"),
        (SimpleNamespace(status="skipped", stage="plan", reason="no engine"), pytest.skip.Exception, "no engine"),
    ],
)
def test_a_case_without_a_result_says_why(monkeypatch, record, outcome, words):
    """Also where the gate says nothing of it."""
    with pytest.raises(outcome, match=f"^{words}$"):
        check(monkeypatch, record)


def test_the_calls_of_the_run_are_the_rounds_of_the_benchmark(monkeypatch):
    """One call a round; a case that has none is no benchmark, nor is one without a record."""
    record, rounds = SimpleNamespace(status="ok"), []
    benchmark = SimpleNamespace(
        disabled=False, extra_info={}, pedantic=lambda function, **options: rounds.append(options)
    )
    assert check(monkeypatch, record, seconds=[0.5, 0.25], benchmark=benchmark) == [0.5, 0.25]
    assert (benchmark.disabled, rounds, benchmark.extra_info) == (
        False,
        [{"rounds": 2, "iterations": 1}],
        {"mode": "static"},
    )
    assert check(monkeypatch, record, benchmark=benchmark) == []
    assert (benchmark.disabled, rounds[1:]) == (True, [{}])


def test_a_benchmark_without_its_marker_has_no_rounds(monkeypatch):
    """Somebody's own fixture of that name has no timer that could give the calls back."""
    calls = []
    benchmark = SimpleNamespace(disabled=False, pedantic=lambda function, **rounds: calls.append(rounds))
    item = SimpleNamespace(get_closest_marker=lambda name: None)
    items._replay(benchmark, item, [0.5], SimpleNamespace())
    assert (benchmark.disabled, calls) == (True, [{}])


@pytest.mark.parametrize("folder", [Path("run"), None])
def test_the_error_of_the_run_fails_every_item(monkeypatch, folder):
    """It is made once; where a folder was made, each report names it."""
    requests, reports = [], []

    def judge_run(request):
        requests.append(request)
        return JudgedRun(folder=folder, error="no baseline")

    monkeypatch.setattr(items, "judge_run", judge_run)
    file = SimpleNamespace(_judged=None, _request=lambda session: session)
    for _ in range(2):
        node = SimpleNamespace(user_properties=[])
        with pytest.raises(pytest.fail.Exception, match="^no baseline$"):
            items.SuiteFile._judge(file, SimpleNamespace(session="asked", node=node))
        reports.append(node.user_properties)
    assert requests == ["asked"]
    assert reports == [[] if folder is None else [("qbench_run", "run")]] * 2


def test_a_suite_is_named_as_from_here(tmp_path, monkeypatch):
    """Messages name no machine's folders, but for a suite that lies elsewhere."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert items._beside(tmp_path / "here" / "s" / "a.yaml") == Path("s/a.yaml")
    assert items._beside(tmp_path / "a.yaml") == tmp_path / "a.yaml"


def test_an_item_stands_at_the_matrix_of_its_suite():
    """pytest counts lines from 0."""
    item = SimpleNamespace(path=Path("a.yaml"), line=5, name="c")
    assert items.CaseItem.reportinfo(item) == (Path("a.yaml"), 4, "c")


@pytest.mark.parametrize("effect", ["fail", "invalid", "hold"])
def test_what_could_not_be_judged_fails_as_what_is_too_slow(effect):
    """A gate that holds for a person is no pass."""
    with pytest.raises(pytest.fail.Exception, match="^a\\nb$"):
        items.settle([ItemVerdict(case="c", effect=effect, text="a\nb")], SimpleNamespace(user_properties=[]))


@pytest.mark.parametrize("is_distributed", [False, True])
@pytest.mark.parametrize("group", [None, "net t1 b1"])
@pytest.mark.parametrize("fixtures", [("request",), ("request", "benchmark")])
def test_an_item_bears_what_its_plugins_read(monkeypatch, is_distributed, group, fixtures):
    """Of xdist the suite that it belongs to, so that one worker takes all of it; of pytest-benchmark the group and the
    timer, where it is timed."""
    markers = []
    item = SimpleNamespace(add_marker=markers.append, fixturenames=fixtures)
    monkeypatch.setattr(items.CaseItem, "from_parent", lambda parent, name, callobj: item)
    plugins = SimpleNamespace(hasplugin=lambda name: is_distributed and name == "xdist")
    file = SimpleNamespace(
        path=Path("s.yaml"), suite=SimpleNamespace(place=lambda key: f"s.yaml:{len(key)}"),
        config=SimpleNamespace(pluginmanager=plugins),
    )  # fmt: skip
    new_item = items.SuiteFile._make_item(file, "c", lambda request: None, group)
    assert (new_item, new_item.line, markers[0]) == (item, len("matrix"), "qbench")
    marked = {mark.name: mark for mark in markers[1:]}
    is_timed = group is not None and "benchmark" in fixtures
    assert sorted(marked) == ["benchmark"] * is_timed + ["xdist_group"] * is_distributed
    assert not is_distributed or marked["xdist_group"].args == ("qbench:s.yaml",)
    assert not is_timed or marked["benchmark"].kwargs["group"] == group
