"""qbench.cli: what each command prints, where, and with which exit code."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from made_records import failed, fp32, info, int8, skipped
from made_runs import run_folder

from qbench import __main__ as beginning
from qbench import __version__
from qbench.cache import clean as cleaning
from qbench.cli import answer, main
from qbench.cli import run as run_command
from qbench.compare.environment import SAME_RUN
from qbench.doctor import findings as doctors
from qbench.errors import NotComparable, QbenchError, UsageError, WorkerError
from qbench.gating import baseline, gate
from qbench.gating.exit_codes import Outcome
from qbench.gating.gate import Gated
from qbench.gating.rerun import Rerunner
from qbench.gating.verdict import Verdict
from qbench.hosts.emulated_arm import EmulatedArm
from qbench.machine.peak import Effort
from qbench.progress.live import Silent
from qbench.record.jsonl import read, write
from qbench.record.schema import CaseKey, Record
from qbench.record.stored_run import QuickInfo, SuiteInfo
from qbench.running import run
from qbench.running.run import RunResult

ROOT = Path(__file__).parent.parent.parent
QUICKSTART = str(ROOT / "suites" / "quickstart.yaml")
COMMANDS = (
    "run",
    "plan",
    "init",
    "check",
    "train",
    "report",
    "compare",
    "portability",
    "explain",
    "ship",
    "baseline",
    "gate",
    "bisect",
    "upgrade",
    "replay",
    "export",
    "doctor",
    "list",
    "schema",
    "clean",
    "onnx",
)


@dataclass(frozen=True, kw_only=True)
class Done:
    """What a command left: its exit code and both streams."""

    code: int
    out: str
    err: str


Qbench = Callable[..., Done]


@pytest.fixture
def qbench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Qbench:
    """Runs the command line in this process."""

    def command(*arguments: str | Path) -> Done:
        monkeypatch.setattr(sys, "argv", ["qbench", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main.main()
        assert isinstance(ended.value.code, int)
        captured = capsys.readouterr()
        return Done(code=ended.value.code, out=captured.out, err=captured.err)

    return command


def raising(error: BaseException) -> Callable[..., Any]:
    """A function that raises."""

    def raises(*arguments: object, **options: object) -> Any:
        raise error

    return raises


def record(backend: str, status: str = "ok", reason: str | None = None) -> Record:
    """A record of one static case."""
    key = CaseKey(id=f"m/static/{backend}/t1/b1", model="m", mode="static", backend=backend, threads=1, batch_size=1)
    return Record(case=key, status=status, reason=reason)  # type: ignore[arg-type]


# --- the whole -------------------------------------------------------------------------------------------------


def test_the_commands_are_those_of_the_design(qbench: Qbench) -> None:
    """Every command is in the help, in the order in which a user meets them."""
    text = qbench("--help").out
    commands = [line.split()[0] for line in text.partition("Commands:")[2].splitlines() if line.strip()]
    assert tuple(commands[: len(COMMANDS)]) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_an_example_a_module_and_a_test(qbench: Qbench, command: str) -> None:
    """A subcommand is a module of the command line and has its tests in a room; its help ends with an example."""
    done = qbench(command, "--help")
    assert done.code == 0
    assert f"Example: qbench {command}" in done.out
    assert (ROOT / "qbench" / "cli" / f"{ {'list': 'plugins'}.get(command, command) }.py").exists()
    rooms = {
        "export": "report",
        "schema": "suite",
        "list": "doctor",
        "init": "first_suite",
        "clean": "cache",
        "run": "running",
    }
    rooms |= {**dict.fromkeys(("gate", "baseline"), "gating"), "init": "first_suite"}
    assert list((ROOT / "tests" / rooms.get(command, command)).glob("test_*.py"))


def test_version(qbench: Qbench) -> None:
    """--version prints the one version there is."""
    assert qbench("--version") == Done(code=0, out=f"qbench {__version__}\n", err="")


def test_module_and_console_script_are_one() -> None:
    """``python -m qbench`` is the same command."""
    done = subprocess.run([sys.executable, "-m", "qbench", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"qbench {__version__}\n"


@pytest.mark.parametrize("arguments", [["gate"], ["nonsense"], ["plan", "--nonsense"], ["run", "s", "--jobs", "0"]])
def test_wrong_usage_is_2(qbench: Qbench, arguments: list[str]) -> None:
    """A missing argument, an unknown command or option, a value out of range: 2, and the reason on stderr."""
    done = qbench(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert done.err


@pytest.mark.parametrize(
    ("error", "code"), [(UsageError("mend it"), 2), (NotComparable("mend it"), 3), (WorkerError("mend it"), 1)]
)
def test_what_a_user_can_cause_is_one_message(
    qbench: Qbench, monkeypatch: pytest.MonkeyPatch, error: QbenchError, code: int
) -> None:
    """An error of qbench is its text on stderr and its exit code, without a traceback."""
    monkeypatch.setattr(cleaning, "clean", raising(error))
    assert qbench("clean") == Done(code=code, out="", err="error: mend it\n")


def test_a_bug_shows_its_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What qbench did not expect must not be hidden: Python's own traceback, all of it, and no drawing of one."""
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    monkeypatch.setattr(cleaning, "clean", raising(ZeroDivisionError("a bug")))
    monkeypatch.setattr(sys, "argv", ["qbench", "clean"])
    with pytest.raises(ZeroDivisionError) as bug:
        main.main()
    capsys.readouterr()
    sys.excepthook(bug.type, bug.value, bug.tb)
    shown = capsys.readouterr().err
    assert shown.startswith("Traceback (most recent call last):\n  File ")
    assert shown.endswith("ZeroDivisionError: a bug\n")


def test_without_a_command_the_help_is_shown(qbench: Qbench) -> None:
    """As somebody sees it who tries the name."""
    done = qbench()
    assert done.code == 2
    assert "Commands:" in done.out + done.err


def test_ctrl_c_is_130(qbench: Qbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted command ends as a shell expects, without a traceback."""
    monkeypatch.setattr(doctors, "examine", raising(KeyboardInterrupt()))
    done = qbench("doctor", "--quiet")
    assert done.code == 130
    assert "Traceback" not in done.err


TERMINATED = """
import signal, sys
from qbench.cli import main
from qbench.doctor import findings

findings.examine = lambda *_, **__: signal.raise_signal(signal.SIGTERM)
sys.argv = ["qbench", "doctor", "--quiet"]
try:
    main.main()
finally:
    signal.raise_signal(signal.SIGTERM)
"""


def test_sigterm_is_143() -> None:
    """It interrupts as Ctrl-C does, so that every stage can end what it started; a second one does not."""
    done = subprocess.run([sys.executable, "-c", TERMINATED], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 143, done.stderr
    assert "Traceback" not in done.stderr


AT_A_MOMENT = """
import atexit, signal, sys, threading
from qbench import __main__, errors
from qbench.doctor import plugin_list

interrupt = lambda *_, **__: signal.raise_signal(signal.SIGINT)

class Importing:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            interrupt()

class Wrong(errors.UsageError):
    def __str__(self):
        interrupt()
        return "mend it"

def refuse(*_, **__):
    raise Wrong

def begin(moment):
    if moment == "while it is imported":
        sys.meta_path.insert(0, Importing())
    elif moment == "in its message":
        plugin_list.listing = refuse
    elif moment == "as its threads end":
        threading._register_atexit(interrupt)
    else:
        atexit.register(interrupt)

signal.signal(signal.SIGINT, signal.default_int_handler)
begin(sys.argv[1])
sys.argv = ["qbench", "list"]
__main__.main()
"""


@pytest.mark.parametrize(
    ("moment", "code"),
    [("while it is imported", -2), ("in its message", 130), ("as its threads end", -2), ("after it has ended", -2)],
)
def test_ctrl_c_before_and_after_a_command_shows_nothing_of_python(moment: str, code: int) -> None:
    """There is nothing to end then; a shell says 130 of both ways to end, and no traceback is on the terminal."""
    done = subprocess.run([sys.executable, "-c", AT_A_MOMENT, moment], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.parametrize(
    ("handler", "set_"),
    [(signal.default_int_handler, [(signal.SIGINT, signal.SIG_DFL)]), (signal.SIG_IGN, []), (signal.SIG_DFL, [])],
)
def test_ctrl_c_that_is_ignored_at_the_start_stays_ignored(
    monkeypatch: pytest.MonkeyPatch, handler: Any, set_: list[Any]
) -> None:
    """As of what a shell starts in the background; only Python's own handler is taken away."""
    given: list[Any] = []
    monkeypatch.setattr(signal, "getsignal", lambda number: handler)
    monkeypatch.setattr(signal, "signal", lambda number, action: given.append((number, action)))
    monkeypatch.setattr(main, "main", lambda: given.append("command"))
    beginning.main()
    assert given == [*set_, "command"]


BEGINNING = """
import sys
before = set(sys.modules)
import qbench.__main__
print(*sorted(set(sys.modules) - before))
"""


def test_little_is_imported_before_ctrl_c_is_taken_from_python() -> None:
    """Until then Python shows where it was; ``typing`` alone takes some milliseconds."""
    command = [sys.executable, "-c", BEGINNING]
    imported = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in imported if name.startswith("qbench")] == ["qbench", "qbench.__main__"]
    assert "typing" not in imported


# --- plan, list, schema, doctor, clean -------------------------------------------------------------------------


def test_plan_shows_cases_and_takes_filter_and_set(qbench: Qbench) -> None:
    """A plan goes to stdout; the filter and the overrides reach it."""
    done = qbench("plan", QUICKSTART, "--filter", "digits-cnn/static/onednn/*", "--set", "matrix.batch_sizes=[8]")
    assert done.code == 0
    assert "digits-cnn/static/onednn/t1/b8" in done.out
    assert "digits-lstm" not in done.out


def test_plan_as_json(qbench: Qbench) -> None:
    """--json gives one JSON object and nothing else."""
    data = json.loads(qbench("plan", QUICKSTART, "--json").out)
    assert data["suite"] == "quickstart"
    assert len(data["cases"]) > 20


def test_a_matrix_without_a_case_ends_as_a_run_of_it_would(qbench: Qbench, tmp_path: Path) -> None:
    """Exit code 2 of both; the plan says why on stdout."""
    file = tmp_path / "empty.yaml"
    file.write_text(
        "suite: x\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {modes: [static], backends: [torch]}\n"
    )
    planned, ran = qbench("plan", file), qbench("run", file, "--out", tmp_path)
    assert (planned.code, ran.code) == (2, 2)
    assert "nothing to run: the matrix holds no case" in planned.out


@pytest.mark.parametrize(("cases", "skipped", "code"), [(1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 0, 2)])
def test_a_plan_of_cases_or_of_skips_is_one(
    qbench: Qbench, monkeypatch: pytest.MonkeyPatch, cases: int, skipped: int, code: int
) -> None:
    """A reason why nothing runs is an answer; a matrix that holds nothing is none."""
    plan = SimpleNamespace(cases=["case"] * cases, skipped=["skip"] * skipped)
    monkeypatch.setattr("qbench.plan.planner.make_plan", lambda suite, **options: plan)
    monkeypatch.setattr("qbench.plan.text.text", lambda planned: "the plan")
    assert qbench("plan", QUICKSTART) == Done(code=code, out="the plan\n", err="")


def test_a_wrong_suite_lists_every_problem(qbench: Qbench, tmp_path: Path) -> None:
    """All problems of a suite come at once, each with its place, and the code is 2."""
    file = tmp_path / "wrong.yaml"
    file.write_text(
        "suite: x\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {threads: [two], modes: [int4]}\n"
    )
    done = qbench("plan", file)
    assert done.code == 2
    assert done.out == ""
    assert f"{file}:4:" in done.err
    assert done.err.count("matrix.") == 2


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_suite_that_is_not_there(qbench: Qbench, tmp_path: Path, command: str) -> None:
    """A missing file is a message that names it."""
    done = qbench(command, tmp_path / "none.yaml")
    assert done.code == 2
    assert "none.yaml" in done.err


def test_list_as_text_and_json(qbench: Qbench) -> None:
    """The list names kinds, plug-ins and places in both forms."""
    rows = json.loads(qbench("list", "--json").out)
    assert {"kind", "name", "origin", "distribution", "missing", "modes"} == set(rows[0])
    text = qbench("list").out
    assert all(row["name"] in text and row["origin"] in text for row in rows)


def test_schema_prints_the_file_that_editors_read(qbench: Qbench) -> None:
    """``qbench schema > suites/schema.json`` changes nothing."""
    assert qbench("schema").out == (ROOT / "suites" / "schema.json").read_text(encoding="utf-8")


def test_doctor_as_text_and_json(qbench: Qbench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The findings go to stdout, the waiting to stderr, and quiet is quiet."""
    examine = doctors.examine
    tiny = Effort(sizes=(32,), screen_seconds=0.0, finalists=1, final_seconds=0.0)
    monkeypatch.setattr(doctors, "examine", lambda **asked: examine(**asked, effort=tiny))
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path))
    done = qbench("doctor", "--json", "--quiet", "--seconds", "0")
    assert json.loads(done.out)["noise"]["pairs"] == 6
    assert done.err == ""
    done = qbench("doctor", "--seconds", "0")
    assert done.out.startswith("CPU ")
    assert "listening to this machine's noise for 0 s" in done.err


def test_doctor_prepares_a_host(qbench: Qbench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Into the cache, and examines nothing; a host that takes nothing says so, and so does a name that is none."""
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(doctors, "examine", raising(AssertionError()))
    monkeypatch.setattr(EmulatedArm, "prepare", lambda host, root, tell: f"{host.name} in {root}")
    prepared = qbench("doctor", "--prepare", "qemu:arm64-max")
    assert prepared == Done(code=0, out=f"qemu:arm64-max in {tmp_path / 'cache'}\n", err="")
    for name, message in (("native", "nothing is to be prepared"), ("arm", "no host named 'arm'")):
        refused = qbench("doctor", "--prepare", name)
        assert refused.code == 2
        assert message in refused.err


def test_clean_says_what_it_freed(qbench: Qbench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The options reach the cleaning, and its one line is printed."""
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))
    done = qbench("clean", "--older-than", "3", "--dry-run")
    assert done == Done(code=0, out=f"would remove 0 entries from {tmp_path / 'cache'}: 0 B\n", err="")


# --- gate, baseline --------------------------------------------------------------------------------------------


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a run of the suite demo."""
    folder = tmp_path / "reports" / "demo" / "20260101T000000Z-ab12"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text('{"schema": 1, "suite": {"name": "demo"}}')
    (folder.parent / "latest").symlink_to(folder.name)
    monkeypatch.chdir(tmp_path)
    return folder


def gated(outcome: Outcome, against: Path | None) -> Gated:
    """One verdict."""
    verdict = Verdict(outcome=outcome, case="m/static/x86/t1/b1", rule="size", place="s.yaml:9", text="0.3 of fp32")
    return Gated(suite="demo", folder=Path("r"), baseline=against, verdicts=(verdict,))


@pytest.mark.parametrize(
    ("outcome", "code"), [("PASS", 0), ("FAIL", 1), ("INVALID", 3), ("MISSING", 3), ("INCONCLUSIVE", 4)]
)
def test_gate_exit_codes(
    runs: Path, qbench: Qbench, monkeypatch: pytest.MonkeyPatch, outcome: Outcome, code: int
) -> None:
    """Each outcome has its exit code, and the verdict is printed."""
    monkeypatch.setattr(gate, "gate_run", lambda folder, against, **options: gated(outcome, against))
    done = qbench("gate", "demo")
    assert done.code == code
    assert outcome in done.out


@pytest.fixture
def asked(runs: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the gate was asked with; it passes."""
    calls: list[dict[str, Any]] = []

    def gate_run(folder: Path, against: Path | None, **options: Any) -> Gated:
        calls.append({"against": against, **options})
        return gated("PASS", against)

    monkeypatch.setattr(gate, "gate_run", gate_run)
    return calls


def test_gate_takes_the_committed_baseline_by_itself(qbench: Qbench, asked: list[dict[str, Any]]) -> None:
    """Without --baseline it is reports/baselines/<suite>.jsonl if that is there, else none; with it, that file."""
    qbench("gate", "demo")
    committed = Path("reports/baselines/demo.jsonl")
    committed.parent.mkdir()
    committed.write_text("")
    qbench("gate", "demo")
    qbench("gate", "demo", "--baseline", "other.jsonl")
    assert [call["against"] for call in asked] == [None, committed, Path("other.jsonl")]


def test_gate_runs_the_artifacts_again_unless_stored(qbench: Qbench, asked: list[dict[str, Any]]) -> None:
    """Live is the default; --stored runs nothing."""
    qbench("gate", "demo", "--quiet")
    qbench("gate", "demo", "--stored")
    assert isinstance(asked[0]["rerun"], Rerunner)
    assert asked[1]["rerun"] is None


def test_gate_writes_its_files_and_annotations(runs: Path, qbench: Qbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """JUnit and Markdown go to their files; annotations join the text, and leave JSON alone."""
    monkeypatch.setattr(gate, "gate_run", lambda folder, against, **options: gated("FAIL", against))
    done = qbench("gate", "demo", "--junit", "g.xml", "--markdown", "g.md", "--github")
    assert Path("g.xml").read_text().startswith("<?xml")
    assert "FAIL" in Path("g.md").read_text()
    assert "::error file=s.yaml,line=9" in done.out
    done = qbench("gate", "demo", "--github", "--json")
    assert json.loads(done.out)["exit_code"] == 1
    assert "::error" in done.err


GATED = """
suite: demo
models: [digits-cnn]
data: {dataset: digits}
matrix: {}
gate: {size: {max_ratio: 0.5}}
"""


@pytest.mark.parametrize(
    ("later", "said"),
    [
        ([failed()], "1 failed"),
        ([skipped()], "1 skipped"),
        ([], "no record"),
        ([failed(), int8("m/qat/x86/t1/b1")], None),
    ],
)
def test_a_run_that_failed_wholly_is_not_green_by_an_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qbench: Qbench, later: list[Record], said: str | None
) -> None:
    """Where reports outlive a CI job the older, good run is judged, and the newer one makes the gate MISSING, in all
    that it writes; by its own folder the older run passes. A newer run with one case that is ok is judged itself."""
    monkeypatch.chdir(tmp_path)
    described = info(suite=SuiteInfo(name="demo", file="demo.yaml", text=GATED))
    older = run_folder(tmp_path / "reports/demo/20260101T000000Z-0000", [fp32(), int8()], described)
    newer = run_folder(tmp_path / "reports/demo/20260102T000000Z-0000", later, described)
    (newer.parent / "latest").symlink_to(older.name)  # a run that is killed at once does not move it
    assert qbench("gate", str(older), "--stored").code == 0
    for name in ("demo", "reports/demo/latest"):
        done = qbench("gate", name, "--stored", "--junit", "g.xml", "--markdown", "g.md")
        if said is None:
            assert f"{newer.name}, has no case" not in done.out
            continue
        assert done.code == 3
        assert f"the latest run, {newer.name}, has no case that is ok" in done.out
        assert f"it has {said} ({newer}); judged is {older.name}, which is older: fix the cause" in done.out
        assert "**qbench gate: MISSING**" in Path("g.md").read_text()
        assert newer.name in Path("g.xml").read_text()


def test_gate_that_cannot_write_is_usage(runs: Path, qbench: Qbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that cannot be written is a message with its name, not a pass."""
    monkeypatch.setattr(gate, "gate_run", lambda folder, against, **options: gated("PASS", against))
    done = qbench("gate", "demo", "--junit", "no/such/folder/g.xml")
    assert done.code == 2
    assert "no/such/folder/g.xml: cannot be written" in done.err


def test_baseline_writes_where_it_says(runs: Path, qbench: Qbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run and the options reach the writer; the files to commit are named."""
    calls: list[Any] = []

    def keep(folder: Path, target: Path, *, allow_failed: bool) -> Path:
        calls.append((folder, target, allow_failed))
        return target / "demo.jsonl"

    def look(file: Path, *, keep: bool) -> baseline.Artifacts:
        calls.append((file, keep))
        return baseline.Artifacts(available=2, missing=(), size_bytes=9, folder=None)

    monkeypatch.setattr(baseline, "write_baseline", keep)
    monkeypatch.setattr(baseline, "locate_artifacts", look)
    first, second, third = qbench("baseline", "demo").out.splitlines()
    assert first == "wrote reports/baselines/demo.jsonl and reports/baselines/demo.run.json; commit both"
    assert second.startswith("no predictions lie in this run")
    assert "2 of 2, in the cache" in third
    Path("keep").mkdir()
    Path("keep/demo.examples.json").touch()
    said = qbench("baseline", "demo", "--out", "keep", "--allow-failed", "--keep-artifacts").out
    assert said.startswith("wrote keep/demo.jsonl, keep/demo.run.json and keep/demo.examples.json; commit all three\n")
    assert "no predictions" not in said
    assert calls == [
        (runs, Path("reports/baselines"), False),
        (Path("reports/baselines/demo.jsonl"), False),
        (runs, Path("keep"), True),
        (Path("keep/demo.jsonl"), True),
    ]


# --- run, report, compare --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Told:
    """What the command line told the story of a run."""

    suite: str
    options: dict[str, Any]


@pytest.fixture
def story(runs: Path, monkeypatch: pytest.MonkeyPatch) -> list[Told]:
    """Replaces the run by one that is over: one case ok, one failed, one skipped, as stored in ``runs``."""
    records = [
        record("onednn"),
        record("x86", "failed", "it hung"),
        record("inductor", "skipped", "no C++ compiler; install g++"),
    ]
    write(runs / "records.jsonl", records)
    told: list[Told] = []

    def over(suite: Any, *, progress: Any, **options: Any) -> RunResult:
        told.append(Told(suite=suite.suite, options=options))
        progress.stage("build", 1)
        progress.advance("m/static/onednn")
        return RunResult(folder=runs, records=records, elapsed_seconds={"build": 1.5}, interrupted=False)

    monkeypatch.setattr(run, "run", over)
    return told


def test_run_shows_answer_table_reasons_report_and_time_in_this_order(qbench: Qbench, story: list[Told]) -> None:
    """Results go to stdout: the answer, the table, why cases failed or were skipped, the report, and last the time."""
    done = qbench("run", QUICKSTART)
    assert done.code == 1
    order = (
        "m: no answer: ",
        "static · onednn ",
        "failed: m/static/x86",
        "  no C++ compiler",
        "report: ",
        "time: ",
    )
    places = [done.out.index(text) for text in order]
    assert places == sorted(places)
    last = done.out.splitlines()[-1]
    assert last.startswith("time: build 1.50 s, report ")
    assert last.endswith(" in all")
    (page,) = [line.removeprefix("report: ") for line in done.out.splitlines() if line.startswith("report: ")]
    assert Path(page).is_file()


def test_a_quiet_run_says_why_it_has_no_report(
    qbench: Qbench, story: list[Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    """ "see above" refers to a line that stands there: a full disk is told with --quiet, too."""
    from qbench.report import build

    monkeypatch.setattr(build, "build_report", raising(QbenchError("report.html: No space left on device")))
    done = qbench("run", QUICKSTART, "--quiet")
    assert done.code == 1
    assert done.err == "error: report.html: No space left on device\n"
    assert "report: none, see above" in done.out


def test_run_wide_shows_every_column(qbench: Qbench, story: list[Told]) -> None:
    """Without --wide there are six, with it those of the report that have a value."""
    assert "accuracy limit" not in qbench("run", QUICKSTART).out
    assert "accuracy limit" in qbench("run", QUICKSTART, "--wide").out


def test_run_quick_reaches_the_suite(qbench: Qbench, story: list[Told], monkeypatch: pytest.MonkeyPatch) -> None:
    """--quick takes a quick look; the overrides of the user come behind its own."""
    suites: list[Any] = []
    over = run.run
    monkeypatch.setattr(run, "run", lambda suite, **options: suites.append(suite) or over(suite, **options))
    qbench("run", QUICKSTART, "--quick", "--set", "measure.seed=4")
    assert suites[0].quick
    assert suites[0].overrides[-1] == "measure.seed=4"
    assert len(suites[0].overrides) > 1


def test_run_progress_goes_to_stderr_unless_quiet(qbench: Qbench, story: list[Told]) -> None:
    """Plain lines where stderr is no terminal; with --quiet nothing."""
    assert "build 1/1 m/static/onednn" in qbench("run", QUICKSTART).err
    assert qbench("run", QUICKSTART, "--quiet").err == ""


def test_run_passes_its_options_on(qbench: Qbench, story: list[Told], runs: Path) -> None:
    """Every option reaches the run; --resume and --artifacts take what names a run."""
    qbench("run", QUICKSTART, "--out", "o", "--filter", "*/static/*", "--jobs", "3", "--resume", "demo",
           "--artifacts", "demo")  # fmt: skip
    qbench("run", QUICKSTART, "--set", "suite=other")
    assert story[0].options == {"out": Path("o"), "only": "*/static/*", "resume": runs, "jobs": 3, "on": None,
                                "artifacts": runs}  # fmt: skip
    names = ("out", "only", "resume", "jobs", "on", "artifacts")
    assert story[1] == Told(suite="other", options=dict.fromkeys(names))


def test_run_as_json(qbench: Qbench, story: list[Told]) -> None:
    """--json gives the records and nothing else on stdout."""
    data = json.loads(qbench("run", QUICKSTART, "--json").out)
    assert [entry["status"] for entry in data["records"]] == ["ok", "failed", "skipped"]
    assert set(data["elapsed_seconds"]) == {"build", "report"}


@pytest.mark.parametrize(
    ("statuses", "interrupted", "code"),
    [(("ok", "skipped"), False, 0), (("ok", "failed"), False, 1), (("ok",), True, 130), ((), True, 130)],
)
def test_run_exit_codes(
    qbench: Qbench,
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    statuses: tuple[str, ...],
    interrupted: bool,
    code: int,
) -> None:
    """0 for ok or skipped, 1 once a case failed, 130 when interrupted, also before anything was recorded."""
    records = [record(f"b{n}", status, "why") for n, status in enumerate(statuses)]
    if records:
        write(runs / "records.jsonl", records)
    result = RunResult(folder=runs, records=records, elapsed_seconds={}, interrupted=interrupted)
    monkeypatch.setattr(run, "run", lambda suite, **options: result)
    done = qbench("run", QUICKSTART)
    assert done.code == code
    assert done.out.splitlines()[-1].startswith("time: ")


@pytest.mark.parametrize("options", [(), ("--quiet",), ("--quiet", "--json")])
def test_an_interrupted_run_says_how_to_go_on(
    qbench: Qbench, runs: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    """Also to the quiet, on a line of its own that is not cut, however narrow the terminal; a program has it as a
    key."""
    monkeypatch.setenv("COLUMNS", "40")
    command = f"qbench run suites/quickstart.yaml --resume reports/{'x' * 200}"
    result = RunResult(folder=runs, records=[], elapsed_seconds={}, interrupted=True, resume=command)
    monkeypatch.setattr(run, "run", lambda suite, **given: result)
    done = qbench("run", QUICKSTART, *options)
    assert done.code == 130
    assert done.err.splitlines()[-2:] == ["interrupted; what is known is kept. Go on with:", command]
    if "--json" in options:
        assert json.loads(done.out)["resume"] == command


def test_the_report_of_an_interrupted_run_can_be_broken_off(
    qbench: Qbench, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once all that had to end has ended, and not before; of a run that was not interrupted nothing changes."""
    told: list[str] = []
    monkeypatch.setattr(run_command.ending_signals, "raise_again", lambda: told.append("again"))
    monkeypatch.setattr(run_command, "_write_report", lambda *_: told.append("report") or (None, 0.0, None))
    for command in (None, "qbench run --resume reports/x"):
        result = RunResult(folder=runs, records=[], elapsed_seconds={}, interrupted=bool(command), resume=command)
        monkeypatch.setattr(run, "run", lambda suite, result=result, **given: result)
        qbench("run", QUICKSTART, "-q")
    assert told == ["report", "again", "report"]


def test_the_report_is_a_stage_of_a_run(qbench: Qbench, story: list[Told], runs: Path) -> None:
    """Of one step; where nothing was recorded it takes no time."""
    assert "report 1/1 report.html" in qbench("run", QUICKSTART).err
    write(runs / "records.jsonl", [])
    result = RunResult(folder=runs, records=[], elapsed_seconds={"build": 1.0}, interrupted=False)
    assert run_command._write_report(result, Silent()) == (None, 0.0, None)


def test_runs_of_two_suites_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qbench: Qbench) -> None:
    """What differs between suites is no change."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        run_folder(tmp_path / name, [fp32(), int8()], info(suite=SuiteInfo(name=name)))
    done = qbench("compare", "a", "b")
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("error: a is of the suite 'a', b of 'b': what differs between suites is no change")
    assert qbench("compare", "a", "a").code == 0


def test_no_output_commands_the_terminal(qbench: Qbench, tmp_path: Path) -> None:
    """An error that quotes a file's name, a label or a library shows escapes and turns of direction as text."""
    done = qbench("plan", tmp_path / "no\x1b[31m\u202esuch.yaml")
    assert done.code == 2
    assert "\\u001b[31m\\u202esuch.yaml" in done.err


def test_output_is_not_cut_where_it_is_no_terminal(
    qbench: Qbench, story: list[Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe gets whole lines without colours, however narrow the terminal behind it says it is."""
    monkeypatch.setenv("COLUMNS", "40")
    out = qbench("run", QUICKSTART).out
    assert "static · onednn " in out
    assert "\x1b" not in out
    assert "…" not in out


def test_output_fits_a_terminal(qbench: Qbench, story: list[Told], monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the table is folded to its width."""
    monkeypatch.setattr(answer, "terminal_width", lambda: 60)
    table = qbench("run", QUICKSTART).out.partition("failed: ")[0]
    assert max(map(len, table.splitlines())) <= 60


def test_report_prints_its_path(qbench: Qbench, story: list[Told], runs: Path) -> None:
    """The report is rebuilt from the records, and where it lies is all that is printed."""
    assert qbench("report", "demo") == Done(code=0, out=f"{runs / 'report.html'}\n", err="")
    assert qbench("report", "demo", "--compare", runs).code == 0
    assert "**Compared with " in (runs / "summary.md").read_text(encoding="utf-8")


def test_compare_says_that_examples_are_not_paired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qbench: Qbench
) -> None:
    """Below the table stands what pairs them; a baseline without examples has to be written again."""
    monkeypatch.chdir(tmp_path)
    run_folder(tmp_path / "reports/demo/20260101T000000Z-0000", [fp32(), int8()], info())
    assert qbench("baseline", "demo").code == 0
    said = "accuracy of 2 cases: two scores, their examples not paired, so the intervals are wide"
    again = " (this baseline keeps no examples: write it again with `qbench baseline RUN`)"
    assert qbench("compare", "reports/baselines/demo.jsonl", "demo").out.splitlines()[-1] == said + again
    assert qbench("compare", "demo", "demo").out.splitlines()[-1].startswith(f"{said} (not both runs keep predictions")


def test_compare_takes_runs_and_baselines(qbench: Qbench, story: list[Told], runs: Path) -> None:
    """Both a run and a committed baseline can be compared with; every case has its line."""
    assert qbench("baseline", "demo", "--allow-failed").code == 0
    text = qbench("compare", "reports/baselines/demo.jsonl", "demo").out
    assert text == qbench("compare", "demo", "demo").out
    note, _, *table = text.splitlines()
    assert note == f"note: {SAME_RUN}"
    assert len(table) == 1 + 3
    data = json.loads(qbench("compare", "demo", "demo", "--json").out)
    assert [delta["case"] for delta in data["deltas"]] == [stored.case.id for stored in read(runs)]
    assert (data["incomparable"], data["same_run"]) == (None, True)


def test_compare_says_which_run_is_a_quick_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qbench: Qbench
) -> None:
    """A change of a coarse look is none of a run proper."""
    monkeypatch.chdir(tmp_path)
    run_folder(tmp_path / "reports/demo/20260101T000000Z-0000", [fp32(), int8()], info())
    quick = info(quick=QuickInfo(examples=500, of=1000))
    run_folder(tmp_path / "reports/demo/20260102T000000Z-0000", [fp32(), int8()], quick)
    said = qbench("compare", "reports/demo/20260101T000000Z-0000", "demo").out.splitlines()
    assert [line for line in said if line.startswith("note: ")] == [
        "note: demo is a quick look: coarse timing in one process, 500 of 1,000 evaluation examples, nothing trained; "
        "run it without --quick to decide"
    ]


def test_report_wide_prints_the_answer_and_every_column(qbench: Qbench, story: list[Told], runs: Path) -> None:
    """As `qbench run --wide` does; the path comes last."""
    lines = qbench("report", "demo", "--wide").out.splitlines()
    assert lines[0].startswith("m: no answer: ")
    assert any("accuracy limit" in line for line in lines)
    assert lines[-1] == str(runs / "report.html")


def test_run_without_a_suite_needs_a_run_to_go_on_with(qbench: Qbench, story: list[Told], runs: Path) -> None:
    """A suite, or a run's folder, which knows its own: the suite is read from the file that the run names."""
    assert "no suite is named: `qbench run SUITE`" in qbench("run").err
    assert "is not there; go to where the run was started" in qbench("run", "--resume", "demo").err
    assert story == []


def test_what_ci_reads_of_a_decision(qbench: Qbench, story: list[Told], runs: Path) -> None:
    """`qbench run --json` has the decisions and warnings, the same as decision.json beside the report."""
    printed = json.loads(qbench("run", QUICKSTART, "--json").out)
    stored = json.loads((runs / "decision.json").read_text(encoding="utf-8"))
    shared = {name: printed[name] for name in ("warnings", "decisions", "by_host")}
    assert stored == {"schema": 1, "suite": "demo", **shared}
    assert [decision["verdict"] for decision in printed["decisions"]] == ["no answer"]


@pytest.mark.parametrize("seconds", ["1e400", "86401", "nan", "-1"])
def test_the_length_of_the_noise_test_is_a_number_of_seconds(seconds: str) -> None:
    """Up to a day: what no clock can wait for is refused before anything is measured."""
    command = [sys.executable, "-m", "qbench", "doctor", "--seconds", seconds]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Invalid value for '--seconds'" in done.stderr


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENAMETOOLONG, "File name too long", "a" * 5), "error: aaaaa: File name too long\n"),
        (OSError(errno.EEXIST, "File exists", "link"), "error: link: File exists\n"),
        (OSError(errno.ENOSPC, "No space left on device", "a"), "error: a: No space left on device\n"),
        (OSError(errno.EACCES, "Permission denied", "a\nb"), "error: a b: Permission denied\n"),
        (OSError(errno.EACCES, "Permission denied"), None),
        (OSError(errno.EIO, "Input/output error", "a"), None),
    ],
)
def test_what_the_system_says_of_a_name_is_no_bug(
    qbench: Qbench, monkeypatch: pytest.MonkeyPatch, error: OSError, said: str | None
) -> None:
    """A name that somebody gave, which the system refuses, is one line and code 2; an error without a name, or of a
    device, is shown whole."""
    monkeypatch.setattr(cleaning, "clean", raising(error))
    if said is None:
        with pytest.raises(OSError, match=str(error.strerror)):
            qbench("clean")
    else:
        assert qbench("clean") == Done(code=2, out="", err=said)
