"""Which case it is, where it ran, and what the decision says of it."""

from __future__ import annotations

from qbench import formatting
from qbench.decide import cases
from qbench.decide.objective import VALUES
from qbench.record.schema import Record
from qbench.report.cells import CaseRow, Cell
from qbench.report.columns.column import Family

# What the words for what is minimized are in titles and hints, where it has a column of its own.
MINIMIZED: dict[str, dict[str, str]] = {
    "size": {"minimized": "bytes"},
    "cold_start": {
        "minimized": "cold start",
        "minimized_card": "to load and call once",
        "minimized_means": "from nothing loaded to the first answer: loading and the first call",
    },
    "memory": {
        "minimized": "memory",
        "minimized_card": "memory",
        "minimized_means": "the largest resident set of the measuring process",
    },
}


def _names_case(row: CaseRow) -> bool:
    """Whether the decision of its setting names a case for shipping, or to be kept."""
    decision = row.decision
    if decision is None:
        return False
    chosen: dict[str, tuple[Record | None, ...]] = {
        "ship": (decision.pick,),
        "either": (decision.pick, decision.runner_up),
        "undecided": (decision.pick,),
        "keep fp32": (decision.fp32,),
    }
    return row.record.case.id in {record.case.id for record in chosen.get(decision.verdict, ()) if record is not None}


def _name_role(row: CaseRow) -> str | None:
    if row.decision is None:
        return None
    return row.decision.verdict if _names_case(row) else "tied" if row.record.case.id in row.decision.tied else None


family = Family()

family.list(
    """
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
probability|number|0 to 1|how often what is shipped or kept would be chosen again
""",
    {
        "run": lambda row: row.run and row.run.folder.name,
        "suite": lambda row: row.run and row.run.info.suite.name,
        "variant": lambda row: row.record.case.variant,
        "setting": lambda row: cases.setting_name(cases.setting_of(row.record.case)),
        "verdict": lambda row: row.decision and row.decision.status,
        "role": _name_role,
        "tie": lambda row: row.judged.decide.tie,
        "is_best_fp32": lambda row: row.record is row.best,
        "probability": lambda row: row.decision.probability if row.decision and _names_case(row) else None,
    },
)


@family.drawn(
    "minimized||||{minimized}",
    key="minimized",
    card="{minimized_card}",
    hint="what is minimized: {minimized_means}",
    applies=lambda judged: judged.decide.minimize in ("cold_start", "memory"),
)
def _minimized(row: CaseRow) -> Cell:
    objective = row.judged.decide.minimize
    value = VALUES[objective](row.record)
    if value is None:
        return Cell()
    write = formatting.size if objective in ("size", "memory") else formatting.duration
    return Cell(text=write(value), sort=value)
