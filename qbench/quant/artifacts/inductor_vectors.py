"""Which of this CPU's vectors the C++ compiler knows, found without Inductor's samples."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def ask_for_flags() -> Iterator[None]:
    """Meanwhile Inductor uses those vectors of this CPU whose flags the compiler takes. By itself it compiles, links
    and loads a sample for each kind of them in each process; it still does elsewhere than on x86 and Linux."""
    from torch._inductor import cpu_vec_isa

    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        yield
        return
    compile_sample = cpu_vec_isa.VecISA.check_build
    cpu_vec_isa.VecISA.check_build = _takes_flags
    try:
        yield
    finally:
        cpu_vec_isa.VecISA.check_build = compile_sample


def _takes_flags(kind: Any, sample: str) -> bool:
    """Whether the compiler takes the flags of a kind of vectors: it then knows the instructions of its sample."""
    from torch._inductor import cpp_builder

    command = [cpp_builder.get_cpp_compiler(), *kind.build_arch_flags().split(), "-E", "-x", "c++", os.devnull]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
