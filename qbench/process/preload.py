"""What the server of child processes imports before it forks the first one; importing this module does it.

Everything imported here is shared by all children for nothing; what exists is frozen, so that no child's garbage
collector walks through it (and so copies its pages) again. No thread pool starts: a forked child could not use it.
"""

from __future__ import annotations

import gc

from qbench.process.imports import import_modules

MODULES = (
    "numpy",
    "torch",
    "onnxruntime",
    "scipy.stats",
    "scipy.optimize",
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

gc.disable()  # what imports make lasts: searching it for garbage again and again took a tenth of the time
import_modules(MODULES)
gc.collect()
gc.freeze()
gc.enable()
