"""What the fuzzers share: examples by number, a deadline, the signature of a failure, and a smaller example of it.

An example is a few small files. A fuzzer makes it out of a seeded generator and then uses it as a person would; what
comes out must be a result or a ``QbenchError``, within the deadline. Anything else is a find.
"""

from __future__ import annotations

import argparse
import random
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

from qbench.errors import QbenchError

Files = dict[str, bytes]
SHRINK_SECONDS = 20.0
PACKAGE = Path(__file__).parents[2] / "qbench"


class Hang(BaseException):
    """The example was not done by its deadline; no ``except Exception`` may swallow that."""


@dataclass(frozen=True, kw_only=True)
class Fuzzer:
    """``make`` gives the files of an example; ``attempt`` uses those in a folder; ``deadline_seconds`` is what one
    attempt may take on a busy machine."""

    name: str
    make: Callable[[random.Random], Files]
    attempt: Callable[[Path], None]
    deadline_seconds: float = 20.0


@dataclass(frozen=True, kw_only=True)
class Find:
    """A failure: its signature (what was raised where), the example's number, its files, and the traceback."""

    signature: str
    number: int
    files: Files
    trace: str


@dataclass
class _Allowed:
    """What the attempt that runs may still take; None while none runs, or once it was told to stop."""

    seconds: float | None = None


_allowed = _Allowed()


def main(fuzzer: Fuzzer) -> int:
    """Runs examples until the time or their number is up; the exit code is 1 where something was found."""
    options = _options(fuzzer.name)
    counts: Counter[str] = Counter()
    finds: dict[str, Find] = {}
    started = last = time.monotonic()
    for number in _numbers(options, started):
        outcome, find = _tried(fuzzer, _make_files(fuzzer, options.seed, number), number)
        counts[outcome] += 1
        if find is not None and find.signature not in finds:
            finds[find.signature] = _shrunk(fuzzer, find)
            _tell(finds[find.signature], fuzzer, options)
        if time.monotonic() - last > 60:
            last = time.monotonic()
            print(f"{number + 1:,} examples in {last - started:.0f} s: {dict(counts)}", flush=True)
    done = time.monotonic() - started
    print(f"{counts.total():,} examples of {fuzzer.name} in {done:.0f} s, seed {options.seed}: {dict(counts)}")
    print(f"{len(finds)} different finds")
    return 1 if finds else 0


def _options(name: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=f"Mutate {name}; report tracebacks and hangs.")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to go on (default 60)")
    parser.add_argument("--examples", type=int, help="stop after that many examples instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the number of one example, to see it again")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-finds"), help="where smallest examples are written")
    return parser.parse_args()


def _numbers(options: argparse.Namespace, started: float) -> Iterator[int]:
    if options.only is not None:
        yield options.only
        return
    number = 0
    while number < options.examples if options.examples else time.monotonic() - started < options.seconds:
        yield number
        number += 1


def _make_files(fuzzer: Fuzzer, seed: int, number: int) -> Files:
    return fuzzer.make(random.Random(f"{seed}/{number}"))


def _tried(fuzzer: Fuzzer, files: Files, number: int) -> tuple[str, Find | None]:
    """``ok``, ``refused``, or ``find`` with what was found."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            file = Path(folder) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        try:
            with _deadline(fuzzer.deadline_seconds):
                fuzzer.attempt(Path(folder))
        except QbenchError:
            return "refused", None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            find = Find(signature=_signature(error), number=number, files=files, trace=traceback.format_exc())
            return "find", find
    return "ok", None


def _stop(_signal: int, _frame: FrameType | None) -> None:
    """Raises ``Hang`` in the attempt that runs, once; a signal that comes later says nothing."""
    seconds, _allowed.seconds = _allowed.seconds, None
    if seconds is not None:
        raise Hang(f"not done after {seconds:g} s of CPU time, or {10 * seconds:g} s by the clock")


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Raises ``Hang`` inside after so many seconds of this process's own time, or ten times as many by the clock: what
    waits uses no time, and a busy machine makes no hang.

    The handlers stay: by default either signal ends a process without a word, and one of the two, or one that another
    thread was chosen for, can come after the attempt.
    """
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, _stop)
    _allowed.seconds = seconds
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds)
    try:
        yield
    finally:
        _allowed.seconds = None
        for timer in (signal.ITIMER_PROF, signal.ITIMER_REAL):
            signal.setitimer(timer, 0)


def _signature(error: BaseException) -> str:
    """The kind of exception and the innermost line of qbench; of a hang the kind alone, since it stops anywhere."""
    if isinstance(error, Hang):
        return "Hang"
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(PACKAGE)]
    place = f"{Path(own[-1].filename).relative_to(PACKAGE.parent)}:{own[-1].lineno}" if own else "outside of qbench"
    return f"{type(error).__name__} at {place}"


def _shrunk(fuzzer: Fuzzer, find: Find) -> Find:
    """The same find with less in its files: first lines go, then bytes, in ever smaller pieces."""
    files, end = dict(find.files), time.monotonic() + SHRINK_SECONDS

    def still(changed: Files) -> bool:
        other = _tried(fuzzer, changed, find.number)[1]
        return other is not None and other.signature == find.signature

    for name in list(files):
        for parts in (files[name].splitlines(keepends=True), None):
            pieces = [bytes([byte]) for byte in files[name]] if parts is None else parts
            size = max(1, len(pieces) // 2)
            while size and time.monotonic() < end:
                size, pieces = _without_pieces(pieces, size, partial(_with, still, files, name), end)
            files[name] = b"".join(pieces)
    return Find(signature=find.signature, number=find.number, files=files, trace=find.trace)


def _with(still: Callable[[Files], bool], files: Files, name: str, kept: list[bytes]) -> bool:
    return still({**files, name: b"".join(kept)})


def _without_pieces(
    parts: list[bytes], size: int, still: Callable[[list[bytes]], bool], end: float
) -> tuple[int, list[bytes]]:
    """The parts without those pieces of ``size`` that the failure does not need, and the next size; 0: no more."""
    start = 0
    while start < len(parts) and time.monotonic() < end:
        kept = parts[:start] + parts[start + size :]
        if still(kept):
            parts = kept
        else:
            start += size
    return size // 2, parts


def _tell(find: Find, fuzzer: Fuzzer, options: argparse.Namespace) -> None:
    folder = options.keep / f"{fuzzer.name}-{options.seed}-{find.number}"
    for name, content in find.files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    (folder / "traceback.txt").write_text(find.trace, encoding="utf-8")
    print(f"FIND {find.signature}\n  again: --seed {options.seed} --only {find.number}; smallest example: {folder}")
    print("  " + "\n  ".join(find.trace.strip().splitlines()[-6:]), flush=True)
