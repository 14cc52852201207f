"""qbench: decide which int8 neural network to ship on CPUs.

The way of the data through the rooms:

    suite       YAML text -> Suite
    plan        Suite -> Plan: variants, cases, skips with reasons
    train       built-in + training split -> fp32 weights, through the cache; resumable
    data        the examples of a run: what calibrates, trains and evaluates (made by data_preparation)
    network     the fp32 networks of a run, checked once
    quant       an fp32 network -> an int8 one; what ran in int8, and where accuracy is lost
    build       variant -> artifact, through a content-addressed cache
    evaluate    artifact + data set -> predictions, scores with intervals, paired changes against fp32
    measure     artifact + threads -> samples of latency
    record      all that is known of a case <-> one JSON line; a run read back from disk
    running     the story: prepare, build, evaluate, measure, record
    compare     baseline + contender records -> deltas with intervals
    decide      records + samples + the suite's rules -> what to ship, per setting
    report      records -> tables, plots, one HTML file
    gating      deltas + policy -> verdicts and an exit code
    upgrade     other versions of libraries (environments) -> what they do to each case
    replay      a run's record -> the run again, and what differs first
    cli         one module per subcommand; the only place that prints

What users add to: backends, datasets, metrics, models and quant/calibrators. Beside the stages ``qbench.onnx``: an
ONNX file -> int8, in four steps. .github/CONTRIBUTING.md has the map with all rooms.

From Python: ``qbench.run``, ``qbench.load`` and ``qbench.gate`` (``qbench/api.py``, guide/python.md).
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # what type checkers take for true: typing takes milliseconds, in which Ctrl-C is still Python's
__version__ = "0.2.0.dev0"
__all__ = ["__version__", "gate", "load", "run"]

if TYPE_CHECKING:
    from typing import Any

    from qbench.api import gate, load, run


def __getattr__(name: str) -> Any:
    """The public functions, imported when they are first asked for: ``import qbench`` starts no heavy library."""
    if name in ("run", "load", "gate"):
        return getattr(importlib.import_module("qbench.api"), name)
    raise AttributeError(f"module 'qbench' has no attribute {name!r}")
