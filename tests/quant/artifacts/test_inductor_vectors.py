"""A compiler is asked whether it takes the flags of this CPU's vectors."""

from __future__ import annotations

import platform
import shutil
import sys

import pytest

from qbench.quant.artifacts import inductor_vectors


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler: install g++")
@pytest.mark.skipif((sys.platform, platform.machine()) != ("linux", "x86_64"), reason="is looked at there alone")
def test_no_samples_are_compiled_and_a_compiler_that_lacks_vectors_of_this_cpu_gets_others(tmp_path):
    """Vectors are used where the compiler takes their flags; an older one that lacks the widest has the next. Only
    meanwhile: afterwards Inductor compiles its samples."""
    from torch._inductor import config, cpu_vec_isa

    calls = tmp_path / "calls"
    old = tmp_path / "old-g++"
    old.write_text(f'#!/bin/sh\necho "$*" >> {calls}\ncase " $* " in *" -mavx512f "*) exit 1;; esac\nexec g++ "$@"\n')
    old.chmod(0o755)
    before = cpu_vec_isa.VecISA.check_build
    for compiler, wide in ((shutil.which("g++"), True), (str(old), False)):
        # Inductor keeps what it has found by the names of vectors, for the whole process
        kinds = [
            type("Again", (kind,), {"__str__": lambda self, name=f"{kind} {compiler}": name})
            for kind in (cpu_vec_isa.VecAVX512, cpu_vec_isa.VecAVX2)
        ]
        with config.patch({"cpp.cxx": (None, compiler)}), inductor_vectors.ask_for_flags():
            assert [bool(kind()) for kind in kinds] == [wide, True]
    assert cpu_vec_isa.VecISA.check_build is before
    asked = [line for line in calls.read_text().splitlines() if "-mavx" in line]
    assert len(asked) == 2
    assert all("-E" in line.split() for line in asked)


@pytest.mark.parametrize(
    ("system", "machine", "is_asked"),
    [("linux", "x86_64", True), ("linux", "aarch64", False), ("win32", "x86_64", False)],
)
def test_elsewhere_inductor_compiles_its_samples(monkeypatch, system, machine, is_asked):
    """Its kinds of vectors are others there."""
    from torch._inductor import cpu_vec_isa

    before = cpu_vec_isa.VecISA.check_build
    monkeypatch.setattr(inductor_vectors.sys, "platform", system)
    monkeypatch.setattr(inductor_vectors.platform, "machine", lambda: machine)
    with inductor_vectors.ask_for_flags():
        assert (cpu_vec_isa.VecISA.check_build is not before) == is_asked
    assert cpu_vec_isa.VecISA.check_build is before
