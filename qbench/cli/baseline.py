"""``qbench baseline``: a run is kept as what later runs are gated against."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qbench.cli.options import Run
from qbench.cli.output import find_folder
from qbench.record.locate import BASELINES


def baseline(
    run: Run,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="A .jsonl file, or a folder for <suite>.jsonl.")
    ] = BASELINES,
    allow_failed: Annotated[bool, typer.Option("--allow-failed", help="Also with failed cases.")] = False,
    keep_artifacts: Annotated[
        bool, typer.Option("--keep-artifacts", help="Copy the int8 artifacts beside it, not only leave them cached.")
    ] = False,
) -> None:
    """Keep a run as the baseline that later runs are gated against; commit what it writes.

    The gate runs the baseline's artifacts again. They stay in the cache; with --keep-artifacts they also lie beside
    the baseline, to be committed or cached by CI.
    """
    from qbench.gating import baseline as baselines

    file = baselines.write_baseline(find_folder(run, full=True), out, allow_failed=allow_failed)
    examples = baselines.examples_file(file)
    if examples.exists():
        print(f"wrote {file}, {baselines.info_file(file)} and {examples}; commit all three")
    else:
        print(f"wrote {file} and {baselines.info_file(file)}; commit both")
        print("no predictions lie in this run: its scores are kept, but not what each example said")
    print(baselines.to_text(baselines.locate_artifacts(file, keep=keep_artifacts)))
