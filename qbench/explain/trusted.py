"""The suite of a run, where a case may be built anew from it: a run's folder can come from anybody."""

from __future__ import annotations

from pathlib import Path

from qbench import suite as suites
from qbench.errors import SuiteError, UsageError
from qbench.record.origin import came_with
from qbench.record.stored_run import RUN, StoredRun
from qbench.suite import Suite

# What artifacts and examples come from.
_DECIDES = ("suite", "models", "data", "quantize", "recipe")


def read_suite(run: StoredRun, explicit: Path | None = None) -> Suite:
    """The suite of a run from its file on this disk (``explicit``: where the user says), as the run had it.

    Its models and data may be Python, which is run: raises ``UsageError`` where the file is not there, came with the
    run, or says something else now of what artifacts come from, and where the run's overrides lead to other code.
    """
    info = run.info.suite
    file = explicit or _find_file(run)
    if not file.is_file():
        place = "" if file.is_absolute() else f" below {Path.cwd()}"
        raise UsageError(
            f"to try causes, variants are built from the suite, and {file} is not there{place}; name it with --suite"
        )
    if explicit is None and came_with(run.folder, file):
        raise UsageError(
            f"to try causes, variants are built from the suite, and {file} lies beside the run; name it with --suite "
            "if you trust the Python that it names"
        )
    stored = _parse_stored(run)
    current = suites.read(file, info.overrides)
    if current.name_sources() != suites.read(file).name_sources():
        raise UsageError(
            f"{run.folder}: it was made with --set on models, data set or metric ({'; '.join(info.overrides)}), which "
            "may name anybody's code; write that into the suite and run it again"
        )
    changed = [name for name in stored.list_changes(current) if name in _DECIDES]
    if changed:
        raise UsageError(
            f"{file}: since the run, {', '.join(changed)} changed, so what is built now is not what was measured; run "
            "the suite again"
        )
    return current


def _find_file(run: StoredRun) -> Path:
    """Where the run's suite lies: the path that the run was started with is one from the folder that one works in or,
    where that has none, from the one that holds the run's reports."""
    file = Path(run.info.suite.file)
    there = run.folder.resolve().parent.parent.parent / file
    return there if not file.is_file() and there.is_file() else file


def _parse_stored(run: StoredRun) -> Suite:
    """The suite as the run holds it; raises ``UsageError`` about the run's own file where that is no suite."""
    info = run.info.suite
    try:
        return suites.parse(info.text, file=info.file, overrides=info.overrides, stored=True)
    except SuiteError as error:
        texts = "; ".join(problem.what for problem in error.problems)
        what = f"its copy of {info.file} is no suite: {texts}"
        raise UsageError(f"{run.folder / RUN}: {what}; run the suite again") from error
