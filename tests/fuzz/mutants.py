"""Finds holes in the tests: random small changes of qbench, of which some test should notice each.

``python tests/fuzz/mutants.py FOLDER`` draws mutants from every room, tries each in a copy of the repository (never in
the working tree), and prints by room how many a test killed. Each result is a line of ``FOLDER/results.jsonl``; run
again, it goes on where it was stopped, and with ``--again`` tries the survivors against the tests of today. ``--trace``
first runs every test file once, which tells which test executes which line, so that a mutant is tried on all that do;
without it, only those of the files around its module are asked. A mutant that behaves as qbench does is declared in
``FOLDER/equivalent.txt``, a line each: its name and the reason.
"""

from __future__ import annotations

import argparse
import compileall
import dataclasses
import importlib
import json
import math
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noticing_tests import Copy

try:
    import coverage  # noqa: F401 - missing, it is missed at once
    from mutant_sites import Module, Mutant
except ImportError as missing:
    raise SystemExit(f"mutants need more than the tests do ({missing}): pip install -e '.[test,mutants]'") from None

REPOSITORY = Path(__file__).resolve().parents[2]
LEAST = 3  # of a room, so that each has some


def main(words: list[str]) -> int:
    """Draws or reads the sample, tries what has no result, prints the table; 1 where a mutant survived."""
    options = _options(words)
    folder: Path = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if options.trace:
        _in_processes(_trace_some, options.jobs, folder, options.jobs)
    drawn = folder / "sample.jsonl"
    if not drawn.exists():
        _write_sample(drawn, _draw(options))
    sample = [_read_mutant(line) for line in drawn.read_text().splitlines()]
    results = _results(folder)
    again = {"survived", "gone"} if options.again else set()
    open_ = [m for m in sample if m.name not in results or results[m.name]["outcome"] in again]
    if open_:
        _try_all(open_, folder, options.jobs, options.limit)
    return _print_table(sample, _results(folder), _equivalent(folder))


def _options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Change qbench by a little, many times, and see which tests notice.")
    parser.add_argument("folder", type=Path, help="the sample and its results; an existing one is gone on with")
    parser.add_argument("--count", type=int, default=200, help="how many mutants are drawn (default 200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", help="only of these, with commas between: gate,stats,quant/onnx,build.py")
    parser.add_argument("--since", metavar="REF", help="only on lines that changed since that commit")
    parser.add_argument("--again", action="store_true", help="try the survivors again")
    parser.add_argument("--trace", action="store_true", help="first run all tests once, to know what each executes")
    parser.add_argument(
        "--limit", type=float, default=900.0, help="after so many seconds no further test file is asked"
    )
    parser.add_argument("--jobs", type=int, default=1, help="how many processes trace and try (default 1)")
    return parser.parse_args(words)


def room_of(module: str) -> str:
    """The first folder of a module within qbench; ``(top)`` for a module that lies in none."""
    inner = Path(module).parts[1:]
    return inner[0] if len(inner) > 1 else "(top)"


def _draw(options: argparse.Namespace) -> list[Mutant]:
    weights = _changed_lines(options.since) if options.since else _every_line()
    if options.rooms:
        below = tuple(f"qbench/{room}" for room in options.rooms.split(","))
        weights = {m: lines for m, lines in weights.items() if any(m == b or m.startswith(f"{b}/") for b in below)}
    if not weights:
        raise SystemExit("no module of qbench has such lines")
    return draw(REPOSITORY, weights, options.count, random.Random(options.seed))


def draw(root: Path, lines: dict[str, set[int]], count: int, generator: random.Random) -> list[Mutant]:
    """So many mutants on those lines of the modules, by room: ``LEAST`` of each, the rest by the root of its lines.

    Within a room a module is drawn by its lines, and of a module any place with the same chance.
    """
    rooms: dict[str, list[str]] = defaultdict(list)
    for module in sorted(lines):
        rooms[room_of(module)].append(module)
    shares = _shares({room: sum(len(lines[m]) for m in modules) for room, modules in rooms.items()}, count)
    parsed: dict[str, Module] = {}
    sample: dict[str, Mutant] = {}
    for room, modules in rooms.items():
        wanted, tries = shares[room], 0
        while wanted and tries < 20 * shares[room]:
            tries += 1
            module = generator.choices(modules, [len(lines[m]) for m in modules])[0]
            if module not in parsed:
                parsed[module] = Module(module, (root / module).read_text(encoding="utf-8"), lines[module])
            if not parsed[module].sites:
                continue
            mutant = parsed[module].mutant(generator.choice(parsed[module].sites))
            if mutant is not None and mutant.name not in sample:
                sample[mutant.name] = mutant
                wanted -= 1
    return generator.sample(list(sample.values()), len(sample))  # in no order: one that is stopped is a sample, too


def _shares(sizes: dict[str, int], count: int) -> dict[str, int]:
    """How many of each room, ``count`` together (more where ``LEAST`` of each are more)."""
    roots = {room: math.sqrt(size) for room, size in sizes.items()}
    rest = max(0, count - LEAST * len(sizes)) / sum(roots.values())
    exact = {room: min(LEAST, count) + rest * root for room, root in roots.items()}
    shares = {room: int(share) for room, share in exact.items()}
    for room in sorted(exact, key=lambda r: shares[r] - exact[r])[: max(0, count - sum(shares.values()))]:
        shares[room] += 1
    return shares


def _every_line() -> dict[str, set[int]]:
    files = sorted((REPOSITORY / "qbench").rglob("*.py"))
    counted = {f: len(f.read_text(encoding="utf-8").splitlines()) for f in files}
    return {str(f.relative_to(REPOSITORY)): set(range(1, n + 1)) for f, n in counted.items() if n}


def _changed_lines(since: str) -> dict[str, set[int]]:
    """The lines of qbench's modules that differ from a commit's."""
    command = ["git", "diff", "--unified=0", "--no-color", "--no-ext-diff", since, "--", "qbench/*.py"]
    text = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
    lines: dict[str, set[int]] = {}
    module = ""
    for line in text.splitlines():
        if line.startswith("+++ "):
            module = line.removeprefix("+++ ").removeprefix("b/")
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            start, size = int(hunk[1]), int(hunk[2] or 1)
            if size:
                lines.setdefault(module, set()).update(range(start, start + size))
    return lines


def _write_sample(path: Path, sample: Iterable[Mutant]) -> None:
    path.write_text("".join(json.dumps(dataclasses.asdict(mutant)) + "\n" for mutant in sample))


def _read_mutant(line: str) -> Mutant:
    read: dict[str, Any] = json.loads(line)
    return Mutant(**{key: tuple(value) if isinstance(value, list) else value for key, value in read.items()})


def _results(folder: Path) -> dict[str, dict[str, Any]]:
    """The last result of each mutant."""
    path = folder / "results.jsonl"
    read = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    return {result["mutant"]: result for result in read}


def _equivalent(folder: Path) -> dict[str, str]:
    """The reasons of those that are declared to behave as qbench does."""
    path = folder / "equivalent.txt"
    split = (
        line.split(maxsplit=1) for line in (path.read_text().splitlines() if path.exists() else ()) if line.strip()
    )
    declared = {name: " ".join(reason) for name, *reason in split}
    if bare := sorted(name for name, reason in declared.items() if not reason):
        raise SystemExit(f"{path}: no reason is given why these are equivalent: {', '.join(bare)}")
    return declared


def _try_all(mutants: list[Mutant], folder: Path, jobs: int, limit: float) -> None:
    """Tries them in so many processes, each with a copy of its own."""
    _in_processes(_try_some, jobs, mutants, folder, limit, jobs)


def _in_processes(function: Callable[..., None], jobs: int, *arguments: Any) -> None:
    """Calls the function so often, with its number behind the arguments, each in a process that has the libraries."""
    # As in tests/conftest.py, before a library reads it; no pool of threads may live where runs are forked from.
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
    from noticing_tests import HEAVY

    for name in HEAVY:
        importlib.import_module(name)
    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=function, args=(*arguments, number)) for number in range(jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def _try_some(mutants: list[Mutant], folder: Path, limit: float, jobs: int, number: int) -> None:
    """All are tried on their own test files before one is tried on others: most are killed there, in seconds."""
    copy = _make_copy(folder, f"{number}")
    for mutant in [mutant for mutant in mutants[number::jobs] if not _try_one(mutant, copy, folder, 0.0)]:
        _try_one(mutant, copy, folder, limit)


def _try_one(mutant: Mutant, copy: Copy, folder: Path, limit: float) -> bool:
    """Writes down what came of it; False, and nothing, where only its own test files were asked and none noticed."""
    started = time.monotonic()
    result = {"mutant": mutant.name, "room": room_of(mutant.module), "module": mutant.module, "line": mutant.line}
    result |= copy.try_mutant(mutant, limit)
    if not limit and result["outcome"] == "survived":
        print(f"{'open':8}  {_described(mutant)}", flush=True)
        return False
    result |= {"seconds": round(time.monotonic() - started, 1)}
    with (folder / "results.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")
    print(f"{result['outcome']:8}  {_described(mutant)}", flush=True)
    return True


def _trace_some(folder: Path, jobs: int, number: int) -> None:
    """Traces one of so many shares of the test files; one that does not run is named, and asked no mutant."""
    copy = _make_copy(folder, f"{number}")
    longest = (copy.tree / "tests/conftest.py").read_text(encoding="utf-8")
    files = sorted(copy.test_files(), key=lambda path: (f'"{path.removeprefix("tests/")}"' in longest, path))
    for path in files[number::jobs]:
        started = time.monotonic()
        try:
            copy.trace(path)
        except RuntimeError as error:
            print(error, flush=True)
        print(f"traced in {time.monotonic() - started:5.0f} s  {path}", flush=True)


def _make_copy(folder: Path, name: str) -> Copy:
    from noticing_tests import Copy

    tree, maps, temporary = folder / f"tree-{name}", folder / "maps", folder / f"temporary-{name}"
    copy_repository(REPOSITORY, tree)
    for needed in (maps, temporary):
        needed.mkdir(exist_ok=True)
    return Copy(tree, maps, temporary)


def copy_repository(root: Path, tree: Path) -> None:
    """Makes ``tree`` hold what git does not ignore in ``root``; what is unchanged stays, and is not compiled anew."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.split("\0")
    names = {name for name in listed if name and (root / name).is_file()}
    for name in names:
        source, target = root / name, tree / name
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    for file in [file for file in tree.rglob("*") if file.is_file()]:
        inner = file.relative_to(tree)
        if str(inner) not in names and inner.parts[0] != ".git" and file.suffix != ".pyc":
            file.unlink()
    for words in (["init", "-q"], ["add", "--all"]):  # tests ask which files are the repository's
        subprocess.run(["git", *words], cwd=tree, check=True)
    compileall.compile_dir(tree / "qbench", quiet=1)


def _print_table(sample: list[Mutant], results: dict[str, dict[str, Any]], equivalent: Collection[str]) -> int:
    """Prints a line per room and one for all, then the survivors; 1 where there are any."""
    from scipy.stats import binomtest

    counts: dict[str, dict[str, int]] = defaultdict(
        lambda: dict.fromkeys(("killed", "survived", "equivalent", "gone"), 0)
    )
    survivors = []
    for mutant in sample:
        if mutant.name not in results:
            continue
        outcome = results[mutant.name]["outcome"]
        if outcome == "survived":
            outcome = "equivalent" if mutant.name in equivalent else outcome
            survivors += [mutant] if outcome == "survived" else []
        for row in (room_of(mutant.module), "all"):
            counts[row][outcome] += 1
    print(f"\n{'room':15} {'killed':>7} {'survived':>9} {'equivalent':>11} {'gone':>5}  share killed, 95 % by Wilson")
    for room in [*sorted(counts.keys() - {"all"}), *(["all"] if counts else [])]:
        row = counts[room]
        n = row["killed"] + row["survived"]
        low, high = binomtest(row["killed"], n).proportion_ci(method="wilson") if n else (math.nan, math.nan)
        share = f"{row['killed'] / n:6.1%}  [{low:.1%}, {high:.1%}]" if n else ""
        print(f"{room:15} {row['killed']:7} {row['survived']:9} {row['equivalent']:11} {row['gone']:5}  {share}")
    print(f"{len(sample) - counts['all']['gone'] - sum(m.name not in results for m in sample)} of {len(sample)} tried")
    for mutant in survivors:
        unasked = len(results[mutant.name].get("unasked", ()))
        print(
            f"survived  {_described(mutant)}" + (f"\n            ({unasked} test files not asked)" if unasked else "")
        )
    return 1 if survivors else 0


def _described(mutant: Mutant) -> str:
    before, after = (" ".join(line.strip() for line in lines) for lines in (mutant.before, mutant.after))
    return f"{mutant.name}  {mutant.module}:{mutant.line}  {mutant.kind}\n            - {before}\n            + {after}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
