"""The fp32 twin of a QAT variant: the network after the training, then built as any fp32 of its runtime."""

from __future__ import annotations

from dataclasses import replace

from qbench.backends.base import BuildJob
from qbench.quant.flow import QuantizeJob, Shared
from qbench.quant.recipe import Recipe


def trained(job: BuildJob) -> tuple[BuildJob, str]:
    """The job of an fp32 build whose network was trained as its recipe says, and a note on that training.

    Runtimes share the training, which goes on where it was killed; what they share beside it (an exported file) they
    share with twins of the same weights only. Raises ``BuildError`` as QAT does.
    """
    from qbench.backends.torch_runner import tensors, training_tensors
    from qbench.quant import canonical
    from qbench.quant.pytorch import checkpoint, fp32_twin, qat

    inputs, labels = training_tensors(job)
    module, recipe = job.network.module, job.recipe
    if recipe.canonicalize:
        job.progress("canonicalize", 0.05)
        module = canonical.canonicalize(module, tensors(job.example), training=True).module
    first = tuple(tensor[:1] for tensor in inputs)
    quantize_job = QuantizeJob(module, "", recipe, first, job.progress, job.shared, base=job.base)
    fitted = qat.fit(fp32_twin, quantize_job, inputs, labels, checkpoints=job.checkpoints)
    weights = checkpoint.weights_digest(fitted.prepared)
    twin_job = replace(
        job,
        network=replace(job.network, module=fitted.prepared),
        recipe=Recipe(canonicalize=recipe.canonicalize),
        training=None,
        checkpoints=None,
        shared=None if job.shared is None else _shared_by_twins(job.shared, weights),
    )
    return twin_job, "; ".join((f"trained on {fitted.loss}", *fitted.notes))


def _shared_by_twins(shared: Shared, weights: str) -> Shared:
    """What builds share, among those of a network with these weights."""
    return lambda ingredients, make: shared({**ingredients, "trained weights": weights}, make)
