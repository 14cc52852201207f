"""Which run is meant: a folder, or the latest of a suite, and where `latest` points."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from qbench.errors import UsageError
from qbench.files import atomic, regular_file, strict_json
from qbench.files.stored_name import require_name
from qbench.foreign_text import join_lines

REPORTS = Path("reports")
LATEST, RUN = "latest", "run.json"
_NAME = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{4}")  # of a run's folder
BASELINES = REPORTS / "baselines"


def find_run(
    name: str,
    reports: Path = REPORTS,
    *,
    tell: Callable[[str], None] = lambda note: None,
    to_resume: bool = False,
    full: bool = False,
) -> Path:
    """The folder of a run: ``name`` itself, or the latest run in ``name`` or in ``reports/name``.

    Of a suite it is the latest run with a case that is ok, if there is one, and ``tell`` hears of a later one without;
    ``to_resume`` asks for the very latest, ``full`` for one that is no quick look, if there is one.
    Raises ``UsageError`` that lists the suites which have runs.
    """
    path = Path(name)
    if (path / RUN).is_file():
        return _require_one_line(regular_file.real_path(path))
    for folder in (path, reports / name):
        if runs := _runs(folder):
            newest = runs[0]
            good = [newest] if to_resume else [run for run in runs if _statuses(run)["ok"]] or [newest]
            chosen = next((run for run in good if not is_quick(run)), good[0]) if full else good[0]
            if chosen != newest:
                looked = chosen != good[0]
                why = "is a quick look" if looked else f"has no case that is ok ({without_ok(newest)})"
                tell(
                    f"{name}: its latest run, {newest.name}, {why}, so this is about {chosen.name}; name {newest} to "
                    f"{'take' if looked else 'see'} that one"
                )
            return _require_one_line(regular_file.real_path(chosen))
    if (path / "records.jsonl").is_file():
        raise UsageError(
            f"{path / RUN}: missing, though records are there: it says which suite and machine they are of; take it "
            "from a copy of the run, or make a new run with `qbench run SUITE`"
        )
    there = sorted({path.parent.parent.name for path in reports.glob(f"*/*/{RUN}") if path.is_file()})
    hint = f"suites with runs: {join_lines(', '.join(there))}" if there else "make one with `qbench run SUITE`"
    raise UsageError(f"{name}: no run is there; {hint}")


def is_quick(run: Path) -> bool:
    """Whether a run's folder holds a quick look; one that cannot be read holds none."""
    with contextlib.suppress(OSError, ValueError):
        content = strict_json.parse(regular_file.read_text(run / RUN))
        return isinstance(content, dict) and content.get("quick") is not None
    return False


def point_latest_at(folder: Path, *, quick: bool) -> None:
    """``latest`` is this run, unless it is a later one already (names of runs begin with their time), or this is a
    quick look and the other is none. What somebody else has put under this name stays there."""
    link = folder.parent / LATEST
    text = link.with_suffix(".txt")
    later = link.is_symlink() and (link / RUN).is_file() and link.readlink().name > folder.name
    if later or (quick and (link / RUN).is_file() and not is_quick(link)):
        return
    points = _is_pointer(text)
    try:
        if os.path.lexists(link) and not _NAME.fullmatch(str(link.readlink())):
            raise FileExistsError(link)
        with atomic.replace_file(link) as part:
            part.symlink_to(folder.name)
        if points:  # it would go before the link
            text.unlink()
    except OSError:  # no symbolic links here, or something of that name: a text file serves instead
        if points or not os.path.lexists(text):
            atomic.write_text(text, f"{folder.name}\n")


def _is_pointer(file: Path) -> bool:
    """Whether a file is one that says which run is the latest, and nothing else."""
    try:
        return not file.is_symlink() and _NAME.fullmatch(regular_file.read_text(file).strip()) is not None
    except (OSError, UnicodeDecodeError):
        return False


def passed_over(name: str, chosen: Path, reports: Path = REPORTS) -> Path | None:
    """The latest run of the suite ``name`` (or of the suite whose ``latest`` it is) where ``chosen`` is an older one:
    it has no case that is ok. None where ``name`` is the folder of a run, or ``chosen`` is the latest."""
    path = Path(name)
    folders = [path.parent] if path.name == LATEST else [path, reports / name]
    newest = next((regular_file.real_path(runs[0]) for folder in folders if (runs := _runs(folder))), None)
    return None if newest is None or newest == chosen or _statuses(newest)["ok"] else newest


def without_ok(run: Path) -> str:
    """What a run without a case that is ok has: ``2 failed, 1 skipped``, or ``no record``."""
    statuses = _statuses(run)
    return ", ".join(f"{number} {status}" for status, number in sorted(statuses.items())) or "no record"


def _require_one_line(run: Path) -> Path:
    """Raises ``UsageError`` where the path of a run, to which anybody's link may lead, ends a line of a message."""
    if "\n" in str(run):
        raise UsageError(f"{join_lines(str(run))}: the path of this run has a line break; give its folder another name")
    return run


def committed_baseline(suite: str, baselines: Path = BASELINES) -> Path | None:
    """The file of a suite's stored baseline; None where none was written yet."""
    file = baselines / f"{require_name(suite)}.jsonl"
    return file if file.is_file() else None


def _runs(folder: Path) -> list[Path]:
    """A suite's runs, the latest first: what ``latest`` points at, then by name, which begins with the time. One whose
    name would end a line of a message is none: qbench gives no such name."""
    files = (file for file in folder.glob(f"*/{RUN}") if file.is_file())
    runs = {file.parent.name: file.parent for file in files if file.parent.name != LATEST and "\n" not in str(file)}
    pointed = _latest(folder)
    first = [pointed] if (pointed / RUN).is_file() and not runs.get(pointed.name) else []
    return [*first, *(runs[name] for name in sorted(runs, reverse=True))]


def _latest(folder: Path) -> Path:
    """Where a suite's ``latest`` leads; where there are no symbolic links a name stands in ``latest.txt``."""
    pointer = folder / f"{LATEST}.txt"
    if not pointer.is_file():
        return regular_file.resolve_path(LATEST, folder.absolute())
    name = regular_file.read_text(pointer, errors="replace").strip()
    try:
        return folder / require_name(name)
    except ValueError:  # somebody's own file of that name
        return folder / LATEST


def _statuses(run: Path) -> Counter[str]:
    """How many records of a run have each status; lines that cannot be read have none."""
    counted: Counter[str] = Counter()
    with contextlib.suppress(OSError), regular_file.open_file(run / "records.jsonl") as file:
        for line in file:
            with contextlib.suppress(strict_json.NotJson):
                record = strict_json.parse(line.decode(errors="replace"))
                if isinstance(record, dict):
                    counted[str(record.get("status"))] += 1
    return counted
