"""Which nodes of an ONNX graph a name or a pattern of ``skip_layers`` means."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Mapping
from typing import Any

from qbench.errors import BuildError, first_names


def match_nodes(pattern: str, labels: Mapping[str, str], what: str = "") -> list[str]:
    """The nodes that a pattern means: a node, a torch module, or everything below either. ``labels``: node -> the torch
    module that it came from, or itself; ``what`` says which nodes these are.

    What an optimizer made of a node has its name with a slash and the optimization's behind it. Raises ``BuildError``
    for a pattern that means none, with names that are near.
    """
    below = (f"{pattern}/", f"{pattern}.")
    exact = [
        node for node, label in labels.items() if pattern in (node, label) or node.startswith(below)
        or label.startswith(below)
    ]  # fmt: skip
    matching = exact or [
        node for node, label in labels.items() if fnmatch.fnmatch(node, pattern) or fnmatch.fnmatch(label, pattern)
    ]
    if not matching:
        names = sorted(set(labels.values()))
        near = difflib.get_close_matches(pattern, names, n=3)
        which = f"; did you mean {first_names(near)}?" if near else f"; there are {first_names(names)}"
        raise BuildError(f"skip_layers: no layer named {pattern}{what}{which}")
    return matching


def module_of(node: Any) -> str | None:
    """The torch module a node came from, by its first parameter: ``stage.conv.weight`` -> ``stage.conv``."""
    parameters = [name for name in node.input if name.endswith((".weight", ".bias"))]
    return parameters[0].rpartition(".")[0] if parameters else None
