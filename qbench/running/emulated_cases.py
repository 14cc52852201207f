"""The cases of emulated hosts in the third stage: answers for a few examples, without a score."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from qbench import registry
from qbench.build import Artifact
from qbench.evaluate.emulated import Emulation, predict_emulated, read_emulated
from qbench.hosts.base import Host
from qbench.plan.planner import Case
from qbench.record.schema import HostFacts
from qbench.running.context import RunContext
from qbench.running.prepare_stage import Prepared


def is_emulated(case: Case) -> bool:
    """Whether a case's answers are those of a CPU in software."""
    host: Host = registry.load("host", case.host)
    return host.answers(case.variant.backend) == "emulated"


def emulate(
    context: RunContext, prepared: Prepared, artifact: Artifact, case: Case, native: Path, file: Path, name: str
) -> None:
    """Writes what a case's artifact answers on its host for the examples that its ``native`` predictions choose."""
    labels = prepared.data.evaluation_labels()
    emulation = Emulation(
        artifact=artifact,
        data=prepared.data,
        host=case.host,
        batch_size=case.batch_size,
        native=native,
        samples=context.emulated_samples,
        of_classes=prepared.metric.load().percent if labels is None else labels.ndim == 1 and labels.dtype.kind in "iu",
    )
    predict_emulated(
        emulation,
        file,
        root=context.cache,
        slots=context.here.slots,
        limits=context.limits,
        progress=context.report_under(name),
        tell=lambda text: context.progress.note(f"{name}: {text}"),
    )


def complete_facts(host: HostFacts, file: Path) -> HostFacts:
    """The facts of an emulated host with which examples a file of its answers holds, and what its kernels said."""
    examples, view = read_emulated(file)
    return replace(
        host,
        examples=examples,
        torch_isa=view.torch_isa,
        onednn_isa=view.onednn_isa,
        mkl_isa=view.mkl_isa,
        int8_sums=view.int8_sums,
    )
