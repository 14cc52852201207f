"""Which of this CPU's vectors the C++ compiler knows, found without Inductor's samples."""

from __future__ import annotations

import os
import platform
import subprocess
import sys


def find_known() -> bool | None:
    """True where the compiler takes the flags of all vectors that this CPU has and Inductor uses; None where it does
    not, or that is not known: then Inductor compiles a sample with its headers for each of them in each process."""
    from torch._inductor import cpp_builder, cpu_vec_isa

    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return None
    usable = cpu_vec_isa.x86_isa_checker()
    kinds = [kind for kind in cpu_vec_isa.supported_vec_isa_list if all(word in usable for word in str(kind).split())]
    flags = [flag for kind in kinds for flag in kind.build_arch_flags().split()]
    command = [cpp_builder.get_cpp_compiler(), *flags, "-E", "-x", "c++", os.devnull]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0 or None
