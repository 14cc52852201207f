"""A case of a suite made ready to be looked at: the suite's data and network, and whatever variant a look needs."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from qbench import registry
from qbench.backends.base import Backend
from qbench.build import Artifact, build
from qbench.cache import store
from qbench.data import Data, request_of
from qbench.data_preparation import prepare_data
from qbench.errors import UsageError, first_names
from qbench.evaluate.predictions import predict
from qbench.hosts.base import Host
from qbench.machine import fingerprint
from qbench.measure.worker import INPUTS, WorkerSpec
from qbench.metrics.spec import MetricSpec
from qbench.modes import float_of
from qbench.network import Model, prepare_model
from qbench.plan.cases import Case, PlannedCase, Variant
from qbench.plan.planner import load_backends, make_plan, measuring_cores
from qbench.plan.variants import Variants
from qbench.process.child_process import Limits, Worker, call
from qbench.process.cpu_slots import Slots
from qbench.progress.live import Silent
from qbench.suite import Suite

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class OpenSuite:
    """The case and what it is built and judged from; ``cores`` are those it is measured on."""

    suite: Suite
    planned: PlannedCase
    variants: Variants
    data: Data
    model: Model
    cache: Path
    cores: tuple[int, ...]
    limits: Limits
    progress: Silent

    @property
    def case(self) -> Case:
        """The case."""
        return self.planned.case

    @property
    def metric(self) -> MetricSpec:
        """What scores answers."""
        labelled = self.data.evaluation_labels() is not None
        return self.suite.gate.accuracy.choose_metric(base=self.suite.base, labelled=labelled)

    @property
    def fp32(self) -> Case:
        """The like-for-like fp32; the case itself where it is one."""
        reference = self.planned.reference
        return self.case if reference is None else self.variants.case(reference)

    def build(self, variant: Variant) -> Artifact:
        """A variant of the network, from the cache or built now."""
        return build(
            variant,
            model=self.model,
            data=self.data,
            root=self.cache,
            limits=self.limits,
            progress=lambda text, share: self.progress.advance(f"{variant.id}: {text}", share),
        )

    def specify_worker(
        self,
        name: str,
        file: Path,
        backend: str,
        mode: str,
        environment: Mapping[str, str] = _NOTHING,
        versions: Mapping[str, str | None] = _NOTHING,
    ) -> WorkerSpec:
        """How an artifact is loaded and timed here, as the case is."""
        case, postprocess = self.case, self.model.postprocess
        host: Host = registry.load("host", case.host)
        return WorkerSpec(
            case=name,
            backend=backend,
            file=file,
            threads=case.threads,
            batch_size=case.batch_size,
            cores=self.cores[-case.threads :],
            inputs=self.data.evaluation(0, min(self.data.evaluation_count, INPUTS * case.batch_size)),
            environment={**host.environment(), **environment},
            versions=dict(versions),
            precision=float_of(mode),
            postprocess=postprocess if postprocess and postprocess.timed else None,
        )

    def predict(
        self, artifact: Artifact, file: Path, environment: Mapping[str, str] = _NOTHING, *, own: bool = True
    ) -> None:
        """Writes an artifact's answers for every evaluation example, by processes with these variables. ``own``: it
        runs under the libraries that built it, so that it must give what it gave then."""
        predict(
            artifact,
            self.data,
            self.case.batch_size,
            file,
            host=self.case.host,
            same_answers=own,
            postprocess=self.model.postprocess,
            environment=environment,
            root=self.cache,
            slots=Slots(len(self.cores)),
            start_worker=functools.partial(Worker, fresh=bool(environment)),  # else the libraries here are imported
            limits=self.limits,
            progress=self.progress.advance,
        )

    def call_child(self, function: Callable[..., Any], *arguments: object) -> Any:
        """A function's answer from a child process."""
        return call(function, *arguments, limits=self.limits, progress=self.progress.advance)

    def list_causes(self) -> dict[str, Any]:
        """All that looks depend on beside the candidate: examples, network, recipe, metric, this machine, and the
        libraries that build artifacts."""
        data, model, variant = self.data, self.model, self.case.variant
        backend: Backend = registry.load("backend", variant.backend)
        return {
            "data": [data.calibration_digest, data.training_digest, data.evaluation_digest],
            "model": [model.weights_digest, model.code_digest, *sorted(model.int8_digests.values())],
            "recipe": repr(variant.recipe),
            "metric": repr(self.metric),
            "machine": [fingerprint.cpu_model(), fingerprint.isa(), fingerprint.switches()],
            "versions": fingerprint.versions(backend.libraries()),
        }


def find_case(suite: Suite, case: str) -> PlannedCase:
    """The planned case of that id; raises ``UsageError`` that names those that are there, or why it is skipped."""
    cores = measuring_cores(suite, fingerprint.allowed_cores())
    plan = make_plan(suite, cores=len(cores))
    planned = {each.case.id: each for each in plan.cases}
    if case in planned:
        return planned[case]
    skipped = next((skip for skip in plan.skipped if skip.key.id == case), None)
    if skipped is not None:
        raise UsageError(f"--case {case}: it is skipped here: {skipped.reason}")
    near = difflib.get_close_matches(case, planned, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; there are {first_names(planned, 5)}" if planned else ""
    raise UsageError(f"--case {case}: {suite.suite} has no such case{hint} (`qbench plan` lists all)")


def open_suite(suite: Suite, planned: PlannedCase, progress: Silent) -> OpenSuite:
    """The case of a suite made ready; raises ``CaseError`` where its data or its network cannot be had. Whoever uses it
    holds ``store.in_use`` meanwhile."""
    limits = Limits(seconds=suite.limits.stage_seconds, memory_bytes=suite.limits.memory_bytes)
    cache, variant = store.open_cache(), planned.case.variant
    train = variant.mode == "qat" or variant.recipe.trains
    request = request_of(suite.data, suite.base, train=train)
    progress.stage("prepare", 2)
    data: Data = call(prepare_data, request, cache, limits=limits, progress=progress.advance)
    metric = suite.gate.accuracy.choose_metric(base=suite.base, labelled=data.evaluation_labels() is not None)
    model: Model = call(prepare_model, variant.model, data, metric, cache, limits=limits, progress=progress.advance)
    return OpenSuite(
        suite=suite,
        planned=planned,
        variants=Variants(suite, load_backends(suite)),
        data=data,
        model=model,
        cache=cache,
        cores=measuring_cores(suite, fingerprint.allowed_cores()),
        limits=limits,
        progress=progress,
    )
