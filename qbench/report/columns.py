"""The columns of a case: what each holds, how it is written, and what it is called where a reader sees it.

``qbench.load``, ``results.csv``, the report's table of what else was measured and the guide's table are made of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

from qbench import formatting
from qbench.stats.interval_type import Interval

Kind = Literal["text", "number", "count", "flag"]
DTYPES: dict[Kind, str] = {"text": "object", "number": "float64", "count": "Int64", "flag": "boolean"}
# Mappings whose keys no column can be named after: each is one cell of JSON.
AS_JSON = ("artifact.coverage.float_reasons", "observed.thread_pools")
# Columns that a run has as its cases have them: the start of their names, and what they hold.
OPEN: dict[str, str] = {
    "recipe.": "how the variant was made, as the suite and the defaults have it: `recipe.calibrator`, …",
    "observed.": "what was set and then read back from the runtime: `observed.threads`, `observed.engine`, …",
    "elapsed_seconds.": "what the stages of this case took: `elapsed_seconds.build`, …; number, s",
}


@dataclass(frozen=True)
class Column:
    """What a column holds: its kind, its unit (empty: none), its meaning, and its title in the report (empty: it is not
    in the table of what else was measured)."""

    kind: Kind
    unit: str
    meaning: str
    title: str = ""

    def write(self, value: Any) -> str | None:
        """A value as the report shows it; None for none."""
        if value is None:
            return None
        if self.kind == "flag":
            return "yes" if value else "no"
        if self.unit == "s":
            return formatting.duration(value)
        if self.unit == "bytes":
            return formatting.size(value)
        if self.unit == "0 to 1":
            return formatting.share(value, 0)
        if self.unit == "ratio":
            return formatting.number(Interval(value=value))
        return str(value) if self.kind == "text" else f"{value:,.0f}"


# name|kind|unit|meaning, and the title where it has one; in brackets what the names below it begin with.
_TABLE = """
run|text||the run's folder
suite|text||the suite's name
[case.]
id|text||model/mode/backend/threads/batch, and the host where it is not native
model|text||the model's name in the suite
mode|text||fp32, dynamic, static or qat
backend|text||what runs the model
threads|count||threads of the runtime
batch_size|count||examples in a call
recipe|text||the recipe's name, `default` where the suite names none
host|text||where it ran, `native` for this machine as it is
variant|text||mode, recipe and backend as the report shows them
setting|text||model, threads, batch and host: what is decided apart
[]
status|text||ok, failed or skipped
schema|count||number of the record's format
stage|text||where a case failed or was skipped
reason|text||why it failed or was skipped
reference|flag||added by the plan to compare with; the suite does not ask for it
[host.]
kind|text||native, limited, node, predicted or emulated (not measured); missing in a run of one host
cpu|text||the CPU
switches|text||variables that limited the engines, separated by `;`
torch_isa|text||the instruction set of torch's kernels, in torch's words
onednn_isa|text||that of oneDNN, in its own words
mkl_isa|text||that of MKL, in its own words
int8_sums|text||in how many bits the int8 kernels add two products, shown by an answer
note|text||in what the host is unlike such a machine
saturating|text||layers with a saturated sum, where they were counted: name, sums, saturated
counted_examples|count||examples over which they were counted
uncounted|text||why layers were not counted
node|text||the machine of a cluster that measured it
cluster_load|number|cores|processor time of Ray's own processes there, as a share of one core
examples.n|count||how many evaluation examples an emulated CPU answered
examples.of|count||of how many
examples.chosen|text||which ones: those nearest to flipping natively, or with the largest outputs
[decision.]
verdict|text||the setting's: ship, either, keep fp32, undecided, incomplete, none qualifies, no answer
role|text||the verdict, on the case or cases that it names; `tied` on those that tie with the best
tie|number|ratio|what differs by less is a tie: 0.02 for 2 %
is_best_fp32|flag||the fastest fp32 of the setting, of any backend
probability|number|0 to 1|that the case named for shipping is the best
[over_best_fp32.]
value|number|ratio|time over that of the setting's fastest fp32; below 1 is faster
low|number|ratio|its lower limit, 95 %
high|number|ratio|its upper limit, 95 %
[]
size_over_fp32|number|ratio|bytes over those of the like-for-like fp32
[metric.]
scale|number||what a stored score is multiplied by to be shown: 100 for percent
unit|text||the unit of a shown difference: points for percent
higher_is_better|flag||which way is better
[artifact.]
format|text||the format of the file that is shipped
sha256|text||digest of its content
size_bytes|count|bytes|exactly what is shipped
coverage.macs_int8|number|0 to 1|work done in int8 (coverage): share of the multiply-accumulates
coverage.layers_int8|count||layers that run in int8
coverage.layers_total|count||layers that could
coverage.float_layers|text||names of the layers that stayed in float, separated by `;`
coverage.float_reasons|text||why, as a JSON mapping from layer to reason
coverage.unknown|text||why the share of the work is not known
key|text||key of the artifact in the cache
cached|flag||taken from the cache, not built in this run
note|text||what a reader should know of the variant
rewrites|text||what the network was rewritten into before it was quantized, separated by `;`
rewrite_difference|number||how far the outputs moved by that
target.cpus|text||kinds of CPU that it was made for beside the one that built it
target.layers|count||layers whose sums of products were looked at for them
target.layers_narrowed|count||those that got wider steps for weights, so that no sum overflows there
target.channels_narrowed|count||their channels with a wider step
target.overflowing|text||layers whose sums may overflow there all the same
target.compiled_for|text||the CPU that its machine code is for
[latency.]
p50_seconds|number|s|median time of a call; of undisturbed blocks where `p50_from` says so
p50_low|number|s|its lower limit, 95 %
p50_high|number|s|its upper limit, 95 %
p90_seconds|number|s|nine calls in ten are at least this fast
p99_seconds|number|s|99 calls in 100 are|p99
mean_seconds|number|s|mean time of a call
n|count||timed calls|calls
p90_low|number|s|lower limit of p90, 95 %
p90_high|number|s|upper limit of p90, 95 %
p99_low|number|s|lower limit of p99, 95 %
p99_high|number|s|upper limit of p99, 95 %
effective_n|number||effective sample size: how many independent calls these are worth|effective sample size
p50_from|text||`undisturbed` blocks, or `all`|p50 from blocks
p50_all_seconds|number|s|median of all calls
[speedup.]
baseline|text||the fp32 on the same runtime that the case is compared with
value|number|ratio|its time over the case's; above 1 is faster
low|number|ratio|lower limit at `speedup.level`
high|number|ratio|upper limit at `speedup.level`
level|number|0 to 1|level of the limits
processes|count||processes that were measured
control.value|number|ratio|noise check (fp32 against fp32): 1 in truth
control.low|number|ratio|its lower limit
control.high|number|ratio|its upper limit
protocol|text||paired or sequential
stopped|text||what ended the measurement
steady|flag||whether later processes agree with earlier ones|steady
measured_seconds|number|s|what the case's blocks took
[speedup_fastest.]
baseline|text||the fastest fp32 of the setting
value|number|ratio|its time over the case's; above 1 is faster
low|number|ratio|its lower limit, 95 %
high|number|ratio|its upper limit, 95 %
[sequential.]
mean_seconds|number|s|mean by the literature's protocol, in a process of its own|sequential mean
n|count||its calls
speedup|number|ratio|the baseline's mean over it; without an interval|sequential speed-up
[interference.]
blocks|count||blocks of calls
involuntary_switches|count||involuntary context switches in them|involuntary context switches
page_faults|count||page faults in them|page faults
shared|number|0 to 1|share of the time that something else used the core|core busy with other work
undisturbed_blocks|count||blocks in which nothing else did
calm_seconds|number|s|what the canary takes on a core of its own
off_core|number|0 to 1|share of the time that other processes of the machine had the core
[]
throughput_per_second|number|1/s|examples a second|examples a second
[cold_start.]
load_seconds|number|s|loading the artifact in a fresh process|load
first_call_seconds|number|s|the first call|first call
next_calls_seconds|number|s|median of calls 2 to 5|calls 2 to 5
processes|count||fresh processes
load_low|number|s|lower limit of the loading time, 95 %
load_high|number|s|upper limit of the loading time, 95 %
first_call_low|number|s|lower limit of the first call, 95 %
first_call_high|number|s|upper limit of the first call, 95 %
[memory.]
loaded_rss_bytes|count|bytes|resident set of the process after loading|memory, loaded
peak_rss_bytes|count|bytes|its peak|memory, peak
[accuracy.]
metric|text||the metric's name
value|number|metric|the score; 0 to 1 for shares
low|number|metric|its lower limit, 95 %
high|number|metric|its upper limit, 95 %
n|count||evaluation examples
delta.value|number|metric|paired change against the like-for-like fp32
delta.low|number|metric|its lower limit, 95 %
delta.high|number|metric|its upper limit, 95 %
margin|number|metric|the suite's limit: how much may be lost
verdict|text||PASS, FAIL or INCONCLUSIVE of the test against the margin
tested.low|number|metric|lower limit of the change as it was tested
tested.high|number|metric|upper limit of the change as it was tested
tested.level|number|0 to 1|level of these limits
agreement|number|0 to 1|share of examples on which fp32 gives the same answer
flips.harmful|count||lost: fp32 right, int8 wrong
flips.beneficial|count||gained: fp32 wrong, int8 right
inputs|text||how each input fits what the artifact can represent, as JSON
calibration.seeds|text||seeds that drew the calibration examples, separated by `;`
calibration.values|text||the score with each
calibration.predictions|text||the file of predictions of each
calibration.reasons|text||why a seed has no score
shared_examples|count||evaluation examples that calibration or training saw
interval|text||how the limits come about: score, weighted mean, jackknife or paired bootstrap
only_answer|count||the one class that every example is given
other_runtime.case|text||a case of the same network whose outputs differ by more than rounding
other_runtime.between_db|number|dB|SQNR of one against the other
other_runtime.better_db|number|dB|SQNR of the better one against fp32
other_runtime.layer|text||the first layer that differs
twin.baseline|text||the fp32 twin of a qat case: the same training without fake quantization
twin.delta.value|number|metric|paired change against it
twin.delta.low|number|metric|its lower limit, 95 %
twin.delta.high|number|metric|its upper limit, 95 %
twin.flips.harmful|count||lost against it
twin.flips.beneficial|count||gained against it
twin.agreement|number|0 to 1|share of examples with the same answer
as_called.compared|count||examples on which fp32 was held against the network as its author calls it
as_called.of|count||of so many
as_called.differing|count||of them those that differ
as_called.worst|number||the largest difference as a share of the largest output
unjudged_outputs|text||outputs that nothing was held against, separated by `;`
[roofline.]
macs|count||multiply-accumulates of one call
peak_fraction|number||share of this core's measured peak: of fp32 for fp32, of int8 for the others|of this core's peak
peak_shared|flag||something else used the core while the peak was measured: the share is too high
operations_per_second|number|1/s|two for each multiply-accumulate
peak_per_second|number|1/s|the peak that `peak_fraction` is a share of, all threads together
[]
samples|text||file of every timed call, in the run's folder
predictions|text||file of every output
layers|text||file of the numbers of each layer
started|text||when the case was begun, UTC
"""


def _list_columns() -> dict[str, Column]:
    columns: dict[str, Column] = {}
    prefix = ""
    for line in _TABLE.strip().splitlines():
        if line.startswith("["):
            prefix = line.strip("[]")
        else:
            name, kind, unit, meaning, *title = line.split("|")
            columns[f"{prefix}{name}"] = Column(cast(Kind, kind), unit, meaning, *title)
    return columns


COLUMNS = _list_columns()


def write_guide() -> str:
    """The columns as a Markdown table, as ``guide/python.md`` has it."""
    rows = [f"| `{name}` | {column.kind} | {column.unit} | {column.meaning} |" for name, column in COLUMNS.items()]
    rows += [f"| `{start}*` | as it is | | {meaning} |" for start, meaning in OPEN.items()]
    return "\n".join(("| column | kind | unit | meaning |", "|---|---|---|---|", *rows, ""))
