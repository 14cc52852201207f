"""Which libraries make and run what qbench measures: each backend names its own, a plug-in's too."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from qbench import registry
from qbench.backends.base import Backend
from qbench.errors import UsageError

_EVERY_RUN = ("qbench", "numpy", "scipy", "scikit-learn")


def list_libraries() -> tuple[str, ...]:
    """The distributions whose versions a run keeps: those of qbench itself, and of every backend that is registered."""
    named = (name for backend in _load_backends() for name in backend.libraries())
    return tuple(dict.fromkeys((*_EVERY_RUN, *named)))


def list_runtime_libraries(name: str) -> tuple[str, ...]:
    """What loads and runs the artifacts of a backend; of one that is not here, what runs those of any other."""
    try:
        backend: Backend = registry.load("backend", name)
    except UsageError:
        return tuple(dict.fromkeys(name for backend in _load_backends() for name in backend.runtime_libraries()))
    return backend.runtime_libraries()


def _load_backends() -> Iterator[Backend]:
    for name in registry.names("backend"):
        with contextlib.suppress(UsageError):  # a plug-in that cannot be loaded measures nothing
            yield registry.load("backend", name)
