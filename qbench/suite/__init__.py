"""Stage 1: YAML text -> Suite, or every problem at once with file:line:col and a suggestion.

The path of a suite file through this room:

    text        YAML text -> a tree of nodes that know where they stand
    overrides   --set KEY=VALUE put into the tree
    values      the values: names, shares, counts
    inputs      the sections that say what goes in: models, data
    accuracy    the metric that judges, and the loss that it allows
    fields      the sections that say what to do: matrix, quantize, measure, gate, limits
    words       what pydantic finds, in plain words at its place
    check       what concerns several keys, or the disk
    file        Suite, parse, read, json_schema
    judged      the suite with its metric settled by what the data holds
    cells       the matrix multiplied out, for the plan
"""

from qbench.suite.fields import MODES, GateSpec, Limits, Matrix, MeasureSpec, Mode, Quantize
from qbench.suite.file import Suite, json_schema, parse, read
from qbench.suite.inputs import DataSpec, ModelSpec

__all__ = [
    "MODES",
    "DataSpec",
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
