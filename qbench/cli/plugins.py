"""``qbench list``: every plug-in."""

from __future__ import annotations

import json

from qbench.cli.options import Json


def list_(as_json: Json = False) -> None:
    """List every plug-in: where it is defined, and what is missing to use it."""
    from dataclasses import asdict

    from qbench.doctor import plugin_list

    rows = plugin_list.listing()
    print(json.dumps([asdict(row) for row in rows], indent=1) if as_json else plugin_list.to_text(rows))
