"""Rules of qbench/pytest_plugin: suites as tests, in a project of their own and in processes of its own."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
from short_measurements import PEAK

from qbench.cache.store import open_cache
from qbench.machine.peak import measure_peak
from qbench.process.child_process import Limits
from qbench.pytest_plugin import items
from qbench.pytest_plugin.judged import ItemVerdict, match_exactly

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
