"""How much memory is free, for this process and its children."""

from __future__ import annotations

from pathlib import Path

_NO_LIMIT = 2**60  # version 1 of control groups writes 2**63, rounded to pages


def count_free_bytes() -> int:
    """The memory that this process and its children may still take."""
    free = read_free_bytes()
    if free is None:
        import psutil

        free = int(psutil.virtual_memory().available)
    return free


def read_free_bytes(root: Path = Path("/")) -> int | None:
    """The memory that this process and its children may still take: what the machine has, or less where a control group
    of this process or one above it has a limit (both versions). None where the system does not tell."""
    free = [int(line.split()[1]) * 1024 for line in _lines(root / "proc/meminfo") if line.startswith("MemAvailable:")]
    for line in _lines(root / "proc/self/cgroup"):
        hierarchy, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        mounts = root / "sys/fs/cgroup"
        if hierarchy == "0":
            free += _list_rooms(mounts, group, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            files = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            free += _list_rooms(mounts / "memory", group, *files)
    return min(free, default=None)


def _list_rooms(mount: Path, group: str, limit: str, usage: str, reclaimed: str) -> list[int]:
    """What each level of a group has left; files that were read and are not in use are given back when it is needed.
    A container sees its own group as the mount itself."""
    path = Path(group.lstrip("/"))
    levels = [mount] if ".." in path.parts else [mount / path, *(mount / parent for parent in path.parents)]
    rooms = []
    for level in dict.fromkeys(levels):
        most, used = (_number(level / name) for name in (limit, usage))
        if most is not None and used is not None and most < _NO_LIMIT:
            given_back = [int(line.split()[1]) for line in _lines(level / "memory.stat") if line.startswith(reclaimed)]
            rooms.append(max(0, most - used + sum(given_back)))
    return rooms


def _number(file: Path) -> int | None:
    lines = _lines(file)
    return int(lines[0]) if lines and lines[0].strip().isdecimal() else None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
