"""Rules of qbench/quant/artifacts/aoti.py that need no compiler: what a package's files tell."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from qbench.quant.artifacts import aoti

pytest.importorskip("torch")


def package(file: Path, **sources: str) -> Path:
    """A package with these files of C++ and one of machine code that says the same."""
    from torch.export.pt2_archive._package import PT2ArchiveWriter

    with PT2ArchiveWriter(str(file)) as writer:
        for name, text in sources.items():
            writer.write_bytes(f"data/aotinductor/model/{name}.cpp", text.encode())
            writer.write_bytes(f"data/aotinductor/model/{name}.so", text.encode())
    return file


def test_the_folder_of_a_compilation_is_forgotten_in_the_sources(tmp_path: Path) -> None:
    """Machine code is left as it is: its offsets would be others."""
    file = package(tmp_path / "m.pt2", a="// /tmp/x/a.cpp\n/tmp/x", b="plain")
    aoti._forget_folder(file, "/tmp/x")
    with zipfile.ZipFile(file) as archive:
        contents = {Path(name).name: archive.read(name) for name in archive.namelist()}
    assert contents["a.cpp"] == b"// ./a.cpp\n."
    assert contents["a.so"] == b"// /tmp/x/a.cpp\n/tmp/x"
    assert contents["b.cpp"] == contents["b.so"] == b"plain"


def test_the_sources_tell_kernels_threads_and_watching(tmp_path: Path) -> None:
    """Calls of int8 kernels, not their declarations' names alone; numbers of threads where they are written out."""
    calls = "aoti_torch_cpu__qconv_pointwise_tensor(a); aoti_torch_cpu__qlinear_pointwise(b); aoti_torch_cpu_mm(c);"
    plain = package(tmp_path / "plain.pt2", a=calls, b="#pragma omp parallel\n// aoti_torch_cpu__qconv_pointwise;")
    assert aoti.count_int8_calls(plain) == 2
    assert aoti.read_threads(plain) == frozenset()
    assert not aoti.is_watched(plain)
    other = package(
        tmp_path / "other.pt2",
        a="num_threads(2) num_threads(2)",
        b="num_threads(16)\nRAIIAtenRecordFunctionHandle record_k(",
    )
    assert aoti.count_int8_calls(other) == 0
    assert aoti.read_threads(other) == {2, 16}
    assert aoti.is_watched(other)
