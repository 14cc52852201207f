"""``qbench doctor``: what this machine can do for int8."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from qbench.cli.options import Json, Quiet
from qbench.cli.output import terminal_width

if TYPE_CHECKING:
    from qbench.hosts.base import Host


def doctor(
    seconds: Annotated[
        float | None,
        typer.Option(
            metavar="N", min=0, max=86_400, help="Length of the noise test (default 5), or of the control (600)."
        ),
    ] = None,
    control: Annotated[
        bool, typer.Option("--control", help="Measure how often the gate errs on this machine, quiet and under noise.")
    ] = False,
    prepare: Annotated[
        str | None,
        typer.Option(metavar="HOST", help="Fetch what a host takes, such as qemu:arm64-max, into the cache; no more."),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Examine this machine: what its CPU can do for int8, how noisy it is, what is missing.

    Takes some 7 s longer than the noise test the first time, since the fp32 and int8 peak of one core is measured.
    """
    from qbench.progress.live import live

    with live(sys.stderr, quiet=quiet) as progress:
        if prepare is not None:
            output = _prepare(prepare, progress.note)
        elif control:
            from qbench.gating import error_rates as gates
            from qbench.progress.table import TextTable, format_table

            rates = [*gates.simulations(), *gates.real(600.0 if seconds is None else seconds, progress=progress)]
            table = TextTable(columns=gates.TITLES, rows=tuple(gates.rows(rates)), words=(0, 4))
            output = gates.as_json(rates) if as_json else format_table(table, terminal_width())
        else:
            from qbench.doctor import findings as doctors
            from qbench.doctor import text as doctor_text

            findings = doctors.examine(noise_seconds=5.0 if seconds is None else seconds, tell=progress.note)
            output = doctor_text.as_json(findings) if as_json else doctor_text.text(findings, terminal_width())
    print(output)


def _prepare(name: str, tell: Callable[[str], None]) -> str:
    """What there is of a host, in words, once it was fetched into the cache."""
    from qbench import registry
    from qbench.cache import store

    host: Host = registry.load("host", name)
    root = store.open_cache()
    with store.in_use(root):
        return host.prepare(root, tell)
