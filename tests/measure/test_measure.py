"""What is made of a setting's samples: the fastest fp32, the finalists, and generations that are never mixed up."""

from __future__ import annotations

import numpy as np

from qbench.measure import samples
from qbench.measure.measure import count_processes, find_fastest_fp32, list_finalists
from qbench.measure.race_rules import Arm
from qbench.measure.samples import Samples

ARMS = [
    Arm(case="m/fp32/torch/t1/b1", role="fp32"),
    Arm(case="m/fp32/onnxruntime/t1/b1", role="fp32"),
    Arm(case="m/static/onednn/t1/b1", role="candidate", baseline="m/fp32/torch/t1/b1"),
    Arm(case="m/static/onnxruntime/t1/b1", role="candidate", baseline="m/fp32/onnxruntime/t1/b1"),
]


def raced(nanoseconds: int, stopped: str, processes: tuple[int, ...] = (0,)) -> Samples:
    count = len(processes)
    return Samples(
        protocol="paired",
        stopped=stopped,
        calls_ns=np.full(count, nanoseconds),
        block=np.arange(count),
        process=np.asarray(processes),
        round=np.zeros(count, dtype=np.int64),
    )


def test_the_fastest_fp32_is_found_by_shared_rounds():
    """Of those that have samples; None where none has."""
    timed = {ARMS[0].case: raced(200, "screened"), ARMS[1].case: raced(100, "decided"), ARMS[2].case: raced(10, "tied")}
    assert find_fastest_fp32(ARMS, timed) == "m/fp32/onnxruntime/t1/b1"
    assert find_fastest_fp32(ARMS, {ARMS[2].case: raced(10, "tied")}) is None


def test_finalists_bring_their_fp32():
    """Who was in to the end, with what it is compared with: these have their cold starts topped up."""
    timed = {
        ARMS[0].case: raced(200, "cut_short"),
        ARMS[1].case: raced(100, "left"),
        ARMS[2].case: raced(10, "screened"),
        ARMS[3].case: raced(9, "decided"),
    }
    assert list_finalists(ARMS, timed) == {ARMS[0].case, ARMS[3].case, ARMS[1].case}


def test_a_resumed_setting_goes_on_counting_its_generations(tmp_path):
    """Blocks of an earlier part of the run must not look as if they had run beside later ones: the first generation has
    the next number. Other settings do not count."""
    for name, processes in (("m__static__onednn__t1__b1", (0, 1, 4)), ("m__static__onednn__t2__b1", (9,))):
        samples.save(tmp_path / f"{name}.npz", raced(10, "tied", processes))
    assert count_processes(tmp_path, "m/static/qnnpack/t1/b1") == 5
    assert count_processes(tmp_path, "other/static/qnnpack/t1/b1") == 0
