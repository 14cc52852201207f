"""The command line: argv -> one short function per subcommand -> text on stdout and an exit code.

Nothing else in qbench ends the process, and nothing but the commands below ``qbench onnx`` (``onnx_commands``) prints.
Each command imports what it needs, so that `qbench --help` and `qbench list` start no heavy library. Results go to
stdout, progress and errors to stderr.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from qbench import onnx_commands
from qbench.errors import NotComparable, QbenchError, UsageError
from qbench.find import BASELINES, committed_baseline, find_run
from qbench.terminal import plain_output

if TYPE_CHECKING:
    from qbench.baseline import Baseline
    from qbench.live import Silent
    from qbench.report.text import TextTable
    from qbench.run import RunResult
    from qbench.stored import StoredRun

INTERRUPTED = 130  # what a shell says of a command ended by SIGINT

app = typer.Typer(
    name="qbench",
    help="Decide which int8 neural network to ship on CPUs, and let CI keep it that way.",
    epilog="Start with: qbench run suites/quickstart.yaml",
    no_args_is_help=True,
    rich_markup_mode=None,  # rich's help costs 0.1 s
    pretty_exceptions_enable=False,  # a bug shows Python's own traceback
)

Suite = Annotated[Path, typer.Argument(metavar="SUITE", help="A suite file.", show_default=False)]
Run = Annotated[
    str,
    typer.Argument(metavar="RUN", help="A run's folder, or a suite's name for its latest run.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Filter = Annotated[
    str | None,
    typer.Option("--filter", metavar="GLOB", help="Only cases whose id matches, e.g. '*/static/*'; comma-separated."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the suite; repeatable."),
]


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        from qbench import __version__

        print(f"qbench {__version__}")
        raise typer.Exit


@app.command(epilog="Example: qbench run suites/quickstart.yaml --filter '*/static/*' --set measure.precision=1%")
def run(
    suite: Suite,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where runs land, as DIR/<suite>/<time>-<id>/; default: reports.")
    ] = None,
    only: Filter = None,
    overrides: Set = None,
    resume: Annotated[str | None, typer.Option(metavar="DIR", help="Go on with an interrupted run.")] = None,
    jobs: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Builds at once; default: the usable cores.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Build, evaluate and measure every case of a suite, and write a report.

    Exit code: 0 every case is ok or skipped with a reason, 1 a case failed, 2 usage or suite error, 130 interrupted.
    """
    from qbench import run as story
    from qbench import run_words
    from qbench import suite as suites
    from qbench.live import live

    read = suites.read(suite, overrides or ())
    stopped = None if resume is None else find_run(resume, to_resume=True)
    with live(sys.stderr, quiet=quiet) as progress:
        result = story.run(read, out=out, only=only, resume=stopped, jobs=jobs, progress=progress)
        page, seconds = _report(result, progress)
    if result.resume is not None:  # said to the quiet, too, and on a line that no terminal's width cuts
        print(f"interrupted; what is known is kept. Go on with:\n{result.resume}", file=sys.stderr)
    elapsed = {**result.elapsed_seconds, "report": seconds}
    if as_json:
        print(run_words.as_json(result, page, elapsed), end="")
    else:
        _show_run(result, page, elapsed)
    raise typer.Exit(result.exit_code or int(page is None and bool(result.records)))


@app.command(epilog="Example: qbench plan suites/quickstart.yaml --filter '*/onednn/*'")
def plan(suite: Suite, only: Filter = None, overrides: Set = None, as_json: Json = False) -> None:
    """Show what would run, and what is skipped and why; builds nothing."""
    from qbench import machine, plan_words
    from qbench import plan as plans
    from qbench import suite as suites

    read = suites.read(suite, overrides or ())
    cores = plans.measuring_cores(read, machine.allowed_cores())
    made = plans.make_plan(read, plans.load_backends(read), cores=len(cores), only=only)
    print(plan_words.as_json(made).rstrip() if as_json else plan_words.text(made))


@app.command(epilog="Example: qbench train suites/fashion-mnist.yaml resnet20 --epochs 10 --seed 1")
def train(
    suite: Suite,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A built-in that qbench trains.", show_default=False)],
    epochs: Annotated[int | None, typer.Option(metavar="N", min=1, help="Passes over the training split.")] = None,
    learning_rate: Annotated[float | None, typer.Option(metavar="X", help="The highest learning rate.")] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", min=0, max=2**32 - 1, help="Another seed.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Copy the weights to a .safetensors file.")] = None,
    cores: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Default: the usable cores; the weights do not depend on it.")
    ] = None,
    overrides: Set = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a built-in model on the suite's data set; `qbench run` uses the same weights.

    They stay in the cache; the same command answers from there, or goes on where a training was interrupted or killed.
    Exit code: 0, 1 it cannot be trained on this data, 2 usage or suite error, 130 interrupted.
    """
    from qbench import suite as suites
    from qbench import train as training
    from qbench import train_words
    from qbench.live import live

    given = {"epochs": epochs, "learning_rate": learning_rate, "seed": seed}
    changes = {key: value for key, value in given.items() if value is not None}
    read = suites.read(suite, overrides or ())
    training.require_writable(out)
    with live(sys.stderr, quiet=quiet) as progress:
        try:
            report = training.train(read, model, changes=changes, cores=cores, progress=progress)
        except KeyboardInterrupt:
            progress.note("interrupted; the same command goes on from the last checkpoint")
            raise
        for note in report.notes:
            progress.note(note)
    if out is not None:
        training.write(report, out)
    print(train_words.as_json(report, out=out) if as_json else train_words.text(report, read, changes=changes, out=out))


@app.command(epilog="Example: qbench report quickstart --compare reports/quickstart/20260101T000000Z-ab12")
def report(
    run: Run,
    compare: Annotated[str | None, typer.Option(metavar="RUN", help="An older run to show the change from.")] = None,
) -> None:
    """Rebuild report.html, summary.md and results.csv of a run from its records alone."""
    from qbench.report.build import build_report

    print(build_report(_found(run), other=None if compare is None else _found(compare)))


@app.command(epilog="Example: qbench compare reports/baselines/quickstart.jsonl quickstart")
def compare(
    base: Annotated[str, typer.Argument(metavar="BASE", help="A run, or a baseline's .jsonl.", show_default=False)],
    contender: Annotated[str, typer.Argument(metavar="CONTENDER", help="The run to judge.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Show what changed from one run to another, with intervals."""
    from qbench import compare as comparing
    from qbench import compare_words, machine
    from qbench.report import text

    old, new = _stored(base), _stored(contender)
    if old.info.suite.name != new.info.suite.name:
        raise NotComparable(
            f"{base} is of the suite '{old.info.suite.name}', {contender} of '{new.info.suite.name}': what differs "
            "between suites is no change; compare two runs of one suite"
        )
    field = machine.comparable(old.info.environment, new.info.environment)
    deltas = comparing.compare(old.records, new.records, incomparable=field)
    if as_json:
        print(compare_words.as_json(base, contender, deltas, incomparable=field), end="")
    else:
        print(_table(text.comparison(deltas, new.info.metric)))


@app.command(epilog="Example: qbench baseline quickstart")
def baseline(
    run: Run,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="A .jsonl file, or a folder for <suite>.jsonl.")
    ] = BASELINES,
    allow_failed: Annotated[bool, typer.Option("--allow-failed", help="Also with failed cases.")] = False,
    keep_artifacts: Annotated[
        bool, typer.Option("--keep-artifacts", help="Copy the int8 artifacts beside it, not only leave them cached.")
    ] = False,
) -> None:
    """Keep a run as the baseline that later runs are gated against; commit what it writes.

    The gate runs the baseline's artifacts again. They stay in the cache; with --keep-artifacts they also lie beside
    the baseline, to be committed or cached by CI.
    """
    from qbench import baseline as baselines

    file = baselines.write_baseline(_found(run), out, allow_failed=allow_failed)
    examples = baselines.examples_file(file)
    if examples.exists():
        print(f"wrote {file}, {baselines.info_file(file)} and {examples}; commit all three")
    else:
        print(f"wrote {file} and {baselines.info_file(file)}; commit both")
        print("no predictions lie in this run: its scores are kept, but not what each example said")
    print(baselines.to_text(baselines.artifacts(file, keep=keep_artifacts)))


@app.command(epilog="Example: qbench gate quickstart --markdown gate.md")
def gate(
    run: Run,
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Default: reports/baselines/<suite>.jsonl if it is there.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write JUnit XML.")] = None,
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="Write Markdown for a pull request.")] = None,
    github: Annotated[bool, typer.Option("--github", help="Annotate the suite's lines in GitHub Actions.")] = False,
    suite: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The run's suite, if it is not where the run says: its data are opened."),
    ] = None,
    trust_baseline_artifacts: Annotated[
        bool,
        typer.Option(
            "--trust-baseline-artifacts", help="Also run artifacts that lie beside the baseline: they are native code."
        ),
    ] = False,
    stored: Annotated[bool, typer.Option("--stored", help="Run nothing: compare the stored speed-ups.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Judge a run by its suite's gate, against the baseline, whose artifacts are run again beside the run's.

    What is run lies in the cache: it was built here. Nothing that a run's folder or a baseline brings along is run
    unless an option says so; what cannot be run again is judged by its stored figures.
    Exit code: 0 pass, 1 fail, 2 usage, 3 invalid (not comparable, no baseline), 4 inconclusive.
    """
    from qbench import gate as gates
    from qbench import gate_words
    from qbench.gate_live import Rerunner
    from qbench.live import live
    from qbench.stored import read_run

    folder = _found(run)
    against = baseline or committed_baseline(read_run(folder).info.suite.name)
    with live(sys.stderr, quiet=quiet) as progress:
        rerunner = Rerunner(progress=progress, trust_beside=trust_baseline_artifacts, suite_file=suite)
        gated = gates.gate_run(folder, against, rerun=None if stored else rerunner)
    if junit is not None:
        _write(junit, gate_words.junit(gated))
    if markdown is not None:
        _write(markdown, gate_words.markdown(gated))
    print(gate_words.as_json(gated).rstrip() if as_json else gate_words.text(gated))
    if github:
        print(gate_words.github(gated), end="", file=sys.stderr if as_json else sys.stdout)
    raise typer.Exit(gated.exit_code)


@app.command(epilog="Example: qbench doctor --json, or qbench doctor --control --seconds 600")
def doctor(
    seconds: Annotated[
        float | None,
        typer.Option(metavar="N", min=0, help="Length of the noise test (default 5), or of the control (600)."),
    ] = None,
    control: Annotated[
        bool, typer.Option("--control", help="Measure how often the gate errs on this machine, quiet and under noise.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Examine this machine: what its CPU can do for int8, how noisy it is, what is missing.

    Takes some 7 s longer than the noise test the first time, since the fp32 and int8 peak of one core is measured.
    """
    from qbench.live import live

    with live(sys.stderr, quiet=quiet) as progress:
        if control:
            from qbench import control as gates
            from qbench.report.text import TextTable

            rates = [*gates.simulations(), *gates.real(600.0 if seconds is None else seconds, progress=progress)]
            table = TextTable(columns=gates.TITLES, rows=tuple(gates.rows(rates)), words=(0, 4))
            said = gates.as_json(rates) if as_json else _table(table)
        else:
            from qbench import doctor as doctors
            from qbench import doctor_words

            found = doctors.examine(noise_seconds=5.0 if seconds is None else seconds, tell=progress.note)
            said = doctor_words.as_json(found) if as_json else doctor_words.text(found, _width())
    print(said)


@app.command("list", epilog="Example: qbench list --json")
def list_(as_json: Json = False) -> None:
    """List every plug-in: where it is defined, and what is missing to use it."""
    from dataclasses import asdict

    from qbench import list as plugins

    rows = plugins.listing()
    print(json.dumps([asdict(row) for row in rows], indent=1) if as_json else plugins.to_text(rows))


@app.command(epilog="Example: qbench schema > suites/schema.json")
def schema() -> None:
    """Print the JSON Schema of a suite file, for editors."""
    from qbench.suite import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))


@app.command(epilog="Example: qbench clean --older-than 30 --dry-run")
def clean(
    older_than: Annotated[
        float | None, typer.Option(metavar="DAYS", min=0, help="Only what was made more than DAYS days ago.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, remove nothing.")] = False,
) -> None:
    """Empty the cache of built variants and trained weights; runs in reports/ are not touched."""
    from qbench import clean as cleaning

    done = cleaning.clean(older_than_days=older_than, dry_run=dry_run)
    print(cleaning.to_text(done, dry_run=dry_run))


app.add_typer(onnx_commands.app)


def _report(result: RunResult, progress: Silent) -> tuple[Path | None, float]:
    """The report of a run that recorded anything, and the seconds that it took."""
    if not result.records:
        return None, 0.0
    from qbench.report.build import build_report

    progress.stage("report", 1)
    started = time.monotonic()
    try:
        page = build_report(result.folder)
    except QbenchError as error:  # the table below is worth as much: show it
        progress.note(f"error: {error}")
        return None, time.monotonic() - started
    progress.advance(page.name)
    return page, time.monotonic() - started


def _show_run(result: RunResult, page: Path | None, elapsed_seconds: dict[str, float]) -> None:
    """The table, what failed or was skipped, the answer, the report's path, and last where the time went."""
    from qbench import run_words
    from qbench.report import answer, build, text
    from qbench.stored import read_run

    judged = build.judge(read_run(result.folder))
    if result.records:
        print(_table(text.terminal(judged)))
    drawn = (f"warning: {one}" for one in judged.warnings())
    for line in (*run_words.problems(result.records), *run_words.warnings(result.records), *drawn):
        print(line)
    for one in answer.answers(judged):
        print(f"{text.setting_name(one.setting)}: {one.headline} {text.facts(one, judged)}".rstrip())
    print(f"report: {page or ('none, see above' if result.records else 'none, since nothing was recorded')}")
    print(run_words.times(elapsed_seconds))


def _table(content: TextTable) -> str:
    """Aligned where it fits or where the output is no terminal, else a block of lines for each row."""
    from qbench import terminal
    from qbench.report.text import align

    aligned, width = align(content), _width()
    if width is None or max(map(len, aligned.splitlines())) <= width:
        return aligned
    return terminal.blocks(content.columns, content.rows, width)


def _stored(name: str) -> StoredRun | Baseline:
    """A run, or a baseline where the name is that of a ``.jsonl`` file."""
    from qbench.baseline import SUFFIX, read_baseline
    from qbench.stored import read_run

    return read_baseline(Path(name)) if name.endswith(SUFFIX) else read_run(_found(name))


def _found(name: str) -> Path:
    """The folder of a run; which one it is of a suite's is said where that is not the latest."""
    return find_run(name, tell=lambda note: print(f"note: {note}", file=sys.stderr))


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror or error}") from error


def _width() -> int | None:
    """The terminal's width; None where the output is no terminal and must not be cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def main() -> NoReturn:
    """Runs the command line and ends the process with its exit code; what a user can cause shows no traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character must not end a run
    with plain_output():
        try:
            app()
        except QbenchError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(error.exit_code)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        sys.exit(0)
