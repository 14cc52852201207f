"""The story of a run and its stages; ``qbench.run(suite)`` runs one, see ``qbench.api.run``."""

from qbench.callable_room import make_callable

make_callable(__name__)
