"""What a child process has from the one that starts it: where it finds modules, which signals it never hears of."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from qbench.process import inheritance
from qbench.process.child_process import Limits, Worker

QUICK = Limits(seconds=60.0)


class Signals:
    """Says which signals its process blocks."""

    def blocked(self):
        return signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.parametrize("fresh", [False, True])
def test_a_child_never_hears_of_ctrl_c(fresh):
    """From its first moment: a terminal sends it to all its processes. Who starts it still does."""
    with Worker(Signals, limits=QUICK, fresh=fresh) as worker:
        worker.ready()
        assert signal.SIGINT in worker.ask("blocked")
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


PROGRAM = """
import os
from qbench.process.child_process import Limits, Worker
class Variable:
    def read(self):
        return os.environ.get("PYTHONSAFEPATH")
"""
STARTING = """
import sys, child_program
from qbench.process.child_process import Limits, Worker
for fresh in (False, True):
    with Worker(child_program.Variable, limits=Limits(seconds=60), fresh=fresh) as worker:
        worker.ready()
        print(repr(worker.ask("read")))
"""


def test_no_module_of_the_folder_that_one_works_in_is_imported(tmp_path):
    """It may be somebody else's, and a file there have the name of any module; afterwards Python is as it was."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "child_program.py").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "code" / "start.py").write_text(STARTING, encoding="utf-8")
    folder = tmp_path / "theirs"
    folder.mkdir()
    for name in ("multiprocessing", "signal", "selectors", "threading", "numpy", "torch", "child_program"):
        (folder / f"{name}.py").write_text(f"open('{tmp_path}/ran-{name}', 'w')\n", encoding="utf-8")
    command = [sys.executable, str(tmp_path / "code" / "start.py")]
    started = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert started.stdout == "''\n''\n", started.stderr
    assert list(tmp_path.glob("ran-*")) == []


BLOCKING = """
import signal, subprocess, sys
from qbench.process import inheritance
came = []
signal.signal(signal.SIGHUP, lambda number, frame: came.append(number))
program = "import signal; signal.raise_signal(signal.SIGHUP); print('alive')"
with inheritance.block_signal("SIGHUP"):
    signal.raise_signal(signal.SIGHUP)
    started = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    inside = list(came)
print(inside, came == [signal.SIGHUP], started.stdout.strip())
"""


def test_what_starts_meanwhile_never_hears_of_a_signal():
    """It comes to this process when the block ends. Raised in a process of its own: a worker of pytest has threads of
    other libraries, and has died of it."""
    done = subprocess.run([sys.executable, "-c", BLOCKING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[] True alive\n"), done.stderr


def test_a_system_without_masks_of_signals_starts_all_the_same(monkeypatch):
    """Nothing is blocked there, and nothing set back."""
    monkeypatch.delattr(signal, "pthread_sigmask")
    with inheritance.block_signal("SIGHUP"):
        pass


def test_a_starting_child_sees_no_script_and_has_variables_that_nobody_has_afterwards(monkeypatch):
    """The tracker of shared things runs before signals are kept back: it would let them through again."""
    main, blocked = sys.modules["__main__"], []
    before = {name: getattr(main, name, None) for name in ("__spec__", "__file__")}
    monkeypatch.delenv("QBENCH_OF_ONE_CHILD", raising=False)
    monkeypatch.setattr(
        inheritance.multiprocessing.resource_tracker,
        "ensure_running",
        lambda: blocked.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    )
    with inheritance.pass_on({"QBENCH_OF_ONE_CHILD": "1"}):
        assert (main.__spec__, hasattr(main, "__file__")) == (None, False)
        assert (os.environ["QBENCH_OF_ONE_CHILD"], os.environ["PYTHONSAFEPATH"]) == ("1", "1")
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert {name: getattr(main, name, None) for name in before} == before
    assert "QBENCH_OF_ONE_CHILD" not in os.environ
    assert blocked == [False]
