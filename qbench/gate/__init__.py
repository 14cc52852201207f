"""Stage 9: records, a policy and a stored baseline -> verdicts and an exit code; ``qbench.gate(run)`` judges a run, see
``qbench.api.gate``."""

from qbench.callable_room import make_callable

make_callable(__name__)
