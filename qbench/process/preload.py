"""What the server of child processes imports before it forks the first one; importing this module does it.

Everything imported here is shared by all children for nothing; what exists is frozen, so that no child's garbage
collector walks through it (and so copies its pages) again. No thread pool starts: a forked child could not use it.
A child whose parent was killed before it had told it what to do ends without a word.
"""

from __future__ import annotations

import gc
import sys
import traceback
from multiprocessing import spawn
from types import TracebackType
from typing import Any

from qbench.process import usage_reports
from qbench.process.imports import import_modules

MODULES = (
    "numpy",
    "torch",
    "onnxruntime",
    "scipy.optimize",
    "scipy.special",
    "safetensors.torch",
    "threadpoolctl",
    "psutil",
    "filelock",
    "onnx",
    "qbench.evaluate.predictions",
    "qbench.evaluate.score",
    "qbench.evaluate.runtime_difference",
    "qbench.measure.worker",
    "qbench.backends.torchscript",
    "qbench.backends.onnxruntime",
    "qbench.backends.torch_ao",
)


def tell_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Prints an error as Python does; not that of a new child whose parent was killed while it sent what to start with,
    which then ends early, or was never begun."""
    start: Any = getattr(spawn, "_main", None)  # reads that
    frames = [frame for frame, _ in traceback.walk_tb(trace)]
    is_cut_off = kind is EOFError or kind.__name__ == "UnpicklingError"
    if not (is_cut_off and frames and start and frames[-1].f_code is start.__code__):
        sys.__excepthook__(kind, error, trace)


sys.excepthook = tell_error
usage_reports.turn_off()
gc.disable()  # what imports make lasts: searching it for garbage again and again took a tenth of the time
import_modules(MODULES)
gc.collect()
gc.freeze()
gc.enable()
