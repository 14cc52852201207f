"""How much of the divergence over the whole vocabulary `token_kl` tells, of the logits that a run keeps.

    python tests/benchmarks/token_divergence.py RUN

RUN: the folder of a run of suites/language-model.yaml. A line for each int8 case: nats per token over the whole
vocabulary, of the first windows whose logits are kept; then, as shares of it, what the likeliest and drawn tokens of
each position tell, and what the likeliest alone do, all others as one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from qbench.compare import compare
from qbench.metrics.next_token import MOST_LIKELY, TOKEN_KL
from qbench.record.stored_run import read_run

Array = NDArray[Any]


def measure_whole(ours: Array, fp32: Array) -> float:
    """Over the whole vocabulary, of rows of log probabilities."""
    return float((np.exp(fp32) * (fp32 - ours)).sum(axis=1).mean())


def measure_likeliest(ours: Array, fp32: Array) -> float:
    """Over the likeliest tokens of fp32, all others as one."""
    places = np.argsort(-fp32, axis=1)[:, :MOST_LIKELY]
    q, p = (np.take_along_axis(rows, places, axis=1) for rows in (ours, fp32))
    rest_q, rest_p = (1 - np.exp(rows).sum(axis=1) for rows in (q, p))
    return float(((np.exp(p) * (p - q)).sum(axis=1) + rest_p * np.log(rest_p / rest_q)).mean())


def main(folder: Path) -> None:
    """Prints the lines."""
    run = read_run(folder)
    for record in run.records:
        fp32 = compare.like_for_like(record, run.records)
        if record.status != "ok" or record.case.mode == "fp32" or fp32 is None:
            continue
        ours, theirs = (run.predictions(each) for each in (record, fp32))
        count = len(ours["outputs"])
        labels = ours["labels"][:count]
        counted = labels[:, 1:] >= 0
        logits = [each["outputs"][:count] for each in (ours, theirs)]
        logs = [log_softmax(rows[counted].astype(np.float64), axis=1) for rows in logits]
        whole = measure_whole(*logs)
        told = TOKEN_KL.value(*(TOKEN_KL.summarize([rows], labels) for rows in logits)) / whole
        alone = measure_likeliest(*logs) / whole
        print(f"{record.case.id:50} {whole:.5f}  estimated {told:.2f}  the likeliest alone {alone:.2f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
