"""How a child process starts: with which variables, and from a server of children that is there."""

from __future__ import annotations

import contextlib
import multiprocessing
import tempfile
import time
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from typing import Any

from qbench.process import inheritance, reaper, usage_reports
from qbench.process.offspring import offspring

_PRELOAD = ["qbench.process.preload"]
# A model that removes the temporary files of all takes a while over it.
_PATIENCE_SECONDS, _BETWEEN_SECONDS = 3.0, 0.05
FLOAT_VARIABLES = ("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE")
# Of every child. Read once by OpenMP, MKL and OpenBLAS when they are imported (more threads are asked for by their own
# calls later), and by oneDNN: where the user's own setting of its math mode were left, torch's convolutions and
# OpenVINO would compute fp32 in bfloat16 on a CPU that can (off by 0.17 of 60), and OpenVINO would still say f32.
CHILD_VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",  # an idle worker must not spin on the core of the one that is measured
    **dict.fromkeys(FLOAT_VARIABLES, "STRICT"),
    **usage_reports.VARIABLES,  # before a fresh child imports the user's main module, which may import the libraries
}


def start_server() -> None:
    """Has the server of children begin its imports, and returns at once: it takes seconds until the first child."""
    with inheritance.pass_on(CHILD_VARIABLES | offspring().environment()), contextlib.suppress(OSError):
        multiprocessing.set_forkserver_preload(_PRELOAD)
        forkserver.ensure_running()


def start(process: BaseProcess, *, fresh: bool) -> None:
    """Starts a child. A server of children that a model has ended, or whose socket it has removed, is started anew."""
    with inheritance.pass_on(CHILD_VARIABLES | offspring().environment()):
        if fresh:
            process.start()
            return
        multiprocessing.set_forkserver_preload(_PRELOAD)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                process.start()
            except (FileNotFoundError, ConnectionError, EOFError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(_BETWEEN_SECONDS)
                _end_server()
                offspring().keep_folder()
            else:
                return


def explain(error: OSError | EOFError) -> str:
    """Why no process starts. Its socket lies in the temporary folder, and its path may have 107 characters."""
    if "AF_UNIX path too long" in str(error):
        return f"the path of the temporary folder, {tempfile.gettempdir()}, is too long; set TMPDIR to a shorter one"
    return str(error) or type(error).__name__


def _end_server() -> None:
    """Ends the server, so that multiprocessing starts another one; the processes that it has started live on."""
    server: Any = forkserver._forkserver
    if server._forkserver_pid is not None:
        reaper.kill(server._forkserver_pid)
        with contextlib.suppress(FileNotFoundError):  # its socket
            server._stop()
