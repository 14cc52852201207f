"""The arguments and options that several commands take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from qbench.cli.completion import complete_run, complete_suite

Suite = Annotated[
    Path,
    typer.Argument(metavar="SUITE", help="A suite file.", autocompletion=complete_suite),
]
_RUN = "A run's folder, or a suite's name for its latest run with an ok case."
Run = Annotated[str, typer.Argument(metavar="RUN", help=_RUN, autocompletion=complete_run)]
OptionalRun = Annotated[str, typer.Argument(metavar="[RUN]", help=_RUN, autocompletion=complete_run)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Filter = Annotated[
    str | None,
    typer.Option("--filter", metavar="GLOB", help="Only cases whose id matches, e.g. '*/static/*'; comma-separated."),
]
Hosts = Annotated[
    str | None,
    typer.Option("--hosts", metavar="NAMES", help="The suite's hosts, e.g. native,avx2; comma-separated."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the suite; repeatable."),
]


def with_hosts(overrides: Sequence[str] | None, hosts: str | None) -> tuple[str, ...]:
    """The overrides of a suite, with that of ``hosts`` where they are given."""
    named = "" if hosts is None else ", ".join(name.strip() for name in hosts.split(",") if name.strip())
    return (*(overrides or ()), *([] if hosts is None else [f"hosts=[{named}]"]))
