"""Reports of use that libraries send by themselves: none comes from qbench or its children."""

from __future__ import annotations

import os
import sys

# ONNX Runtime from 1.29 on keeps an id of the machine in ~/.cache and has a thread that sends what sessions did, beside
# what is measured (its notes on privacy say so); read when it is imported. Ray's head node sends what a cluster is.
VARIABLES = {"ORT_DISABLE_TELEMETRY": "1", "RAY_USAGE_STATS_ENABLED": "0"}
# Told by openvino that it was imported, and by nncf what it does; where it is missing, both send nothing.
_SENDER = "openvino_telemetry"


def turn_off() -> None:
    """For this process and what it starts; before the libraries are imported."""
    os.environ.update(VARIABLES)
    sys.modules.setdefault(_SENDER, None)  # type: ignore[arg-type]  # as Python writes what cannot be imported
