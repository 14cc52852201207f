"""JSON as the standard has it, out of a text that somebody else may have written.

Python's own reader takes NaN and Infinity, makes 1e999 infinite and gives up with RecursionError on brackets alone.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn


class NotJson(ValueError):
    """The text is no JSON; ``column`` counts from 1 in its ``line``, 0 where the place is not known."""

    def __init__(self, what: str, *, line: int = 0, column: int = 0) -> None:
        self.line, self.column = line, column
        super().__init__(what)


def parse(text: str) -> Any:
    """The value of a JSON text; raises ``NotJson`` for anything that the standard or a sane writer does not have."""
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except NotJson:
        raise
    except json.JSONDecodeError as error:
        raise NotJson(error.msg, line=error.lineno, column=error.colno) from error
    except RecursionError as error:
        raise NotJson("nested too deep") from error
    except ValueError as error:  # a whole number of more than 4,300 digits
        raise NotJson(str(error)) from error


def _refuse(word: str) -> NoReturn:
    raise NotJson(f"{word} is no number of JSON; null stands for what is not known")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise NotJson(f"the number {text[:40]} is beyond what a float holds")
    return number
