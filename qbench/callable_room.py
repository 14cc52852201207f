"""A room that can be called: ``qbench.run`` and ``qbench.gate`` are packages, and the public functions of that name.

Importing ``qbench.run.run`` makes Python put the package where ``qbench.run`` was, so that a function of that name
would be gone; a package that is called answers whoever came first.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class CallableRoom(ModuleType):
    """A package whose call is that of the function of its name in ``qbench.api``."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """What the function returns."""
        api = importlib.import_module("qbench.api")  # by name: a room imports nothing above it
        return getattr(api, self.__name__.rpartition(".")[2])(*arguments, **named)


def make_callable(room: str) -> None:
    """Gives the imported package ``room`` its call."""
    sys.modules[room].__class__ = CallableRoom
