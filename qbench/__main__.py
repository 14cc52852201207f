"""``qbench``, which is ``python -m qbench``: what is set before anything is imported."""

from __future__ import annotations

import signal

from qbench import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Runs the command line. Ctrl-C ends the process without a word while a command is not yet, or no longer, one that
    has something to end: where imports begin, and where Python ends, Python would show where it was."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, as in the background
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from qbench.process import usage_reports

    usage_reports.turn_off()
    from qbench.cli.main import main as run_command

    run_command()


if __name__ == "__main__":
    main()
