"""``qbench clean``: the cache is emptied."""

from __future__ import annotations

from typing import Annotated

import typer


def clean(
    older_than: Annotated[
        float | None, typer.Option(metavar="DAYS", min=0, help="Only what was made more than DAYS days ago.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, remove nothing.")] = False,
    environments: Annotated[
        bool, typer.Option("--environments", help="Only libraries in other versions, as upgrade and replay fetch them.")
    ] = False,
) -> None:
    """Empty the cache of built variants, trained weights and environments; runs in reports/ are not touched."""
    from qbench.cache import clean as cleaning
    from qbench.cache.root import ENVIRONMENTS

    only = ENVIRONMENTS if environments else None
    done = cleaning.clean(older_than_days=older_than, dry_run=dry_run, only=only)
    print(cleaning.to_text(done, dry_run=dry_run))
