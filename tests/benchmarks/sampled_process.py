"""Writes what a process is at after each 5 ms of processor time; the server of children imports it."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from pathlib import Path
from types import FrameType

FOLDER = "QBENCH_RUN_PROFILE"  # the variable: where the samples of each process are written
_STEP_SECONDS = 0.005
_QBENCH = f"{os.sep}qbench{os.sep}"
_SERVER = "server of children"
_last = 0.0
_file = -1
_main_name = "qbench"  # of the process that multiprocessing has not started


def watch_process() -> None:
    """From now on this process is sampled."""
    global _file, _last
    path = Path(os.environ[FOLDER]) / f"{os.getpid()}.jsonl"
    _file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    _last = time.process_time()
    signal.signal(signal.SIGPROF, _sample)
    signal.siginterrupt(signal.SIGPROF, False)
    signal.setitimer(signal.ITIMER_PROF, _STEP_SECONDS, _STEP_SECONDS)


def _sample(_: int, frame: FrameType | None) -> None:
    global _last
    now = time.process_time()
    spent, _last = now - _last, now
    name, doing = describe(frame)
    process = multiprocessing.current_process().name
    process = _main_name if process == "MainProcess" else process
    line = json.dumps([name or process, time.monotonic(), spent, doing])
    try:
        os.write(_file, line.encode() + b"\n")
    except OSError:  # code of a model has closed it
        signal.setitimer(signal.ITIMER_PROF, 0)


def describe(frame: FrameType | None) -> tuple[str | None, str]:
    """What the process builds, where it builds something, and what a stack is at: the outermost module that is being
    imported, else the innermost function of qbench's."""
    variant, inner, imported = None, "", ""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_find_and_load" and "importlib" in code.co_filename:
            imported = str(frame.f_locals.get("name"))
            inner = ""
        elif _QBENCH in code.co_filename:
            module = code.co_filename.rpartition(_QBENCH)[2].removesuffix(".py").replace(os.sep, ".")
            inner = inner or f"{module}.{code.co_name}"
            if code.co_name == "build_here":
                variant = getattr(frame.f_locals.get("variant"), "id", None)
        frame = frame.f_back
    if imported:
        return variant, f"import {imported}" + (f" in {inner}" if inner else "")
    return variant, inner or "elsewhere"


def stop_watching() -> None:
    """Ends it: a process that ends after its handlers would be killed by the timer."""
    signal.setitimer(signal.ITIMER_PROF, 0)


if FOLDER in os.environ:  # the server imports this, and whatever it forks is watched, too
    _main_name = _SERVER
    os.register_at_fork(after_in_child=watch_process)
    watch_process()
