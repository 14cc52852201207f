"""What a command asks its room for: what was written, in the room's own units, and nothing where it cannot be."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from made_bisections import ANSWERS, METRIC, ask
from made_changes import make_upgraded
from made_checks import CHECK
from made_records import fp32, int8
from made_runs import run_folder
from made_verdicts import SAME, SLOW, make_gated

from qbench.bisect import start as bisecting
from qbench.bisect.journal import Journal
from qbench.bisect.start import Started
from qbench.cache import clean as cleaning
from qbench.check import check_file as checking
from qbench.check.finding import FileCheck
from qbench.cli import main, output
from qbench.cli import portability as portability_command
from qbench.cli import report as report_command
from qbench.cli import run as run_command
from qbench.errors import UsageError
from qbench.gating import against, gate
from qbench.portability.here import HERE
from qbench.process import start
from qbench.record.stored_run import read_run
from qbench.replay import replay as replaying
from qbench.replay.comparison import Difference, Replayed
from qbench.report import build, saved_plots
from qbench.running import run as running
from qbench.running import text as run_text
from qbench.suite import parse
from qbench.train import text as train_text
from qbench.train import train as training
from qbench.upgrade import upgrade as upgrading

SUITE = "suite: demo\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n"
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """The command line in this process, beside a suite: its exit code and both streams."""
    (tmp_path / "demo.yaml").write_text(SUITE)
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["qbench", *words])
        with pytest.raises(SystemExit) as ended:
            main.main()
        captured = capsys.readouterr()
        return int(str(ended.value.code)), captured.out, captured.err

    return run


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What the stories were asked for, in place of their work."""
    given: list[Any] = []
    question, answer = ask("latency"), ANSWERS["named"][1]
    journal = Journal(folder=tmp_path, question=question)
    started = Started(journal=journal, answer=answer, metric=METRIC, folder=tmp_path)

    def keep(result: Any) -> Callable[..., Any]:
        def story(*words: Any, **options: Any) -> Any:
            given.append((words, options))
            return result

        return story

    monkeypatch.setattr(bisecting, "start", keep(started))
    monkeypatch.setattr(upgrading, "upgrade", keep(make_upgraded([SLOW], [SLOW])))
    monkeypatch.setattr(gate, "gate_run", keep(make_gated([SAME])))
    monkeypatch.setattr(against, "gate_against", keep(make_gated([SLOW])))
    monkeypatch.setattr(checking, "check_file", keep(CHECK))
    return given


@pytest.mark.parametrize(("words", "seconds"), [((), math.inf), (("--max-minutes", "2"), 120.0)])
def test_minutes_are_seconds_and_none_is_no_limit(
    command: Command, asked: list[Any], tmp_path: Path, words: tuple[str, ...], seconds: float
) -> None:
    """Of a gate, of a bisection, of an upgrade."""
    run = str(run_folder(tmp_path / "run", [fp32(), int8()]))
    command("gate", run, *words, "-q")
    command("gate", "demo.yaml", "--against", "main", *words, "-q")
    command("upgrade", "demo.yaml", "--to", "onnxruntime==99.0", *words, "-q")
    command("bisect", "demo.yaml", "--case", "c", "--good", "a", "--bad", "b", *words, "-q")
    rerunners = [asked[0][1]["rerun"], asked[1][0][1], asked[2][0][1]]
    assert [each.most_seconds for each in rerunners] == [seconds] * 3
    assert asked[3][0][0].most_seconds == seconds


@pytest.mark.parametrize("option", ["--junit", "--markdown", "--output"])
def test_an_upgrade_that_cannot_be_written_down_is_not_made(
    command: Command, asked: list[Any], tmp_path: Path, option: str
) -> None:
    """It takes an hour; where its files cannot be written is told before."""
    file = tmp_path / "gone" / "file"
    code, _, told = command("upgrade", "demo.yaml", "--to", "onnxruntime==99.0", option, str(file), "-q")
    assert (code, asked) == (2, [])
    assert f"{file}: cannot be written" in told


def test_a_gate_that_runs_nothing_has_nobody_to_run_it(command: Command, asked: list[Any], tmp_path: Path) -> None:
    """What lies beside a baseline runs only where that is said."""
    run = str(run_folder(tmp_path / "run", [fp32(), int8()]))
    for words in (["--stored"], [], ["--trust-baseline-artifacts", "--suite", "demo.yaml", "--filter", "*/static/*"]):
        assert command("gate", run, *words, "-q")[0] == 0
    stored, plain, trusted = (options for _, options in asked)
    assert stored["rerun"] is None
    assert (plain["rerun"].trust_beside, plain["rerun"].suite_file, plain["only"]) == (False, None, None)
    assert (trusted["rerun"].trust_beside, trusted["rerun"].suite_file) == (True, Path("demo.yaml"))
    assert (trusted["suite_file"], trusted["only"]) == (Path("demo.yaml"), "*/static/*")


@pytest.mark.parametrize("words", [("--stored",), ("--baseline", "b.jsonl"), ("--suite", "demo.yaml")])
def test_a_gate_against_a_commit_builds_its_own_baseline(
    command: Command, asked: list[Any], words: tuple[str, ...]
) -> None:
    """Another one is refused; without it, what is asked for goes along."""
    code, _, told = command("gate", "demo.yaml", "--against", "main", *words)
    assert (code, asked) == (2, [])
    assert "leave out --stored, --baseline and --suite" in told
    code, *_ = command("gate", "demo.yaml", "--against", "main", "--same-environment", "--filter", "a", "-q")
    request = asked[0][0][0]
    assert (code, request.suite, request.ref, request.only) == (1, Path("demo.yaml"), "main", "a")
    assert (request.same_environment, request.quiet) == (True, True)


def test_an_upgrade_is_of_a_suite_or_of_a_run(
    command: Command, asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are written where asked for, the runs land below reports; of a run nothing can be set, and qbench itself is
    not what differs."""
    to = ("--to", "onnxruntime==99.0")
    code, said, _ = command("upgrade", "demo.yaml", *to, "--from", "onnxruntime==1.0", "--set", "measure.seed=3", "-q")
    request = asked[0][0][0]
    assert (code, request.suite.measure.seed, request.run) == (1, 3, None)
    assert (str(request.to[0]), str(request.since[0])) == ("onnxruntime==99.0", "onnxruntime==1.0")
    assert (request.out, request.quiet) == (tmp_path / "reports", True)
    assert said.startswith("Do not: ")
    assert not list(tmp_path.glob("u.*"))
    code, said, _ = command(
        *("upgrade", "demo.yaml", *to, "--markdown", "u.md", "--junit", "u.xml", "--json", "--out", "o"),
        *("--output", "u.html"),
    )
    assert said.startswith("{")
    assert "<html" in (tmp_path / "u.html").read_text()
    assert (asked[1][0][0].quiet, asked[1][0][0].only, asked[1][0][0].since) == (False, None, ())
    assert (tmp_path / "u.md").read_text().startswith("<!-- qbench-upgrade: demo -->")
    assert "<testsuite" in (tmp_path / "u.xml").read_text()
    assert asked[1][0][0].out == tmp_path / "o"
    run = str(run_folder(tmp_path / "run", [fp32(), int8()]))
    code, _, told = command("upgrade", run, *to, "--set", "a=1")
    assert (code, "name the suite's file in place of a run" in told) == (2, True)
    for name in ("qbench", "qbench-int8"):
        code, _, told = command("upgrade", "demo.yaml", "--to", f"{name}==1")
        assert (code, "qbench measures both sides" in told) == (2, True)
    assert len(asked) == 2


def test_a_bisection_tells_its_page_and_its_answer(command: Command, asked: list[Any], tmp_path: Path) -> None:
    """In words, or as JSON; the exit code is that of the answer."""
    ends = ("bisect", "demo.yaml", "--case", "c", "--good", "a", "--bad", "b")
    code, said, _ = command(*ends, "--on", "bits", "--pre-releases", "--set", "measure.seed=3", "-q")
    request = asked[0][0][0]
    assert (code, request.on, request.pre_releases, request.out, request.quiet) == (0, "bits", True, None, True)
    assert (request.case, request.good, request.bad, request.suite.measure.seed) == ("c", "a", "b", 3)
    assert said.startswith("onnxruntime 1.24.0 made it slower")
    assert said.endswith(f"page: {tmp_path / 'bisect.html'}\n")
    code, said, _ = command(*ends, "--json", "--out", "looks")
    assert said.startswith("{")
    assert asked[1][0][0].out == Path("looks")
    assert not asked[1][0][0].pre_releases


def test_a_check_has_a_page_where_one_is_named(command: Command, asked: list[Any], tmp_path: Path) -> None:
    """And ends with 1 where there is a fault."""
    code, said, _ = command("check", "m.onnx", "-o", "m.html", "--shape", "a=1", "--shape", "b=2", "--threads", "2")
    assert (code, said.splitlines()[0]) == (1, "models/model-int8.onnx: 2 faults (ONNX, 4.05 kB)")
    assert (tmp_path / "m.html").is_file()
    words, options = asked[0]
    assert (words, options["shapes"], options["threads"]) == ((Path("m.onnx"),), ("a=1", "b=2"), 2)
    assert (options["against"], options["data"]) == (None, None)


def test_a_sound_file_ends_with_0(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """As JSON as in words."""
    monkeypatch.setattr(checking, "check_file", lambda *_, **__: FileCheck(file="m", format="ONNX", bytes=1))
    assert command("check", "m.onnx")[0] == 0
    code, said, _ = command("check", "m.onnx", "--json")
    assert (code, said[0]) == (0, "{")


@pytest.mark.parametrize("differs", [False, True])
def test_a_replay_ends_with_whether_something_differs(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, differs: bool
) -> None:
    """The new run lands below reports unless another folder is named."""
    run = read_run(run_folder(tmp_path / "run", [fp32(), int8()]))
    difference = Difference(what="score", where="m", before="1", now="2")
    replayed = Replayed(
        suite="demo", before=run, after=run, differences=(difference,) * differs, artifacts=1, answers=2, settings=1
    )
    given: list[Any] = []
    monkeypatch.setattr(
        replaying, "replay", lambda folder, tell, **options: given.append((folder, options)) or replayed
    )
    code, said, _ = command("replay", str(run.folder), "-q")
    assert (code, said.startswith("The same: ")) == (int(differs), not differs)
    assert command("replay", str(run.folder), "--out", "o", "--json")[1].startswith("{")
    assert given == [
        (run.folder, {"out": Path("reports"), "quiet": True}), (run.folder, {"out": Path("o"), "quiet": False}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "which"),
    [
        *((words, {"full": True}) for words in ("gate demo", "baseline demo", "ship demo", "replay demo")),
        ("upgrade demo --to onnxruntime==99.0", {"full": True}),
        *((words, {"full": False}) for words in ("report demo", "report run --compare demo", "compare demo demo")),
        *((words, {"full": False}) for words in ("export demo --format csv", "portability demo", "explain demo case")),
        ("run --resume demo", {"to_resume": True}),
        ("run demo.yaml --artifacts demo", {}),
    ],
)
def test_what_decides_or_ships_rather_takes_a_run_proper(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str, which: dict[str, bool]
) -> None:
    """Of a suite that is named, than a later quick look; what shows takes the latest, and what goes on the very latest
    even where no case of it is ok."""
    run_folder(tmp_path / "run", [fp32(), int8()])
    given: list[Any] = []

    def find_run(name: str, **options: Any) -> Path:
        if name == "run":
            return tmp_path / "run"
        given.append({key: value for key, value in options.items() if key != "tell"})
        raise UsageError(f"looked for {name}")

    monkeypatch.setattr(output, "find_run", find_run)
    monkeypatch.setattr(run_command, "find_run", find_run)
    code, _, told = command(*words.split())
    assert (code, "looked for demo" in told, given) == (2, True, [which])


def test_a_doctor_takes_the_seconds_that_are_asked_for(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five of noise, ten minutes of the control, where none are."""
    from qbench.doctor import findings, text
    from qbench.gating import error_rates

    given: list[Any] = []
    monkeypatch.setattr(findings, "examine", lambda *, noise_seconds, tell: given.append(noise_seconds))
    monkeypatch.setattr(text, "as_json", lambda examined: "{}")
    monkeypatch.setattr(text, "text", lambda examined, width: "words")
    assert [command("doctor", *words, "-q")[1] for words in ((), ("--json",), ("--seconds", "0"))] == [
        "words\n", "{}\n", "words\n",
    ]  # fmt: skip
    assert given == [5.0, 5.0, 0.0]
    monkeypatch.setattr(error_rates, "simulations", list)
    monkeypatch.setattr(error_rates, "real", lambda seconds, *, progress: given.append(seconds) or [])
    monkeypatch.setattr(error_rates, "as_json", lambda rates: "{}")
    assert command("doctor", "--control", "--json", "-q")[1] == "{}\n"
    monkeypatch.setattr(error_rates, "rows", lambda rates: [("a", "1", "2", "3", "b", "4"), ("longer",) * 6])
    code, said, _ = command("doctor", "--control", "--seconds", "2", "-q")
    assert (code, given[3:]) == (0, [600.0, 2.0])
    row = said.splitlines()[1]
    words = [row.index(word) for word in ("a", "b")]  # words begin below their titles, figures end there
    assert words == [said.index(title) for title in ("condition", "wrong means")]


def test_a_host_is_prepared_and_nothing_is_examined(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what there is of it."""
    from qbench import registry

    monkeypatch.setattr(
        registry, "load", lambda kind, name: SimpleNamespace(prepare=lambda root, tell: f"{kind} {name} is here")
    )
    assert command("doctor", "--prepare", "qemu", "-q")[1] == "host qemu is here\n"


def play_run(monkeypatch: pytest.MonkeyPatch, folder: Path, **facts: Any) -> list[Any]:
    """A run that is asked for and ends like this, in place of its work; what it was asked for, and whether a server for
    its children was started before."""
    given: list[Any] = []
    ended = {
        "resume": None,
        "elapsed_seconds": {"build": 1.0},
        "folder": folder,
        "records": (),
        "exit_code": 0,
        **facts,
    }
    monkeypatch.setattr(start, "start_server", lambda: given.append("server"))
    monkeypatch.setattr(
        running, "run", lambda suite, **options: given.append((suite, options)) or SimpleNamespace(**ended)
    )
    monkeypatch.setattr(run_command, "print_answer", lambda folder, wide: given.append(("answer", wide)))
    monkeypatch.setattr(run_command, "print_files", lambda folder: None)
    return given


def test_a_run_takes_what_is_asked_for(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And nothing where nothing is; without a record there is no report."""
    given = play_run(monkeypatch, tmp_path)
    code, said, _ = command("run", "demo.yaml", "-q")
    nothing = dict.fromkeys(("out", "only", "resume", "jobs", "on", "artifacts"))
    assert (code, given[0], given[2]) == (0, "server", ("answer", False))
    assert {key: given[1][1][key] for key in nothing} == nothing
    assert "report: none, since nothing was recorded" in said
    earlier = run_folder(tmp_path / "earlier", [fp32(), int8()])
    words = ("--out", "o", "--filter", "a", "--jobs", "2", "--on", "ray", "--artifacts", str(earlier), "--wide", "-q")
    command("run", "demo.yaml", *words, "--set", "measure.seed=3")
    suite, options = given[4]
    assert (suite.measure.seed, given[5]) == (3, ("answer", True))
    assert (options["out"], options["only"], options["jobs"], options["on"]) == (Path("o"), "a", 2, "ray")
    assert (options["artifacts"], options["resume"]) == (earlier, None)


@pytest.mark.parametrize(("written", "failed", "code"), [(True, 0, 0), (True, 1, 1), (False, 0, 1), (False, 1, 1)])
def test_a_run_ends_with_what_failed_of_it(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, written: bool, failed: int, code: int
) -> None:
    """A case, or its report, whose place or whose error is told, with how long it took."""
    given = play_run(monkeypatch, tmp_path, records=("a record",), exit_code=failed)

    def build_report(folder: Path) -> Path:
        if not written:
            raise UsageError("the disk is full")
        return folder / "report.html"

    monkeypatch.setattr(build, "build_report", build_report)
    monkeypatch.setattr(run_command, "time", SimpleNamespace(monotonic=itertools.count(100.0, 2.5).__next__))
    monkeypatch.setattr(run_text, "suggest_checks", lambda *_: ("have a look",))
    ended, said, told = command("run", "demo.yaml", "-q")
    assert (ended, given[2]) == (code, ("answer", False))
    assert f"report: {tmp_path / 'report.html' if written else 'none, see above'}" in said
    assert "have a look\n" in said
    assert ", report 2.50 s; " in said
    assert ("error: the disk is full" in told) == (not written)
    monkeypatch.setattr(run_command, "read_answer", lambda folder: "answer")
    monkeypatch.setattr(run_text, "as_json", lambda result, page, elapsed, answer: f"{page} {sorted(elapsed)} {answer}")
    page = tmp_path / "report.html" if written else None
    assert command("run", "demo.yaml", "-q", "--json")[1] == f"{page} ['build', 'report'] answer"


def test_a_run_without_a_suite_says_how_to_name_one(command: Command) -> None:
    """Or how to go on with a run; data belong to a model."""
    assert "no suite is named: `qbench run SUITE`" in command("run")[2]
    assert "--data is that of a model, and none is no model" in command("run", "--data", "photos")[2]


def test_a_training_changes_what_is_asked_for(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The rest is the model's own; weights are copied where a file is named."""
    given: list[Any] = []
    report = SimpleNamespace(notes=("a note",))
    monkeypatch.setattr(training, "train", lambda *words, **options: given.append((words, options)) or report)
    monkeypatch.setattr(training, "write", lambda report, out: given.append(out))
    monkeypatch.setattr(train_text, "text", lambda *_, **options: f"words {options['changes']}")
    monkeypatch.setattr(train_text, "as_json", lambda *_, out: f"json {out}")
    code, said, told = command("train", "demo.yaml", "digits-cnn")
    assert (code, said) == (0, "words {}\n")
    assert "a note" in told
    (words, options), *written = given
    assert (words[1], options["changes"], options["cores"], written) == ("digits-cnn", {}, None, [])
    asked_for = ("--epochs", "2", "--learning-rate", "0.5", "--seed", "0", "--cores", "1", "--out", "w.safetensors")
    code, said, told = command("train", "demo.yaml", "digits-cnn", *asked_for, "--json", "-q")
    assert (said, "a note" in told) == ("json w.safetensors\n", False)
    assert given[1][1]["changes"] == {"epochs": 2, "learning_rate": 0.5, "seed": 0}
    assert (given[1][1]["cores"], given[2]) == (1, Path("w.safetensors"))


def test_the_cache_is_emptied_as_far_as_is_asked_for(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it, unless a part is named."""
    given: list[Any] = []
    monkeypatch.setattr(cleaning, "clean", lambda **options: given.append(options))
    monkeypatch.setattr(cleaning, "to_text", lambda done, dry_run: f"dry {dry_run}")
    assert command("clean")[1] == "dry False\n"
    assert command("clean", "--older-than", "2", "--dry-run", "--environments")[1] == "dry True\n"
    assert given == [
        {"older_than_days": None, "dry_run": False, "only": None},
        {"older_than_days": 2.0, "dry_run": True, "only": "environments"},
    ]


def test_a_report_shows_the_change_from_the_run_that_is_named(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The page's path is the last line; pictures and the table where they are asked for."""
    run, other = (run_folder(tmp_path / name, [fp32(), int8()]) for name in ("run", "other"))
    given: list[Any] = []
    monkeypatch.setattr(build, "build_report", lambda folder, other: given.append((folder, other)) or "page")
    monkeypatch.setattr(saved_plots, "save_plots", lambda folder: given.append("plots"))
    monkeypatch.setattr(report_command, "print_answer", lambda folder, wide: given.append(("answer", wide)))
    assert command("report", str(run))[1] == "page\n"
    assert given == [(run, None)]
    command("report", str(run), "--compare", str(other), "--wide", "--plots")
    assert given[1:] == [(run, other), ("answer", True), "plots"]
    assert "name a run, or --history" in command("report")[2]
    assert f"leave out {run}" in command("report", str(run), "--history", "reports")[2]


@pytest.mark.parametrize(
    ("words", "status", "code"), [((), "failed", 0), (("--here",), "failed", 1), (("--here",), "ok", 0)]
)
def test_what_does_not_run_here_fails_where_here_is_asked_for(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...], status: str, code: int
) -> None:
    """Other hosts of a run are told alone."""
    folder = run_folder(tmp_path / "run", [fp32(), int8()])
    stored = read_run(folder)
    case = replace(stored.records[1].case, host=HERE)
    here = replace(stored, records=(*stored.records, replace(stored.records[1], case=case, status=status)))
    monkeypatch.setattr(portability_command, "_answer_here", lambda *_, quiet: here)
    assert command("portability", str(folder), *words, "-q")[0] == code


def test_artifacts_of_a_baseline_that_is_not_there_are_none(command: Command, tmp_path: Path) -> None:
    """A folder is no list of them either; the message says what writes one."""
    run = str(run_folder(tmp_path / "run", [fp32(), int8()]))
    for name in ("none.jsonl", "run"):
        code, _, told = command("portability", run, "--artifacts", name, "-q")
        assert code == 2
        assert told.startswith(f"error: {name}: no such file; name the .jsonl that `qbench baseline")


@pytest.mark.parametrize(("modes", "trains"), [("[fp32, static]", False), ("[fp32, qat]", True)])
def test_answers_here_are_on_the_data_of_the_suite(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, modes: str, trains: bool
) -> None:
    """In its limits; with the training split, which is kept apart from the evaluation, where QAT trained on it."""
    from qbench.portability import here
    from qbench.process import child_process

    suite = parse(f"{SUITE.replace('{}', f'{{modes: {modes}}}')}limits: {{stage_seconds: 77}}\n", file="demo.yaml")
    run = read_run(run_folder(tmp_path / "run", [fp32(), int8()]))
    given: list[Any] = []

    def call(function: Any, request: Any, root: Path, *, limits: Any, progress: Any) -> str:
        given.append((request.train, limits.seconds))
        progress("read data", None)
        return "data"

    def answer_here(run: Any, data: Any, find: Any, *, root: Path, limits: Any, progress: Any) -> Any:
        given.append((data, limits.seconds))
        return run

    monkeypatch.setattr(portability_command, "_find_suite", lambda run, explicit: suite)
    monkeypatch.setattr(child_process, "call", call)
    monkeypatch.setattr(here, "answer_here", answer_here)
    assert "here 1 read data" in command("portability", str(run.folder), "--here")[2]
    assert given == [(trains, 77.0), ("data", 77.0)]
