"""``qbench plan``: what would run, and what is skipped and why."""

from __future__ import annotations

import typer

from qbench.cli.options import Filter, Hosts, Json, Set, Suite, with_hosts


def plan(suite: Suite, only: Filter = None, overrides: Set = None, hosts: Hosts = None, as_json: Json = False) -> None:
    """Show what would run, and what is skipped and why; builds nothing. Exit code 2 where the matrix holds no case."""
    from qbench import suite as suites
    from qbench.machine import fingerprint
    from qbench.plan import planner as plans
    from qbench.plan import text as plan_text

    read = suites.read(suite, with_hosts(overrides, hosts))
    cores = plans.measuring_cores(read, fingerprint.allowed_cores())
    memory = fingerprint.memory_bytes()
    planned = plans.make_plan(read, cores=len(cores), only=only, memory_bytes=memory)
    print(plan_text.as_json(planned).rstrip() if as_json else plan_text.text(planned))
    if not planned.cases and not planned.skipped:
        raise typer.Exit(2)  # as `qbench run`, which has nothing to do
