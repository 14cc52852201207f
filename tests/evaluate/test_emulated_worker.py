"""The program of an emulated CPU: what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest

from qbench.errors import EvaluateError
from qbench.evaluate.emulated_worker import Session


@pytest.fixture
def file(tmp_path):
    """A file of the pretended backend."""
    (tmp_path / "model.json").write_text(json.dumps({"seconds": 0.0, "mode": "static"}))
    return str(tmp_path / "model.json")


def test_a_package_of_another_version_answers_nothing(file):
    """Answers of other kernels would look like those of another CPU; a package that is not needed there is none."""
    with pytest.raises(EvaluateError, match=rf"numpy is {np.__version__} on the emulated CPU and 0\.1 here"):
        Session().open("fake", file, {"numpy": "0.1"})
    session = Session()
    session.open("fake", file, {"numpy": np.__version__, "no-such-package": "1.0"})
    (output,) = session.compute((np.ones((2, 3), np.float32),))
    assert output.dtype == np.float32


def test_all_outputs_are_answered(file, monkeypatch):
    """Floats as float32, the others as they are."""
    session = Session()
    session.open("fake", file, {})
    several = lambda result: (result.astype(np.float64), np.arange(2), result[:, :1])  # noqa: E731
    monkeypatch.setattr(type(session._runner), "all_outputs", lambda self, result: several(self.outputs(result)))
    answered = session.compute((np.ones((2, 3), np.float32),))
    assert [(str(output.dtype), output.shape) for output in answered] == [
        ("float32", (2, 10)),
        ("int64", (2,)),
        ("float32", (2, 1)),
    ]
