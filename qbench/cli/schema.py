"""``qbench schema``: the JSON Schema of a suite file."""

from __future__ import annotations

import json


def schema() -> None:
    """Print the JSON Schema of a suite file, for editors."""
    from qbench.suite import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
