"""How much memory is free: the machine's, or less where a control group says so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from file_trees import write_tree

from qbench.process.free_memory import count_free_bytes, read_free_bytes

GIB = 2**30
MEMINFO = "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\nSwapFree: 4 kB\n"


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, None),
        ({"proc/meminfo": MEMINFO}, 8 * GIB),
        (  # version 2, with a tighter limit above
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "0::/job/step\n",
                "sys/fs/cgroup/job/step/memory.max": "max\n",
                "sys/fs/cgroup/job/step/memory.current": f"{GIB}\n",
                "sys/fs/cgroup/job/memory.max": f"{4 * GIB}\n",
                "sys/fs/cgroup/job/memory.current": f"{3 * GIB}\n",
                "sys/fs/cgroup/job/memory.stat": f"anon 5\nactive_file 9\ninactive_file {GIB}\n",
            },
            2 * GIB,
        ),
        (  # version 2 in a container, which sees its own group as the mount
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "0::/../x\n",
                "sys/fs/cgroup/memory.max": f"{2 * GIB}\n",
                "sys/fs/cgroup/memory.current": f"{3 * GIB}\n",
            },
            0,
        ),
        (  # version 1: a limit that is none, and one
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "5:cpu:/a\n4:memory:/a\n0::/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GIB}\n",
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": f"{3 * GIB}\n",
                "sys/fs/cgroup/memory/a/memory.usage_in_bytes": f"{GIB}\n",
                "sys/fs/cgroup/memory/a/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB // 2}\n",
            },
            2 * GIB + GIB // 2,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/\n",
                **{
                    f"sys/fs/cgroup/memory/memory.{name}_in_bytes": f"{number}\n"
                    for name, number in (("limit", 2**60), ("usage", 5))
                },
            },
            None,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/\n",
                **{
                    f"sys/fs/cgroup/memory/memory.{name}_in_bytes": f"{number}\n"
                    for name, number in (("limit", 2**60 - 1), ("usage", 5))
                },
            },
            2**60 - 6,
        ),
    ],
)
def test_what_is_free_is_what_the_tightest_limit_leaves(
    files: Mapping[str, str], free: int | None, tmp_path: Path
) -> None:
    """The machine's memory or a control group's, of either version, whichever is less; cached files count as free."""
    assert read_free_bytes(write_tree(tmp_path, files)) == free


def test_a_system_that_does_not_tell_is_asked_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no ``/proc``, psutil knows."""
    monkeypatch.setattr("qbench.process.free_memory.read_free_bytes", lambda: None)
    assert count_free_bytes() > 0
    monkeypatch.setattr("qbench.process.free_memory.read_free_bytes", lambda: 5)
    assert count_free_bytes() == 5
