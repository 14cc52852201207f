"""Which tests could notice a change of a module, and do they.

A mutant is tried on its module's own test file, then on every file that is known to execute its lines, then on the
files that import the module, those of its room's folder, and those of the modules that import it. Of all but the first
it takes the tests that execute its lines: such a file is first run on the unchanged copy, which tells which of its
tests pass, how long they take, and which lines of qbench each of them executes; lines that a child process executes
count for the whole file. That is stored until the file or the module changes. A test that kills a mutant passes without
it. Every run is forked from a process that has imported the heavy libraries.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from forked_run import executed_lines, run_all, run_chosen, run_forked
from mutant_sites import Mutant

HEAVY = ("numpy", "scipy.stats", "pandas", "sklearn.metrics", "torch", "onnx", "onnxruntime")
MAP_SECONDS = 400.0  # a file that takes longer on the unchanged copy takes too long for every mutant
OWN_SECONDS = 240.0  # one that takes longer is asked for the tests that execute the change
START_SECONDS, TIMES_LONGER = 90.0, 6.0  # a run on a busy machine that is none the less no hang
PASSED = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
RAN = (*PASSED, pytest.ExitCode.TESTS_FAILED)


@dataclass(frozen=True, kw_only=True)
class TestFile:
    """What a test file does on the unchanged copy: seconds of the tests that pass, and by module and line the tests
    that execute it (its own path: a child process does)."""

    __test__ = False  # no test class of pytest's

    path: str
    seconds: dict[str, float]
    not_green: tuple[str, ...]
    digests: dict[str, str]
    lines: dict[str, dict[int, list[str]]]

    def choose(self, mutant: Mutant, own: bool) -> list[str]:
        """The tests that could notice, those that execute the change first and the fast ones first."""
        of_module = self.lines.get(mutant.module, {})
        on_line = {test for line in mutant.lines for test in of_module.get(line, ())}
        if mutant.module_level or not on_line:
            every = own or (mutant.module_level and any(self.path in tests for tests in of_module.values()))
            on_line = {self.path} if every else set()
            if mutant.module_level:
                on_line |= {test for tests in of_module.values() for test in tests}
        direct = on_line & self.seconds.keys()
        rest = self.seconds.keys() - direct if self.path in on_line else set()
        return [*sorted(direct, key=self.seconds.__getitem__), *sorted(rest, key=self.seconds.__getitem__)]


class Copy:
    """A copy of the repository in which mutants are tried, and what its test files do there."""

    def __init__(self, tree: Path, maps: Path, temporary: Path) -> None:
        self.tree, self._maps, self._temporary = tree, maps, temporary
        self._imports = _imports(tree)
        self._green: dict[tuple[str, str | None], bool] = {}
        self._read: dict[Path, tuple[int, TestFile]] = {}
        self._passed: set[tuple[str, str]] = set()

    def try_mutant(self, mutant: Mutant, seconds: float = math.inf) -> dict[str, Any]:
        """What came of it: ``killed`` (and by which test, or that it hung), ``survived`` (with how many tests
        were chosen, beside all of its own file, and the files that no time was left for), or ``gone``.

        Its own files are always asked, and no file twice."""
        file = self.tree / mutant.module
        moved = mutant.moved_to(file.read_text(encoding="utf-8")) if file.exists() else None
        if moved is None:
            return {"outcome": "gone"}
        tests, end, unasked = 0, time.monotonic() + seconds, []
        for path, own in self._files(moved):
            if (mutant.name, path) in self._passed:
                continue
            if not own and time.monotonic() > end:
                unasked.append(path)
                continue
            chosen = None
            if not own or self._stored(path, moved.module):
                known = self._map(path, moved.module)
                chosen = known.choose(moved, own)
                tests += len(chosen)
                unasked += [] if known.seconds or not known.not_green else [path]
            if chosen != [] and (killer := self._killer(moved, path, chosen)):
                return {"outcome": "killed", "by": killer}
            self._passed.add((mutant.name, path))
        return {"outcome": "survived", "tests": tests, "unasked": unasked}

    def _killer(self, mutant: Mutant, path: str, chosen: list[str] | None) -> str | None:
        """The test (of those chosen; None: of all) that fails with the change only, or that they hang; else None."""
        limit = OWN_SECONDS
        if chosen is not None:
            known = self._map(path, mutant.module).seconds
            limit = START_SECONDS + TIMES_LONGER * sum(known[test] for test in chosen)
        with _changed(self.tree / mutant.module, mutant):
            code, failed = self._run(path, chosen, limit)
        if code in PASSED:
            return None
        if chosen is None and not self._is_green(path, failed):
            known = self._map(path, mutant.module)
            return self._killer(mutant, path, known.choose(mutant, True)) if known.seconds else None
        if code is None:
            return f"{path} (hangs)"
        return failed or f"{path} (exit code {code})"

    def _run(self, path: str, chosen: list[str] | None, limit: float) -> tuple[int | None, str | None]:
        """The exit code, None where it was not done in time, and the test that failed."""
        report = self._temporary / "failed"
        report.unlink(missing_ok=True)
        code = self._forked(lambda: run_chosen(path, chosen, report), limit)
        return code, report.read_text() if report.exists() else None

    def _is_green(self, path: str, test: str | None) -> bool:
        """Does the test pass on the unchanged copy (None: the whole file)?"""
        if (path, test) not in self._green:
            chosen = None if test is None or "::" not in test else [test]
            self._green[path, test] = self._run(path, chosen, OWN_SECONDS)[0] in PASSED
        return self._green[path, test]

    def _files(self, mutant: Mutant) -> Iterator[tuple[str, bool]]:
        """The test files that could notice, the likeliest first, each with whether it is the module's own."""
        own = self._own(mutant.module)
        yield from ((path, True) for path in sorted(own))
        costs = {path: cost for path in self.test_files() if (cost := self._cost(path, mutant)) is not None}
        yield from ((path, False) for path in sorted(costs.keys() - own, key=costs.__getitem__))
        seen = own | costs.keys()
        for group in self._groups(mutant.module):
            yield from ((path, False) for path in sorted(group - seen))
            seen |= group

    def _cost(self, path: str, mutant: Mutant) -> float | None:
        """The seconds of the tests that execute the change, where the file is stored and has such; else None."""
        stored = self._stored(path, mutant.module)
        chosen = stored.choose(mutant, False) if stored else []
        return sum(stored.seconds[test] for test in chosen) if stored and chosen else None

    def test_files(self) -> list[str]:
        """Every test file of the copy but the benchmarks."""
        return [path for path in self._imports if _is_test(path) and not path.startswith("tests/benchmarks/")]

    def trace(self, path: str) -> None:
        """Stores what the test file does, unless that is known."""
        if self._stored(path, path) is None:
            self._make_map(path)

    def _groups(self, module: str) -> Iterator[set[str]]:
        importing = {path for path, imported in self._imports.items() if module in imported}
        yield {path for path in importing if _is_test(path)}
        folder = Path("tests", *Path(module).parts[1:-1])
        while not (self.tree / folder).exists():  # the tests of explain/causes lie in explain
            folder = folder.parent
        if folder != Path("tests"):
            yield {str(path.relative_to(self.tree)) for path in (self.tree / folder).glob("test_*.py")}
        yield {path for user in importing if not _is_test(user) for path in self._own(user)}

    def _own(self, module: str) -> set[str]:
        inner = Path(module).relative_to("qbench") if module.startswith("qbench/") else Path(module)
        name = inner.parent.name if inner.name == "__init__.py" else inner.stem
        folders = (Path("tests") / inner.parent, Path("tests") / inner.parent.parent)
        paths = (str(folder / f"test_{name.removeprefix('_')}.py") for folder in folders)
        return {path for path in paths if (self.tree / path).exists()}

    def _map(self, path: str, module: str) -> TestFile:
        """What the test file does, as stored where neither it nor the module has changed since."""
        stored = self._stored(path, module)
        if stored is None:
            self._make_map(path)
            stored = self._stored(path, module)
        if stored is None:
            raise RuntimeError(f"{path} changed while it was read")
        return stored

    def _stored(self, path: str, module: str) -> TestFile | None:
        stored = self._maps / f"{_digest(path)}.json"
        if not stored.exists():
            return None
        written, file = self._read.get(stored, (0, None))
        if file is None or written != stored.stat().st_mtime_ns:
            written, read = stored.stat().st_mtime_ns, json.loads(stored.read_text())
            lines = {name: {int(line): tests for line, tests in by.items()} for name, by in read["lines"].items()}
            file = TestFile(**read | {"lines": lines, "not_green": tuple(read["not_green"])})
            self._read[stored] = (written, file)
        digests = {name: _digest((self.tree / name).read_bytes()) for name in (path, module)}
        return file if all(file.digests.get(name, digest) == digest for name, digest in digests.items()) else None

    def _make_map(self, path: str) -> None:
        data, report = self._temporary / "coverage", self._temporary / "map.json"
        for old in (*self._temporary.glob("coverage*"), report):
            old.unlink(missing_ok=True)
        code = self._forked(lambda: run_all(path, self.tree, data, report), MAP_SECONDS)
        if code is not None and (code not in RAN or not report.exists()):
            raise RuntimeError(f"{path} does not run unchanged:\n{(self._temporary / 'log').read_text()[-3000:]}")
        seconds, failed = json.loads(report.read_text()) if report.exists() else ({}, [f"{path} (hangs)"])
        if failed and seconds:  # by being traced? those that pass without are tests like any other
            plain = self._temporary / "plain.json"
            plain.unlink(missing_ok=True)
            self._forked(lambda: run_all(path, self.tree, None, plain, failed), MAP_SECONDS)
            passed, _ = json.loads(plain.read_text()) if plain.exists() else ({}, [])
            seconds, failed = seconds | passed, [test for test in failed if test not in passed]
        lines = executed_lines(data, self.tree, path)
        digests = {name: _digest((self.tree / name).read_bytes()) for name in (path, *lines)}
        content = {"path": path, "seconds": seconds, "not_green": failed, "digests": digests, "lines": lines}
        stored = self._maps / f"{_digest(path)}.json"
        unfinished = stored.with_suffix(f".{os.getpid()}")
        unfinished.write_text(json.dumps(content))
        unfinished.replace(stored)

    def _forked(self, function: Callable[[], int], seconds: float) -> int | None:
        return run_forked(function, seconds, self.tree, self._temporary)


@contextmanager
def _changed(file: Path, mutant: Mutant) -> Iterator[None]:
    """The module changed, with a time that no compiled file of it was made at."""
    text, before = file.read_text(encoding="utf-8"), file.stat()
    try:
        file.write_text(mutant.apply(text), encoding="utf-8")
        os.utime(file, (time.time() + 1e6, time.time() + 1e6))
        yield
    finally:
        file.write_text(text, encoding="utf-8")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def _imports(tree: Path) -> dict[str, set[str]]:
    """The modules of qbench that each file of qbench and of its tests imports, as paths."""
    files = (*tree.glob("qbench/**/*.py"), *tree.glob("tests/**/test_*.py"))
    return {str(file.relative_to(tree)): _imported_by(file, tree) for file in files}


def _imported_by(file: Path, tree: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {path for name in names if name.startswith("qbench") and (path := _path_of(name, tree))}


@functools.cache
def _path_of(name: str, tree: Path) -> str | None:
    inner = Path(*name.split("."))
    return next((str(p) for p in (inner.with_suffix(".py"), inner / "__init__.py") if (tree / p).exists()), None)


def _is_test(path: str) -> bool:
    return path.startswith("tests/")


def _digest(of: str | bytes) -> str:
    return hashlib.sha256(of.encode() if isinstance(of, str) else of).hexdigest()[:16]
