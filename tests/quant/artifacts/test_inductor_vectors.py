"""A compiler is asked whether it takes the flags of this CPU's vectors."""

from __future__ import annotations

import platform
import shutil
import sys

import pytest

from qbench.quant.artifacts import inductor_vectors


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler: install g++")
@pytest.mark.skipif((sys.platform, platform.machine()) != ("linux", "x86_64"), reason="is looked at there alone")
def test_samples_are_compiled_only_for_a_compiler_that_lacks_vectors_of_this_cpu(tmp_path):
    """One that takes all of their flags needs none; an older one is left to Inductor, which uses those that it has."""
    from torch._inductor import config, cpu_vec_isa

    assert inductor_vectors.find_known() is True
    widest = cpu_vec_isa.pick_vec_isa().build_arch_flags().split()[0]
    old = tmp_path / "old-g++"
    old.write_text(f'#!/bin/sh\ncase " $* " in *" {widest} "*) exit 1;; esac\nexec g++ "$@"\n')
    old.chmod(0o755)
    with config.patch({"cpp.cxx": (None, str(old))}):
        assert inductor_vectors.find_known() is None
