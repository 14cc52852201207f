"""The files beside a run's records: what is read of them, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from qbench.record.layer_numbers import LayerNumbers
from qbench.record.run_files import _FORMS, DamagedFile, find, is_whole, read_arrays, read_layers

AXES = {  # from how many to how many, where it is not one
    **dict.fromkeys(("inputs", "protocol", "stopped", "discarded", "seconds"), (0, 0)),
    **dict.fromkeys(("outputs", "answers", "labels"), (1, 32)),
    "canary_ns": (2, 2),
}
OF_KIND = {"i": np.int64, "u": np.uint8, "f": np.float32, "b": np.bool_, "U": "<U3", "S": "|S3"}


def arrays(tmp_path, **named):
    """What is read back of a file with these arrays."""
    np.savez(tmp_path / "a.npz", **named)
    return read_arrays(tmp_path, "a.npz")


@pytest.mark.parametrize("name", sorted(_FORMS))
def test_an_array_has_the_type_and_the_axes_of_its_name(tmp_path, name):
    """Each type that a run stores under it is read; another type, an axis more and an axis less are refused."""
    kinds, *axes = _FORMS[name]
    least, most = AXES.get(name, (1, 1))
    assert axes == [least, most]
    for kind in kinds:
        whole = np.zeros((1,) * least, dtype=OF_KIND[kind])
        assert arrays(tmp_path, **{name: whole})[name].dtype == whole.dtype
    other = next(kind for kind in OF_KIND if kind not in kinds)
    wrong = [np.zeros((1,) * least, dtype=OF_KIND[other])]
    wrong += [np.zeros((1,) * (least - 1), dtype=OF_KIND[kinds[0]])] if least else []
    wrong += [np.zeros((1,) * (most + 1), dtype=OF_KIND[kinds[0]])] if most < 32 else []
    for array in wrong:
        with pytest.raises(DamagedFile, match=f"a.npz: {name}: .* is not what a run stores under this name; delete"):
            arrays(tmp_path, **{name: array})


def test_arrays_of_other_names_are_read_whatever_they_are(tmp_path):
    """A later qbench may store more."""
    assert arrays(tmp_path, new=np.zeros((2, 3)))["new"].shape == (2, 3)
    assert arrays(tmp_path, new=np.array("x"))["new"].shape == ()


def test_further_outputs_are_like_the_first(tmp_path):
    """Numbers, one row or more for each example."""
    assert arrays(tmp_path, **{"outputs.1": np.zeros((2, 3))})["outputs.1"].shape == (2, 3)
    for wrong in (np.array(["x"]), np.array(1.0)):
        with pytest.raises(DamagedFile, match=r"a.npz: outputs\.1: .* is not what a run stores"):
            arrays(tmp_path, **{"outputs.1": wrong})


def test_a_file_that_is_not_there_holds_nothing(tmp_path):
    """Nor does one outside of the run's folder, whatever its name says."""
    (tmp_path / "run").mkdir()
    np.savez(tmp_path / "outside.npz", values=np.zeros(1))
    for name in ("none.npz", "../outside.npz", str(tmp_path / "outside.npz")):
        assert find(tmp_path / "run", name) is None
        assert read_arrays(tmp_path / "run", name) == {}
        assert read_layers(tmp_path / "run", name) == ()
        assert not is_whole(tmp_path / "run", name)


def test_a_file_is_whole_that_is_not_cut(tmp_path):
    """An empty one is not, nor an archive without its end; of other files the content says nothing."""
    np.savez(tmp_path / "a.npz", values=np.zeros(100))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:-30])
    (tmp_path / "empty.json").touch()
    (tmp_path / "other.json").write_text("{")
    names = ("a.npz", "cut.npz", "empty.json", "other.json")
    assert [is_whole(tmp_path, name) for name in names] == [True, False, False, True]


def test_numbers_of_layers_are_read_or_refused(tmp_path):
    """What is not stored was not measured, on no value; a refusal names the way to go on without them."""
    (tmp_path / "a.json").write_text(json.dumps([{"name": "conv", "reason": "runs in int8 only"}]))
    conv = LayerNumbers(name="conv", sqnr_db=None, cosine=None, n=0, reason="runs in int8 only", clipped=None)
    assert read_layers(tmp_path, "a.json") == (conv,)
    (tmp_path / "a.json").write_text('[{"name": 3}]')
    with pytest.raises(DamagedFile, match="a.json: cannot be read as numbers of layers; delete it to go on without"):
        read_layers(tmp_path, "a.json")
