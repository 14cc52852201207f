"""The processes of this qbench as a whole: one folder for their files, one process that outlives it to end them all."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing.util
import os
import secrets
import select
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from qbench.process import reaper

_ENDING_SECONDS = 5.0
_lock = threading.Lock()


@dataclass(kw_only=True)
class Offspring:
    """``folder`` is the temporary folder of the children, ``mark`` what they have in their environment. ``shares``:
    whether it is multiprocessing's, which removes it where the process ends by itself; else the reaper always does."""

    folder: Path
    shares: bool
    mark: str
    reaper: subprocess.Popen[bytes] | None
    owner: int  # the process that started it; a fork of it is another one

    def environment(self) -> dict[str, str]:
        """What a starting child inherits."""
        return {reaper.MARK: self.mark, "TMPDIR": str(self.folder)}

    def mark_program(self) -> dict[str, str]:
        """What a program that is started anew inherits, so that it is asked to end where this process is killed."""
        return {reaper.MARK: self.mark}

    def make_folder(self) -> Path:
        """A new folder for temporary files of qbench's own."""
        folder = self.name_folder()
        folder.mkdir(mode=0o700)
        return folder

    def name_folder(self) -> Path:
        """Of one child alone, which makes it: what it removes of its temporary files is nobody else's."""
        self.keep_folder()
        return self.folder / secrets.token_hex(8)

    def keep_folder(self) -> None:
        """Makes the folder of all children again where one of them has removed it."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def remove_at_the_end(self, folder: Path) -> None:
        """Has a folder that this process made elsewhere removed, however it ends."""
        if self.reaper is not None and self.reaper.stdin is not None:
            os.write(self.reaper.stdin.fileno(), os.fsencode(folder) + reaper.SEPARATOR)

    def end(self) -> None:
        """Ends everything and waits until it is gone."""
        if self.reaper is None or os.getpid() != self.owner:
            return
        messages, output = self.reaper.stdin, self.reaper.stdout
        assert messages is not None
        assert output is not None
        with contextlib.suppress(OSError, subprocess.TimeoutExpired), output:
            if self.shares:
                os.write(messages.fileno(), reaper.ENDING)
            messages.close()
            select.select([output], [], [], _ENDING_SECONDS)  # it writes nothing: this is its end
            self.reaper.wait(_ENDING_SECONDS)


_current: Offspring | None = None


def offspring() -> Offspring:
    """That of this process; the process that ends it is started the first time."""
    global _current
    with _lock:
        if _current is None or _current.owner != os.getpid():
            # A process that another one has started or forked has the folder of that one, which goes on using it.
            shares = _current is None and multiprocessing.parent_process() is None
            folder, mark = _find_folder(shares=shares), secrets.token_hex(16)
            _current = Offspring(
                folder=folder, shares=shares, mark=mark, reaper=_start(folder, mark), owner=os.getpid()
            )
            atexit.register(_current.end)
        return _current


def _find_folder(*, shares: bool) -> Path:
    folder = Path(multiprocessing.util.get_temp_dir())
    if shares:
        return folder
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="", dir=folder))


def _start(folder: Path, mark: str) -> subprocess.Popen[bytes] | None:
    """The reaper in a session of its own, so that no Ctrl-C ends it; None where there are no process groups."""
    if not hasattr(os, "killpg"):  # Windows
        return None
    command = [sys.executable, "-I", "-S", str(Path(reaper.__file__)), str(folder), mark]
    # It outlives this process, also where that one was itself started by a qbench, which ends what has its mark.
    environment = {name: value for name, value in os.environ.items() if name != reaper.MARK}
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        env=environment,
    )  # fmt: skip
