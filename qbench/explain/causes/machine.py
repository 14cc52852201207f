"""Causes: what the CPU, its memory and the process do to a call."""

from __future__ import annotations

import os

from qbench import formatting
from qbench.explain.causes.base import MORE_EXAMPLES, Cause, Counterfactual, Situation
from qbench.explain.change import Change
from qbench.process import imports
from qbench.quant.target import name_cpus, oldest_march

# Seconds of a call: what calls cost whatever their size, some tenths of a millisecond, is no share of more.
LONGEST = 0.02


class LittleWork(Cause):
    """What a call costs whatever its size (Python, the runtime's bookkeeping, conversions of small tensors) weighs most
    where a call is short; several examples in one call share it."""

    name = "little-work"
    title = "a call has too little work"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """Eight times as many examples a call; times are for one example. Where a call waits for its weights, the same
        change takes that away."""
        if situation.waits_for_memory or (situation.call_seconds or 0.0) > LONGEST:
            return ()
        size = MORE_EXAMPLES * situation.case.batch_size
        return (
            self.counterfactual(f"batches of {size}, where examples can wait for each other", Change(batch_size=size)),
        )


class MemoryBound(Cause):
    """A call of one example reads every weight of a linear layer for one product; where it takes about as long as this
    core takes to read so many bytes, faster arithmetic gains nothing (roofline: Williams, Waterman, Patterson, CACM 52
    (2009), 65-76). Several examples in one call share the reading."""

    name = "memory-bound"
    title = "a call waits for its weights to be read from memory"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """Eight times as many examples a call, where reading explains most of it."""
        floor = situation.reading_seconds
        if not situation.waits_for_memory or floor is None:
            return ()
        size = MORE_EXAMPLES * situation.case.batch_size
        text = f"batches of {size}, which share the {formatting.duration(floor)} that reading the weights takes"
        return (self.counterfactual(text, Change(batch_size=size)),)


class Threads(Cause):
    """Several threads wait for each other at every layer, which short layers do not repay."""

    name = "threads"
    title = "threads cost more than they bring"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """One thread."""
        if situation.case.threads == 1:
            return ()
        return (self.counterfactual("one thread", Change(threads=1)),)


LEAST_FLUSHING_GAIN = 1.03  # of calls in one process, flushed and not in turns: what is worth a trial


class Denormals(Cause):
    """An operation in float on a number below 1.2e-38 takes a hundred cycles and more, unless such numbers are taken as
    zero; layers in float, and activations between them, may hold many."""

    name = "denormals"
    title = "numbers near zero (denormals) are not taken as zero"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """Denormals taken as zero, where calls were seen to be faster so."""
        if (situation.flushing_gain or 1.0) < LEAST_FLUSHING_GAIN:
            return ()
        return (self.counterfactual("denormals taken as zero", Change(flush_denormals=True)),)


LEAST_FAULTS = 10.0  # of a call; fewer take less than a hundredth of a millisecond
# glibc gives large blocks back at once unless told (man 3 mallopt).
KEEPING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "1073741824"}


class PageFaults(Cause):
    """glibc's malloc maps large blocks anew for each call, and the kernel clears their pages."""

    name = "page-faults"
    title = "memory is given back after each call and fetched anew"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """malloc told to keep what it has, where calls were seen to fault."""
        if situation.faults_per_call is None or situation.faults_per_call < LEAST_FAULTS:
            return ()
        return (self.counterfactual("malloc keeps its memory (MALLOC_* variables)", Change(environment=KEEPING)),)


class OlderInstructions(Cause):
    """A variable that limits oneDNN, fbgemm or torch's vector code leaves the CPU's int8 instructions unused."""

    name = "older-instructions"
    title = "a variable hides instructions from the engine"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """The process without these variables; empty is as good as unset."""
        names = [variable.partition("=")[0] for variable in situation.hiding_variables]
        if not names:
            return ()
        change = Change(environment=dict.fromkeys(names, ""))
        return (self.counterfactual(f"without {', '.join(situation.hiding_variables)}", change),)


class OlderTarget(Cause):
    """A package that also loads on older CPUs holds no instruction that they lack."""

    name = "older-target"
    title = "its machine code is for an older CPU, too"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """Compiled for this machine alone."""
        cpus = situation.case.variant.recipe.cpus
        if not situation.machine_code or oldest_march(cpus) is None:
            return ()
        return (self.counterfactual(f"for this CPU alone, not {name_cpus(cpus)}", Change(recipe={"target": ()})),)


class SmallForAmx(Cause):
    """A tile takes 16 rows at once; ONNX Runtime computes a product of one row in it as well. From 1.32 on it does
    without AMX where the process may use one core as it is imported."""

    name = "small-for-amx"
    title = "products are too small for AMX tiles"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """ONNX Runtime imported on the timed core, where calls were seen to use tiles."""
        if not situation.amx_tiles or situation.timed_core is None:
            return ()
        change = Change(environment=imports.name_cores((situation.timed_core,)))
        return (self.counterfactual("ONNX Runtime imported on one core, which leaves it without AMX", change),)


class UnusedAmx(Cause):
    """From 1.32 on ONNX Runtime takes its kernels for AMX only where the process may use two cores as it is imported,
    as one that is started with taskset, or in a container with a cpuset, may not."""

    name = "unused-amx"
    title = "the process may use one core only, which leaves AMX unused"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """ONNX Runtime imported on all cores that the system allows, where calls were seen to use no tiles."""
        if situation.amx_tiles is not False or not situation.pinned:
            return ()
        change = Change(environment=imports.name_cores(range(os.cpu_count() or 1)))
        return (self.counterfactual("ONNX Runtime imported on two cores or more, pinned afterwards", change),)


LITTLE_WORK = LittleWork()
MEMORY_BOUND = MemoryBound()
THREADS = Threads()
DENORMALS = Denormals()
PAGE_FAULTS = PageFaults()
OLDER_INSTRUCTIONS = OlderInstructions()
OLDER_TARGET = OlderTarget()
SMALL_FOR_AMX = SmallForAmx()
UNUSED_AMX = UnusedAmx()
