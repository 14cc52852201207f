"""Live progress of a run: bars on a terminal, plain lines elsewhere, nothing when asked to be quiet.

A stage has a total of steps (cases, variants). ``advance(text)`` says that a step is done; ``advance(text,
share)`` says how far (0 to 1) the step in hand is. Whoever reports may be any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from qbench.foreign_text import CONTROL, join_lines
from qbench.progress.forecast import Forecast

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_PLAIN_SECONDS = 1.0  # between two plain lines about the same step


class Silent:
    """Progress that shows nothing; the base of those that do. A context manager: leaving it ends the display."""

    def stage(self, name: str, total: int | None) -> None:
        """A new stage begins, of ``total`` steps (None: unknown)."""

    def advance(self, text: str, share: float | None = None) -> None:
        """A step is done (no share), or the step in hand is that far, 0 to 1."""

    def note(self, text: str) -> None:
        """Something that a reader must know now."""

    def expect(self, seconds: Mapping[str, float]) -> None:
        """This is a run, and its stages will take so long, as far as that is known."""

    def reach(self, share: float) -> None:
        """The stage as a whole is that far, 0 to 1: where its steps do not tell, being of unequal length."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class _Forecasting(Silent):
    """What lines and bars share: the stage in hand, and a forecast of what is left."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._lock = threading.Lock()
        self._name = ""
        self._total: int | None = None
        self._done = 0
        self._forecast = Forecast(clock)

    def expect(self, seconds: Mapping[str, float]) -> None:
        """From now on what is left is shown."""
        with self._lock:
            self._forecast.expect(seconds)

    def reach(self, share: float) -> None:
        """Counts for what is left."""
        with self._lock:
            self._forecast.reach(share, self._name)


class Lines(_Forecasting):
    """Progress as plain lines: one per finished step, and at most one a second about a step in hand."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._stream = stream
        self._clock = clock
        self._last = clock()
        self._left = ""

    def stage(self, name: str, total: int | None) -> None:
        """Begins a stage; its first line comes with its first step."""
        with self._lock:
            self._name, self._total, self._done = name, total, 0
            self._last = self._clock()
            self._forecast.begin(name)

    def advance(self, text: str, share: float | None = None) -> None:
        """Writes ``build 3/24 text``, or ``build 3/24 text (15 %)`` for a step in hand."""
        with self._lock:
            now = self._clock()
            if share is None:
                self._done += 1
                self._forecast.count(self._done, self._total, self._name)
            elif now - self._last < _PLAIN_SECONDS:
                return
            self._last = now
            number = self._done if share is None else self._done + 1
            of = "" if self._total is None else f"/{self._total}"
            tail = "" if share is None else f" ({100 if share >= 1 else min(99, round(share * 100))} %)"
            self._write(f"{self._name} {number}{of} {text}{tail}{self._say_left()}")

    def note(self, text: str) -> None:
        """Writes the note on a line of its own."""
        with self._lock:
            self._write(text)

    def _say_left(self) -> str:
        before, self._left = self._left, self._forecast.text()
        return f"; {self._left}" if self._left and self._left != before else ""

    def _write(self, line: str) -> None:
        self._stream.write(join_lines(line) + "\n")
        self._stream.flush()


class Bars(_Forecasting):
    """Progress as one bar per stage, with the elapsed time and what is left, drawn by rich."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        # Imported here: rich's progress costs 50 ms that no other command need pay.
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        columns = (
            TextColumn("{task.fields[stage]:<8}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}{task.description}", markup=False),
        )
        # The bars are drawn with escape sequences, which a plain stream would show as text.
        self._console = Console(file=getattr(stream, "stream", stream), markup=False, highlight=False, emoji=False)
        self._bars: Progress = RichProgress(*columns, console=self._console)
        self._task: TaskID | None = None

    def stage(self, name: str, total: int | None) -> None:
        """Ends the bar of the stage before and begins a new one."""
        with self._lock:
            self._finish()
            self._name, self._total, self._done = name, total, 0
            self._forecast.begin(name)
            self._task = self._bars.add_task("", total=total, stage=name, left=self._forecast.text())

    def advance(self, text: str, share: float | None = None) -> None:
        """Moves the bar of the stage and shows the text beside it."""
        with self._lock:
            if share is None:
                self._done += 1
                self._forecast.count(self._done, self._total, self._name)
            if self._task is not None:
                reached = self._done + (share or 0.0)
                left = self._forecast.text()
                left = f"{left} · " if left else ""
                self._bars.update(self._task, completed=reached, description=_plain(text), left=left)

    def note(self, text: str) -> None:
        """Prints the note above the bars, as one line: what is to be copied must not be cut at the terminal's width."""
        self._bars.print(_plain(text), style="yellow", soft_wrap=True)

    def _finish(self) -> None:
        if self._task is not None:
            self._bars.update(self._task, description="", left="")
            self._bars.stop_task(self._task)

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._finish()
        self._bars.stop()


def _plain(text: str) -> str:
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", join_lines(text))


def live(stream: TextIO, *, quiet: bool = False) -> Silent:
    """The progress that suits a stream: nothing when quiet, bars on a terminal, else lines."""
    if quiet:
        return Silent()
    return Bars(stream) if stream.isatty() else Lines(stream)
