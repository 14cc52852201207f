"""What a child process inherits from this one as it starts, and what it must not."""

from __future__ import annotations

import contextlib
import multiprocessing.resource_tracker
import os
import signal
import sys
from collections.abc import Iterator, Mapping

# With it Python does not look for modules in the folder that one works in, as it does for a program given by -c: a
# child's. That folder may be somebody else's, and hold a multiprocessing.py.
_SAFE_PATH = "PYTHONSAFEPATH"


@contextlib.contextmanager
def pass_on(variables: Mapping[str, str]) -> Iterator[None]:
    """A child that starts meanwhile, and the server of children, have these environment variables, import nothing from
    the folder that one works in, do not run the caller's script again, and never hear of Ctrl-C."""
    with _set_environment({**variables, _SAFE_PATH: "1"}), _hide_main(), _block_interrupts():
        yield


def restore_path() -> dict[str, str]:
    """What a child that has started sets back, so that programs that the user's own code starts find their modules."""
    return {_SAFE_PATH: os.environ.get(_SAFE_PATH, "")}  # empty counts as not set


@contextlib.contextmanager
def _set_environment(values: Mapping[str, str]) -> Iterator[None]:
    """The variables as a starting child inherits them, for this moment only."""
    saved = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _hide_main() -> Iterator[None]:
    """Children must not run the caller's script again, as multiprocessing would have them do."""
    main = sys.modules["__main__"]
    saved = {name: getattr(main, name) for name in ("__spec__", "__file__") if hasattr(main, name)}
    main.__spec__ = None
    if "__file__" in saved:
        del main.__file__
    try:
        yield
    finally:
        for name, value in saved.items():
            setattr(main, name, value)


@contextlib.contextmanager
def block_signal(name: str) -> Iterator[None]:
    """What starts meanwhile never hears of the signal; one that comes to this process is handled, if later."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {getattr(signal, name)})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _block_interrupts() -> Iterator[None]:
    """Ctrl-C goes to all processes of a terminal; a child and its server would say where they were before they can
    ignore it."""
    multiprocessing.resource_tracker.ensure_running()  # otherwise it starts meanwhile, and lets signals through again
    with block_signal("SIGINT"):
        yield
