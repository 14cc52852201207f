"""qbench.progress.live: what progress writes, and when."""

from __future__ import annotations

import io
import re

import pytest
from moved_clock import Clock

from qbench.progress.live import Bars, Lines, Silent, live
from qbench.progress.terminal import PlainStream


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


def test_live_chooses_by_stream_and_quiet() -> None:
    """A terminal gets bars, a file lines, and quiet nothing at all."""
    assert type(live(Terminal())) is Bars
    assert type(live(io.StringIO())) is Lines
    assert type(live(Terminal(), quiet=True)) is Silent


def test_lines_one_per_finished_step() -> None:
    """Every finished step is one line with its number, whatever the time; a new stage counts from 1."""
    stream = io.StringIO()
    with live(stream) as progress:
        progress.stage("build", 2)
        progress.advance("a/static/fbgemm")
        progress.advance("a/static/onednn")
        progress.stage("measure", None)
        progress.advance("a/static/fbgemm/t1/b1")
    assert stream.getvalue().splitlines() == [
        "build 1/2 a/static/fbgemm",
        "build 2/2 a/static/onednn",
        "measure 1 a/static/fbgemm/t1/b1",
    ]


def test_lines_at_most_one_a_second_about_a_step_in_hand() -> None:
    """Reports within a second of the last line are dropped; the step in hand is the next one's number."""
    stream, clock = io.StringIO(), Clock()
    progress = Lines(stream, clock)
    progress.stage("build", 3)
    for tick in range(31):
        clock.now = tick / 10
        progress.advance("epoch", tick / 30)
    assert stream.getvalue().splitlines() == [
        "build 1/3 epoch (33 %)",
        "build 1/3 epoch (67 %)",
        "build 1/3 epoch (100 %)",
    ]


def test_a_step_in_hand_is_not_at_its_end_before_it_ends() -> None:
    """What still runs is never told to be 100 %."""
    stream, clock = io.StringIO(), Clock()
    progress = Lines(stream, clock)
    progress.stage("measure", 1)
    clock.now = 2.0
    progress.advance("round 9 of 9", 0.997)
    assert stream.getvalue() == "measure 1/1 round 9 of 9 (99 %)\n"


def test_lines_say_what_is_left_where_it_changes() -> None:
    """Once a run says what its stages take: behind a line, and not again while it is the same."""
    stream, clock = io.StringIO(), Clock()
    progress = Lines(stream, clock)
    progress.expect({"build": 100.0, "evaluate": 10.0, "measure": 200.0})
    progress.stage("build", 4)
    for number in range(1, 4):
        clock.now = number * 25.0
        progress.advance(f"v{number}")
    assert stream.getvalue().splitlines() == [
        "build 1/4 v1; about 5 min left",
        "build 2/4 v2; about 4 min left",
        "build 3/4 v3",
    ]


@pytest.mark.parametrize("kind", [Lines, Bars])
def test_finished_steps_tell_the_pace(kind: type[Lines] | type[Bars]) -> None:
    """Where no earlier run tells: a quarter in half a minute leaves a minute and a half of the stage. A step in hand
    counts only once it is done."""
    stream, clock = Terminal(), Clock()
    with kind(stream, clock) as progress:
        progress.expect({})
        progress.stage("build", 4)
        clock.now = 29.0
        progress.advance("v1", 0.9)
        assert "left" not in stream.getvalue()
        clock.now = 30.0
        progress.advance("v1")
        if isinstance(progress, Bars):
            progress._bars.refresh()
    assert "about 2 min of build left" in stream.getvalue()


def test_a_stage_of_unequal_steps_says_how_far_it_is() -> None:
    """Cases of one race end together: their number tells nothing, ``reach`` does."""
    stream, clock = io.StringIO(), Clock()
    progress = Lines(stream, clock)
    progress.expect({})
    progress.stage("measure", 10)
    clock.now = 60.0
    progress.reach(0.25)
    progress.advance("screening 12 cases", 0.25)
    assert stream.getvalue() == "measure 1/10 screening 12 cases (25 %); about 3 min left\n"


def test_bars_show_what_is_left() -> None:
    """Beside the bar of the stage in hand."""
    stream, clock = Terminal(), Clock()
    with Bars(stream, clock) as progress:
        progress.expect({"build": 100.0, "evaluate": 10.0, "measure": 200.0})
        progress.stage("build", 4)
        progress.reach(0.1)
        progress.advance("v1")
    assert "about 5 min left" in stream.getvalue()


def test_bars_say_nothing_of_what_is_left_where_nothing_is_known() -> None:
    """No sign stands between nothing and the text; both go as the stage ends."""
    stream, clock = Terminal(), Clock()
    with Bars(stream, clock) as progress:
        progress.stage("build", 4)
        progress.advance("v1")
        progress._bars.refresh()
    assert "v1" in stream.getvalue()
    assert "\u00b7" not in stream.getvalue()
    known = Terminal()
    with Bars(known, clock) as progress:
        progress.expect({"build": 100.0, "evaluate": 10.0, "measure": 200.0})
        progress.stage("build", 4)
        progress.advance("v1")
        progress._bars.refresh()
        progress.stage("evaluate", 1)
        (first, second) = progress._bars.tasks
        progress.advance("v2")
        progress.advance("v3")
        progress.advance("v4", 0.5)
        assert [task.completed for task in progress._bars.tasks] == [1, 2.5]
        last = progress._bars.tasks[-1]
        assert (last.description, last.stop_time) == ("v4", None)
    assert (last.description, last.stop_time is not None) == ("", True)
    assert "left \u00b7 v1" in known.getvalue()
    assert (first.fields["left"], first.description, first.stop_time is not None) == ("", "", True)
    assert second.fields["stage"] == "evaluate"


def test_a_step_before_the_first_stage_has_no_bar() -> None:
    """It is shown nowhere, and no error."""
    stream = Terminal()
    with Bars(stream) as progress:
        progress.advance("early")
    assert progress._bars.tasks == []
    assert "early" not in stream.getvalue()


def test_each_line_is_written_at_once() -> None:
    """Whoever follows a file sees the step in hand, not a buffer's worth of steps later."""
    told: list[str] = []

    class Buffered(io.StringIO):
        """A stream that keeps what was there when it was last flushed."""

        def flush(self) -> None:
            """Keeps it."""
            told.append(self.getvalue())

    progress = Lines(Buffered())
    progress.stage("build", 1)
    progress.advance("v1")
    assert told == ["build 1/1 v1\n"]


def test_lines_never_drop_a_note() -> None:
    """A note is what a reader must know, so it comes at once."""
    stream, clock = io.StringIO(), Clock()
    progress = Lines(stream, clock)
    progress.note("one")
    progress.note("two")
    assert stream.getvalue() == "one\ntwo\n"


def test_quiet_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Quiet progress takes every report and writes nothing anywhere."""
    with live(Terminal(), quiet=True) as progress:
        progress.stage("build", 1)
        progress.advance("a", 0.5)
        progress.note("b")
    assert capsys.readouterr() == ("", "")


def test_bars_show_stage_count_text_and_notes() -> None:
    """Bars show which stage, how many of how many, and what is in hand; markup in a name is shown as it is."""
    stream = Terminal()
    with live(stream) as progress:
        progress.stage("build", 4)
        progress.advance("a[red]b/static/fbgemm")
        progress.advance("training", 0.5)
        progress.note("[bold]weights were damaged")
        progress.stage("measure", None)
    text = stream.getvalue()
    assert "build" in text
    assert "1/4" in text
    assert "[bold]weights were damaged" in text
    assert "measure" in text


def test_names_and_notes_are_drawn_letter_by_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    """What rich takes for markup or for an emoji, and the numbers that it paints, are text like any other."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    with Bars(stream) as progress:
        progress.stage("[b]build", 4)
        progress.advance("a[red]b :warning: 'c' 12")
        progress._bars.refresh()
        progress.note("[red]3 of 4 :warning: 'failed'")
    assert "[b]build" in stream.getvalue()
    assert "a[red]b :warning: 'c' 12" in stream.getvalue()
    assert "\x1b[33m[red]3 of 4 :warning: 'failed'\x1b[0m" in stream.getvalue()


def test_a_bar_leaves_most_of_a_terminal_to_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """24 of 80 characters are the bar's, whatever the number of steps."""
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    with live(stream) as progress:
        progress.stage("measure", 10)
    assert max(line.count("\u2501") for line in re.split("[\r\n]", stream.getvalue())) == 24


def test_a_note_is_never_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command in it can be copied whole from a narrow terminal, which wraps by itself."""
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    command = f"qbench run suite.yaml --resume {'x' * 100}/{'y' * 60}"
    with live(stream) as progress:
        progress.stage("measure", 1)
        progress.note(command)
    assert command in stream.getvalue()


def test_bars_take_no_control_from_a_name() -> None:
    """The bars draw with escapes of their own; those of a file's name or of a library's error are shown."""
    stream = Terminal()
    with live(PlainStream(stream)) as progress:
        progress.stage("build", 1)
        progress.advance("name\x1b[2Jgone\u202e", 0.5)
        progress.note("note\x1b]0;title\x07")
    text = stream.getvalue()
    assert "\x1b[?25l" in text
    assert "note\ufffd]0;title\ufffd" in text
    assert "\x1b[2J" not in text
    assert "\u202e" not in text


def test_bars_leave_a_terminal_as_it_was_after_an_error() -> None:
    """The cursor is shown again also when the run inside fails."""
    stream = Terminal()

    def fail() -> None:
        with live(stream) as progress:
            progress.stage("build", 1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    text = stream.getvalue()
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l") >= 0


def test_a_note_is_one_line() -> None:
    """A name in it, which is anybody's, begins none of its own: neither among lines nor above bars."""
    plain, terminal = io.StringIO(), Terminal()
    Lines(plain).note("a\nerror: b")
    with Bars(terminal) as bars:
        bars.note("a\nerror: b")
    assert plain.getvalue() == "a error: b\n"
    assert "a error: b" in terminal.getvalue()
