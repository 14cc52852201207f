"""How this qbench was installed, and so what installs it again, or an extra of it.

On the Python package index ``qbench`` is a package of another project. No message and no command of qbench's may tell
pip to fetch that name.
"""

from __future__ import annotations

import importlib.metadata
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import qbench

NAME = "qbench-int8"  # of the distribution; the import and the command are called qbench


def find_requirement(extra: str = "") -> str:
    """What pip is told to install this qbench, with an extra: its source where it runs from that, the place that pip
    had it from where pip noted one (PEP 610), else its name and version."""
    wanted = f"[{extra}]" if extra else ""
    source = _find_source()
    if source is not None:
        return f"{source}{wanted}"
    url = _read_url()
    return f"{NAME}{wanted} @ {url}" if url else f"{NAME}{wanted}=={qbench.__version__}"


def install(packages: Sequence[str], extra: str | None) -> str:
    """The command that installs packages which an extra of this qbench brings, as a message names it; without an extra
    pip is told their own names."""
    if extra is None:
        return f"pip install {' '.join(packages)}"
    editable = "-e " if _find_source() is not None else ""
    return f"pip install {editable}{shlex.quote(find_requirement(extra))}"


def _find_source() -> Path | None:
    """The folder of the source that this process runs; None where qbench is an installed package."""
    folder = Path(qbench.__file__).parents[1]
    return folder if (folder / "pyproject.toml").is_file() else None


def _read_url() -> str | None:
    """The URL that pip had this qbench from, with the commit that it then was; None where it came from an index."""
    try:
        text = importlib.metadata.distribution(NAME).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    if text is None:
        return None
    noted = json.loads(text)
    version = noted.get("vcs_info")
    url = f"{version['vcs']}+{noted['url']}@{version['commit_id']}" if version else str(noted["url"])
    return f"{url}#subdirectory={noted['subdirectory']}" if "subdirectory" in noted else url
