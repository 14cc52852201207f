"""Names that a suite gives to a network's inputs and outputs, checked against those that it has."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from qbench.errors import ModelError


def require_known(model: str, what: str, chosen_names: Iterable[str], names: Sequence[str]) -> None:
    """Raises ``ModelError`` for the first wanted name that the network does not have, with a near match."""
    for name in chosen_names:
        if name in names:
            continue
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ";"
        raise ModelError(f"{model}: no {what} named '{name}'{hint} it has: {', '.join(names) or 'none with a name'}")
