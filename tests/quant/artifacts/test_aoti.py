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


@pytest.mark.parametrize(
    ("values", "limits", "scale", "zero_point"),
    [
        ([-1.0, 3.0], (0, 255), 4 / 255, 64),
        ([1.0, 3.0], (0, 255), 3 / 255, 0),  # 0 is in the range, whatever the values are
        ([-3.0, -1.0], (0, 255), 3 / 255, 255),
        ([-3.0, -1.0], (-128, 127), 3 / 255, 127),
        ([0.0, 0.0], (0, 255), 0.01, 0),
    ],
)
def test_scale_and_zero_point_of_a_range(
    values: list[float], limits: tuple[int, int], scale: float, zero_point: int
) -> None:
    """As torch's operator has them: Inductor's rule for it has not, for values of one sign."""
    import torch

    qparams = aoti._choose_qparams(torch.tensor(values), *limits, 0.01, torch.uint8)
    assert [tensor.dtype for tensor in qparams] == [torch.float64, torch.int64]
    assert float(qparams[0]) == pytest.approx(scale)
    assert int(qparams[1]) == zero_point


def test_the_compilers_paths_begin_below_the_folder() -> None:
    """In messages and for debuggers, only while it compiles."""
    from torch._inductor import cpp_builder

    plain = cpp_builder._get_os_related_cpp_cflags
    with aoti._paths_from("/tmp/x"):
        flags = cpp_builder._get_os_related_cpp_cflags("g++")
        assert flags == [*plain("g++"), "fmacro-prefix-map=/tmp/x=.", "fdebug-prefix-map=/tmp/x=."]
    assert cpp_builder._get_os_related_cpp_cflags is plain


@pytest.mark.parametrize("name", ["plain", "with space"])
def test_the_cache_of_a_compilation_is_beside_its_file(tmp_path: Path, name: str) -> None:
    """Unless Inductor could not quote the path; it is gone afterwards."""
    (folder := tmp_path / name).mkdir()
    with aoti._cache_beside(folder / "m.pt2") as cache:
        assert Path(cache).is_dir()
        assert Path(cache).name.startswith(".inductor-")
        assert (Path(cache).parent == folder) == (name == "plain")
    assert not Path(cache).exists()
