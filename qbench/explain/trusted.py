"""The suite of a run, where a case may be built anew from it: a run's folder can come from anybody."""

from __future__ import annotations

from pathlib import Path

from qbench import consent
from qbench import suite as suites
from qbench.errors import SuiteError, UsageError
from qbench.record.stored_run import RUN, StoredRun
from qbench.suite import Suite

# What artifacts and examples come from.
_DECIDES = ("suite", "models", "data", "quantize", "recipe")


def read_suite(run: StoredRun, explicit: Path | None = None) -> Suite:
    """The suite of a run from its file on this disk (``explicit``: where the user says), as the run had it.

    Its models and data may be Python, which is run: raises ``UsageError`` where the file is not there, leads to code
    that this user neither names nor ran here, or says something else now of what artifacts come from.
    """
    info = run.info.suite
    file = explicit or consent.find_suite(run.folder, info)
    if not file.is_file():
        place = "" if file.is_absolute() else f" below {Path.cwd()}"
        raise UsageError(
            f"to try causes, variants are built from the suite, and {file} is not there{place}; name it with --suite"
        )
    stored = _parse_stored(run)
    current = suites.read(file, info.overrides)
    refused = consent.why_refused(current, named=None if explicit is None else suites.read(explicit))
    if refused is not None and explicit is not None:
        raise UsageError(
            f"{run.folder}: with the --set of the run ({'; '.join(info.overrides)}), {refused}; write that into the "
            "suite and run it again"
        )
    if refused is not None:
        raise UsageError(
            f"to try causes, variants are built from the suite, and {refused}; if you trust that, name the suite: "
            f"--suite {file}"
        )
    changed = [name for name in stored.list_changes(current) if name in _DECIDES]
    if changed:
        raise UsageError(
            f"{file}: since the run, {', '.join(changed)} changed, so what is built now is not what was measured; run "
            "the suite again"
        )
    return current


def _parse_stored(run: StoredRun) -> Suite:
    """The suite as the run holds it; raises ``UsageError`` about the run's own file where that is no suite."""
    info = run.info.suite
    try:
        return suites.parse(info.text, file=info.file, overrides=info.overrides, stored=True)
    except SuiteError as error:
        texts = "; ".join(problem.what for problem in error.problems)
        what = f"its copy of {info.file} is no suite: {texts}"
        raise UsageError(f"{run.folder / RUN}: {what}; run the suite again") from error
