"""Stage 1: YAML text -> Suite, or every problem at once with file:line:col and a suggestion.

The path of a suite file through this room:

    yaml_tree           YAML text -> a tree of nodes that know where they stand
    overrides           --set KEY=VALUE put into the tree
    types               the values: names, shares, counts
    models_and_data     the sections that say what goes in: models, data
    accuracy            the metric that judges, and the loss that it allows
    settings            the sections that say what to do: matrix, quantize, measure, decide, limits
    gate                the section that says what a later run must hold
    messages            what pydantic finds, in plain words at its place
    cross_checks        what concerns several keys, or the disk
    data_checks         the options of data sets, and the user's Python files
    int8_files          the user's own int8 files, and whether they are int8 and of their mode
    npz_checks          whether an .npz file and an ONNX file's inputs can be what the suite asks
    suite               Suite, parse, read, json_schema
"""

from qbench.suite.gate import GateSpec
from qbench.suite.models_and_data import DataSpec, ModelSpec
from qbench.suite.settings import DecideSpec, Limits, Matrix, MeasureSpec, Quantize
from qbench.suite.suite import Suite, json_schema, parse, read

__all__ = [
    "MODES",
    "DataSpec",
    "DecideSpec",
    "GateSpec",
    "Limits",
    "Matrix",
    "MeasureSpec",
    "Mode",
    "ModelSpec",
    "Quantize",
    "Suite",
    "json_schema",
    "parse",
    "read",
]
