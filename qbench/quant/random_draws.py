"""What draws at random in a call of a network, and where in its code."""

from __future__ import annotations

import linecache
import pickle
import random
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qbench.errors import first_names

_SHOWN = 2
_CODE = 60  # characters of a line of the user's that a message quotes


def name_line(file: str, line: int) -> str:
    """``net.py:12 (x = x * torch.rand(3))``."""
    code = linecache.getline(file, line).strip()
    short = code if len(code) <= _CODE else f"{code[:_CODE]}…"
    return f"{Path(file).name}:{line}" + (f" ({short})" if short else "")


def describe_draws(call: Callable[[], Any]) -> str:
    """``dropout at net.py:12 (x = F.dropout(x)) draws at random``, of what does while ``call`` runs; empty where
    nothing draws from torch's, numpy's or Python's one generator."""
    import torch

    from qbench.quant.operator_mode import OperatorMode

    draws: dict[str, None] = {}

    class Draws(OperatorMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            before = torch.get_rng_state()
            result = function(*args, **(kwargs or {}))
            if not torch.equal(before, torch.get_rng_state()):
                draws[f"{function.overloadpacket.__name__}{_find_caller()}"] = None
            return result

    before = _list_states()
    with torch.inference_mode(), Draws():
        call()
    draws |= {name: None for name, state in _list_states().items() if state != before[name]}
    return f"{first_names(draws, _SHOWN)} draw{'s' * (len(draws) == 1)} at random" if draws else ""


def _list_states() -> dict[str, bytes]:
    """Of the generators that are no operators of torch's."""
    import numpy as np

    numpy_state = np.random.get_state(legacy=False)
    return {"Python's random": pickle.dumps(random.getstate()), "numpy.random": pickle.dumps(numpy_state)}


def _find_caller() -> str:
    """`` at net.py:12 (…)``, the innermost line that is neither torch's nor qbench's; nothing without one."""
    import torch

    ours = (Path(torch.__file__).parent, Path(__file__).parents[1])
    for frame in reversed(traceback.extract_stack()):
        path = Path(frame.filename)
        if path.is_file() and not any(path.is_relative_to(folder) for folder in ours):
            return f" at {name_line(frame.filename, frame.lineno or 0)}"
    return ""
