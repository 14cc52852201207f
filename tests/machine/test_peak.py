"""qbench.machine.peak: the share of the peak, how it is measured, and that it is measured once. No time is asserted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.cache import store
from qbench.errors import MeasureError
from qbench.machine import canary, fingerprint, gemm, peak
from qbench.machine.gemm import Kernel
from qbench.machine.peak import Effort, Peak, fraction, least_seconds
from qbench.process import child_process

TINY = Effort(sizes=(32, 64), screen_seconds=0.0, finalists=1, final_seconds=0.0)
LIMITS = child_process.Limits(seconds=120)


class Counter:
    """Runs a child as ``process.call`` does, and counts."""

    def __init__(self) -> None:
        self.cores: list[tuple[int, ...]] = []

    def __call__(self, function: Callable[..., Any], *args: Any, cores: tuple[int, ...], **rest: Any) -> Any:
        self.cores.append(cores)
        return child_process.call(function, *args, cores=cores, **rest)


def made_up(**changes: Any) -> Peak:
    values: dict[str, Any] = {
        "fp32_flops_per_second": 98.7e9,
        "fp32_kernel": "torch.mm",
        "fp32_size": 512,
        "int8_ops_per_second": 437e9,
        "int8_kernel": "torch._int_mm",
        "int8_size": 768,
        "core": 1,
        "seconds": 3.0,
        "versions": {"torch": "2.13.0"},
    }
    return Peak(**values | changes)


# --- pure -----------------------------------------------------------------------------------------------------


def test_fraction_of_a_known_case() -> None:
    """A ResNet-18 of 1.82 GMAC in 9.6 ms on a core of 437 GOP/s reaches 0.87 of it."""
    assert fraction(1_820_000_000, 0.0096, 437e9) == pytest.approx(0.87, abs=0.005)


@given(st.integers(1, 10**12), st.floats(1e-6, 1e3), st.floats(1e6, 1e15))
def test_a_call_as_fast_as_the_floor_has_the_whole_peak(macs: int, seconds: float, ops: float) -> None:
    """At the floor, 2 x MACs / peak, the share is 1; twice as slow is half of it, faster is more than 1."""
    floor = 2 * macs / ops
    assert fraction(macs, floor, ops) == pytest.approx(1.0)
    assert fraction(macs, 2 * floor, ops) == pytest.approx(0.5)
    assert fraction(macs, floor / 2, ops) > 1
    assert fraction(macs, seconds, ops) == pytest.approx(floor / seconds)


@pytest.mark.parametrize(
    ("macs", "seconds", "ops"), [(-1, 1.0, 1.0), (1, 0.0, 1.0), (1, 1.0, 0.0), (1, float("nan"), 1.0)]
)
def test_no_share_without_a_time_and_a_peak(macs: int, seconds: float, ops: float) -> None:
    """What was not measured must not become a share."""
    with pytest.raises(ValueError, match="is no share"):
        fraction(macs, seconds, ops)


def test_the_ratio_and_the_peak_of_a_mode() -> None:
    """fp32 is held against the fp32 peak, every other mode against that of int8."""
    measured = made_up()
    assert measured.ratio == pytest.approx(4.43, abs=0.01)
    assert measured.of("fp32") == 98.7e9
    assert {measured.of(mode) for mode in ("dynamic", "static", "qat")} == {437e9}


def test_the_least_time_is_taken_after_a_warm_up() -> None:
    """Warm-up calls are not timed, slow calls do not count, and a clock that stands gives no infinite rate."""
    lengths = iter([9.0, 9.0, 0.5, 0.2, 0.7, 0.4])
    now = 0.0

    def call() -> None:
        nonlocal now
        now += next(lengths)

    assert least_seconds(call, 1.75, clock=lambda: now) == pytest.approx(0.2)
    assert least_seconds(lambda: None, 0.0, clock=lambda: 1.0) == 1e-9


# --- what is tried --------------------------------------------------------------------------------------------


class Machine:
    """Kernels with a speed that is told, on a clock that only they move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.tried: list[tuple[str, int]] = []
        self.told: list[tuple[str, float]] = []

    def kernel(self, name: str, precision: str, rate: float) -> Kernel:
        def make(size: int) -> Callable[[], None]:
            self.tried.append((name, size))
            if not rate:
                raise RuntimeError("no such kernel")

            def call() -> None:
                self.now += 2 * size**3 / rate

            return call

        return Kernel(name=name, precision=precision, make=make)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Stands for the libraries; this process keeps its threads."""
    import torch

    machine, threads = Machine(), torch.get_num_threads()
    timer = least_seconds
    monkeypatch.setattr(peak, "least_seconds", lambda call, seconds: timer(call, seconds, clock=lambda: machine.now))
    yield machine
    torch.set_num_threads(threads)


def test_the_fastest_kernel_of_each_precision_wins(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best of several kernels counts; one that cannot run is null, and neither is a hopeless one tried again."""
    listed = [
        machine.kernel("a", "fp32", 1e9),
        machine.kernel("b", "fp32", 2e9),
        machine.kernel("slow", "int8", 1e9),
        machine.kernel("fast", "int8", 8e9),
        machine.kernel("absent", "int8", 0.0),
    ]
    monkeypatch.setattr(peak, "kernels", lambda: listed)
    measured = peak.in_this_process(TINY, progress=lambda text, share: None)
    assert (measured.fp32_kernel, measured.int8_kernel) == ("b", "fast")
    assert measured.fp32_flops_per_second == pytest.approx(2e9)
    assert measured.int8_ops_per_second == pytest.approx(8e9)
    assert measured.kernels == pytest.approx({"a": 1e9, "b": 2e9, "slow": 1e9, "fast": 8e9, "absent": None})
    assert machine.tried == [
        *((name, 32) for name in ("a", "b", "slow", "fast", "absent")),
        *((name, 64) for name in ("a", "b", "fast")),
    ]


def test_no_kernel_at_all_is_an_error_with_its_precision(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any int8 product there is no int8 peak, and none is made up."""
    monkeypatch.setattr(
        peak, "kernels", lambda: [machine.kernel("a", "fp32", 1e9), machine.kernel("none", "int8", 0.0)]
    )
    with pytest.raises(MeasureError, match="no int8 matrix product"):
        peak.in_this_process(TINY, progress=lambda text, share: None)


def test_more_than_one_thread_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread count is read back: two threads would give a peak that no core has."""
    import torch

    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with pytest.raises(MeasureError, match="torch kept 2 threads"):
        peak.in_this_process(TINY, progress=lambda text, share: None)


def test_no_new_size_is_begun_after_the_deadline(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine gets its first size only, instead of a wait without end."""
    monkeypatch.setattr(peak, "kernels", lambda: [machine.kernel("a", "fp32", 1e9), machine.kernel("b", "int8", 1e9)])
    late = Effort(sizes=(32, 64), screen_seconds=0.0, finalists=1, final_seconds=0.0, deadline_seconds=-1.0)
    assert peak.in_this_process(late, progress=lambda text, share: None).fp32_size == 32


def run_screening(machine: Machine, monkeypatch: pytest.MonkeyPatch, effort: Effort, *kernels: Kernel) -> Peak:
    """The peak by these kernels, with what was told of it in ``machine.told``."""
    monkeypatch.setattr(peak, "kernels", lambda: list(kernels))
    return peak.in_this_process(effort, progress=lambda text, share: machine.told.append((text, share)))


def test_a_kernel_up_to_three_times_slower_is_tried_on_larger_sizes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Larger products may suit it better; each precision has its own best."""
    run_screening(
        machine, monkeypatch, TINY,
        machine.kernel("best", "int8", 3e9), machine.kernel("third", "int8", 1.0001e9),
        machine.kernel("less", "int8", 0.999e9),
        machine.kernel("fp32", "fp32", 1e6),
    )  # fmt: skip
    assert [name for name, size in machine.tried if size == 64] == ["best", "third", "fp32"]
    assert machine.told == [("products of 32 x 32", 0.0), ("products of 64 x 64", 0.5)]


def test_the_finalists_take_turns_with_the_canary_between(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three turns of the best of the screening, a third of the seconds each; who is best at last wins, and the rates of
    the others stay those of the screening."""
    read, timed = [], []
    monkeypatch.setattr(canary.Canary, "read", lambda self: read.append(len(timed)) or 5600 - len(read))
    timer = peak.least_seconds

    def least_seconds(call: Callable[[], None], seconds: float) -> float:
        timed.append(seconds)
        return timer(call, seconds)

    monkeypatch.setattr(peak, "least_seconds", least_seconds)
    effort = Effort(sizes=(32,), screen_seconds=0.01, finalists=2, final_seconds=0.3)
    rates = {"a": 1e9, "b": 3e9, "c": 2e9}
    kernels = [machine.kernel(f"{name}{p}", p, rate) for p in ("fp32", "int8") for name, rate in rates.items()]
    measured = run_screening(machine, monkeypatch, effort, *kernels)
    assert timed == pytest.approx([0.01] * 6 + [0.1] * 12)
    assert read == list(range(6, 18))
    assert (measured.fp32_kernel, measured.int8_kernel, measured.fp32_size) == ("bfp32", "bint8", 32)
    assert measured.canary_seconds == pytest.approx((5600 - 12) / 1e9)


def test_the_best_size_of_a_kernel_is_its_rate(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is slower on the larger product keeps what it did on the smaller one, in the peak and in the list
    of all."""

    def make(size: int) -> Callable[[], None]:
        def call() -> None:
            machine.now += 2 * size**3 / (4e9 if size == 32 else 2e9)

        return call

    measured = run_screening(
        machine, monkeypatch, TINY, Kernel(name="small", precision="fp32", make=make), machine.kernel("b", "int8", 1e9)
    )
    assert (measured.fp32_size, measured.fp32_flops_per_second) == (32, pytest.approx(4e9))
    assert measured.kernels == pytest.approx({"small": 4e9, "b": 1e9})


@pytest.mark.parametrize(
    ("canary_seconds", "calm", "shared"),
    [(4.99e-6, 4e-6, False), (5e-6, 4e-6, True), (None, 4e-6, None), (5e-6, None, None)],
)
def test_a_peak_was_shared_where_the_canary_was_never_calm(
    canary_seconds: float | None, calm: float | None, shared: bool | None
) -> None:
    """From five quarters of the calm level on; unknown where either was not read."""
    assert made_up(canary_seconds=canary_seconds).is_shared(calm) is shared


def test_of_two_peaks_the_one_of_the_faster_canary_is_taken() -> None:
    """Of equal ones the first."""
    stored, faster, slower = (made_up(canary_seconds=level, seconds=level) for level in (6e-6, 5e-6, 7e-6))
    assert peak.choose_calmer(stored, faster) is faster
    assert peak.choose_calmer(stored, slower) is stored
    assert peak.choose_calmer(stored, made_up(canary_seconds=6e-6)) is stored
    assert peak.choose_calmer(made_up(), faster) == made_up()


def test_a_call_of_nothing_has_no_share_and_is_none_of_its_peak() -> None:
    """No multiply-accumulates in some time are 0 of the peak."""
    assert fraction(0, 1.0, 1.0) == 0.0
    for macs, seconds, ops in ((1, -1.0, 1.0), (1, 1.0, -1.0)):
        with pytest.raises(ValueError, match="is no share"):
            fraction(macs, seconds, ops)


# --- really measured ------------------------------------------------------------------------------------------


def test_it_is_measured_once_in_a_pinned_child(tmp_path: Path) -> None:
    """The second call reads the cache and gives the same; another core, effort or hidden instruction set does not."""
    root, counter, core = store.open_cache(tmp_path), Counter(), fingerprint.allowed_cores()[-1]
    heard: list[str] = []
    first = peak.measure_peak(
        root, limits=LIMITS, cores=(core,), effort=TINY, call=counter, progress=lambda text, share: heard.append(text)
    )
    again = peak.measure_peak(root, limits=LIMITS, effort=TINY, call=counter)
    assert counter.cores == [(core,)]
    assert again == first
    assert heard == ["products of 32 x 32", "products of 64 x 64"]
    assert first.core in (core, None)
    assert first.fp32_flops_per_second > 0
    assert first.int8_ops_per_second > 0
    assert first.kernels[first.int8_kernel] is not None
    assert first.versions == fingerprint.versions(peak.LIBRARIES)
    assert first.canary_seconds is not None
    assert 0 < first.canary_seconds < 1


def fetch_peak(root: Path, calm_seconds: float | None, answer: Peak | Exception) -> tuple[Peak, int]:
    """The peak that is read, and how many children were asked for one; each gives ``answer``."""
    asked = 0

    def child(*args: Any, **options: Any) -> Peak:
        nonlocal asked
        asked += 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    known = peak.measure_peak(root, limits=LIMITS, calm_seconds=calm_seconds, effort=TINY, call=child)
    return known, asked


@pytest.mark.parametrize(
    ("calm", "answer", "asked", "rate"),
    [
        (None, made_up(int8_ops_per_second=9e9, canary_seconds=5.6e-6), 0, 7e9),
        (8e-6, made_up(int8_ops_per_second=9e9, canary_seconds=5.6e-6), 0, 7e9),
        (5.6e-6, made_up(int8_ops_per_second=9e9, canary_seconds=5.6e-6), 1, 9e9),
        (5.6e-6, made_up(int8_ops_per_second=6e9, canary_seconds=9.5e-6), 1, 7e9),
        (5.6e-6, made_up(int8_ops_per_second=6e9, canary_seconds=None), 1, 7e9),
        (5.6e-6, MeasureError("the core is shared"), 1, 7e9),
    ],
    ids=["no level known", "it was calm", "it was shared", "shared even more", "not watched", "shared now"],
)
def test_a_peak_of_a_shared_core_is_measured_again(
    tmp_path: Path, calm: float | None, answer: Peak | Exception, asked: int, rate: float
) -> None:
    """The canary took 1.25 times its calm level or more all the while: as soon as that level is known and the core is
    calm, another peak takes the place of the first in the cache; where it is not, the first stays."""
    root = store.open_cache(tmp_path)
    fetch_peak(root, None, made_up(int8_ops_per_second=7e9, canary_seconds=9e-6))
    known, children = fetch_peak(root, calm, answer)
    assert (known.int8_ops_per_second, children) == (rate, asked)
    assert fetch_peak(root, None, MeasureError("nothing is measured anew")) == (known, 0)


def test_the_child_measures_again_on_a_calm_core_only(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The canary is read first: a core that is shared once more gives no peak, and takes no products."""
    monkeypatch.setattr(peak, "kernels", lambda: [machine.kernel("a", "fp32", 1e9), machine.kernel("b", "int8", 1e9)])
    levels: list[float] = []

    def wait(read: object, calm_ns: float) -> bool:
        levels.append(calm_ns)
        return len(levels) > 1

    monkeypatch.setattr(canary, "wait_for_calm", wait)
    with pytest.raises(MeasureError, match="its peak cannot be measured now"):
        peak.in_this_process(TINY, 5e-6, progress=lambda text, share: None)
    assert machine.tried == []
    assert peak.in_this_process(TINY, 5e-6, progress=lambda text, share: None).fp32_kernel == "a"
    assert levels == [pytest.approx(5000.0)] * 2


def test_what_changes_the_peak_changes_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that hides an instruction set, another core and another effort each are measured anew."""
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    keys = [peak._key(0, TINY), peak._key(1, TINY), peak._key(0, Effort())]
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    keys.append(peak._key(0, TINY))
    assert len({store.key_of(key) for key in keys}) == 4


def test_every_kernel_of_this_build_runs() -> None:
    """Each listed kernel makes a product: a typo must not hide as "does not run here"."""
    broken = child_process.call(_broken, limits=LIMITS)
    assert broken == []


def _broken(*, progress: object) -> list[str]:
    import torch

    failed = []
    with torch.inference_mode():
        for kernel in gemm.kernels():
            try:
                kernel.make(32)()
            except RuntimeError as error:
                failed.append(f"{kernel.name}: {error}")
    return failed


def test_a_full_measurement_ends_in_five_seconds() -> None:
    """Three of a precision, in turns; every size is screened before the deadline where nothing is slow, and each is a
    multiple of the blocks of 128 that kernels cut a matrix into."""
    full, precisions = peak.FULL, 3
    assert full.deadline_seconds + precisions * full.finalists * full.final_seconds < 5
    assert len(gemm.kernels()) * len(full.sizes) * full.screen_seconds < full.deadline_seconds
    assert [size % 128 for size in full.sizes] == [0] * 6


def test_a_peak_of_bf16_is_told_where_there_is_one(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere all of it is null; a mode in that format is held against it alone."""
    both = (machine.kernel("a", "fp32", 1e9), machine.kernel("b", "int8", 4e9))
    without = run_screening(machine, monkeypatch, TINY, *both)
    assert (without.bf16_flops_per_second, without.bf16_kernel, without.bf16_size) == (None, None, None)
    assert without.of("bf16") is None
    read: list[int] = []
    monkeypatch.setattr(canary.Canary, "read", lambda self: read.append(1) or 5600 - len(read))
    measured = run_screening(machine, monkeypatch, TINY, *both, machine.kernel("c", "bf16", 2e9))
    assert (measured.bf16_kernel, measured.bf16_size in TINY.sizes) == ("c", True)
    assert measured.of("bf16") == measured.bf16_flops_per_second == pytest.approx(2e9)
    assert measured.canary_seconds == pytest.approx((5600 - 9) / 1e9), "the canary is read beside it, too"


def test_the_products_are_the_same_each_time(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their values are drawn from one seed."""
    import torch

    torch.manual_seed(7)
    drawn: list[float] = []

    def make(size: int) -> Callable[[], None]:
        drawn.append(float(torch.rand(())))
        return machine.kernel("a", "fp32", 1e9).make(size)

    run_screening(
        machine, monkeypatch, TINY, Kernel(name="a", precision="fp32", make=make), machine.kernel("b", "int8", 1e9)
    )
    torch.manual_seed(0)
    assert drawn[0] == float(torch.rand(()))
