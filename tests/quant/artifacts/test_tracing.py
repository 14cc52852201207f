"""Decisions that a trace froze: found in the user's code, tried on every example, and never passed over."""

from __future__ import annotations

import warnings

import pytest
import torch
from networks import Branching, BranchingAsTraced, Crowded, Loud, residual_cnn

from qbench.errors import BuildError
from qbench.quant.artifacts import tracing


def images(n=30):
    return torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def one_by_one(tensor):
    return [(tensor[i : i + 1],) for i in range(len(tensor))]


def judged(module, x):
    return tracing.require_harmless(module, tracing.trace(module, (x[:1],)), one_by_one(x))


def test_a_module_without_decisions_has_nothing_to_tell():
    """No note, and no example is read."""
    traced = tracing.trace(residual_cnn(), (images(1),))
    assert traced.decisions == ()
    assert tracing.require_harmless(residual_cnn(), traced, iter(lambda: pytest.fail("read an example"), None)) is None


def test_a_decision_that_no_example_shows_is_noted():
    """Where it stands, its code, and on how many examples it made no difference."""
    module, sizes = Loud().eval(), list[int]()
    traced = tracing.trace(module, (images(1),))
    module.register_forward_pre_hook(lambda module, args: sizes.append(len(args[0])))
    note = tracing.require_harmless(module, traced, one_by_one(images()))
    assert sizes == [1] * 30 + [2]
    assert note is not None
    assert note.startswith("the trace froze a decision at networks.py:")
    assert "(return -x if float(" in note
    assert note.endswith("equal on 30 calibration examples, other inputs may differ")


def test_one_example_that_differs_is_enough():
    """The first that differs is named, with how many do."""
    x = images()
    x[20] *= 1000
    with pytest.raises(BuildError, match=r"another model on calibration example 20 \(1 of 30 differ.*torch\.where"):
        judged(Loud().eval(), x)


def test_a_decision_on_the_size_of_the_batch_is_found():
    """Examples one at a time never show it, so two are tried together."""
    with pytest.raises(BuildError, match=r"at networks\.py:\d+ .*another model on a batch of 2"):
        judged(Crowded().eval(), images())


def test_the_tolerance_follows_the_outputs():
    """A network of tiny outputs is judged by its own scale."""

    class Tiny(Branching):
        def forward(self, x):
            return super().forward(x) * 1e-5

    signs = torch.tensor([1.0, -1.0]).reshape(2, 1, 1, 1)
    with pytest.raises(BuildError, match="calibration example 1"):
        judged(Tiny().eval(), images(2) * signs)


class Overlapping(torch.nn.Module):
    """Means of pieces of 4 steps that overlap by 2, as Longformer's attention cuts them: by strides, which are the
    examples' own for a batch of 1 and a copy's for two."""

    def forward(self, x):
        heads = x.reshape(x.shape[0], 8, 4, 2).transpose(1, 2).reshape(x.shape[0] * 4, 8, 2)
        first, steps, values = heads.stride()
        pieces = heads.as_strided((heads.shape[0], 3, 4, 2), (first, 2 * steps, steps, values))
        return pieces.mean(2).reshape(x.shape[0], -1)


def test_overlapping_views_hold_for_any_batch():
    """A trace keeps strides as numbers; the places of an example are the same in any batch."""
    x = images(3)
    traced = tracing.trace(Overlapping(), (x[:1],))
    torch.testing.assert_close(traced.script(x), Overlapping()(x))
    view, whole = x.as_strided((3, 2), (64, 1)), torch.as_strided(x, (2, 64), (64, 1))
    assert view.data_ptr() == whole.data_ptr() == x.data_ptr(), "tracing left its own function behind"


@pytest.mark.parametrize(
    ("size", "stride", "offset"),
    [
        pytest.param((64,), (1,), None, id="no axis of examples"),
        pytest.param((1, 4), (64, 1), 3, id="begins elsewhere"),
        pytest.param((2, 32), (32, 1), None, id="cuts the example in two"),
        pytest.param((1, 4), (64, 40), None, id="reads what the tensor does not show"),
    ],
)
def test_other_views_stay_as_they_are(size, stride, offset):
    """Where a view is none of the elements of each example, the trace has the operator itself."""

    class Viewed(torch.nn.Module):
        def forward(self, x):
            return torch.as_strided(x[:, :, :, :4], size, stride, offset) * 2

    x = images(2)[:1]
    traced = tracing.trace(Viewed(), (x,))
    assert "as_strided" in str(traced.script.graph)
    torch.testing.assert_close(traced.script(x), Viewed()(x))


def test_a_network_that_cannot_take_what_it_makes_while_traced_is_traced_as_it_runs():
    """As Nystroemformer: the mask that transformers builds for tracers does not fit. Decisions on the way are told."""

    class Masked(torch.nn.Module):
        def forward(self, x):
            if torch.jit.is_tracing():
                x = x + torch.zeros(3, 3)
            return -x if bool(x.isnan().any()) else x

    traced = tracing.trace(Masked(), (images(1),))
    (decision,) = traced.decisions
    assert "x.isnan()" in str(decision)
    torch.testing.assert_close(traced.script(images()), images())
    assert not torch.jit.is_tracing()


def test_only_so_many_examples_are_tried():
    """A data set of a million examples must not make a build endless."""
    endless = ((images(1),) for _ in iter(int, 1))
    module = Loud().eval()
    note = tracing.require_harmless(module, tracing.trace(module, (images(1),)), endless)
    assert note is not None
    assert "equal on 512 calibration" in note


def test_what_the_tracer_cannot_take_is_explained():
    """An output that is no tensor ends the build with torch's reason."""

    class Counted(torch.nn.Module):
        def forward(self, x):
            return x, 3

    with pytest.raises(BuildError, match="torch.jit cannot trace this network.*tensors only: RuntimeError"):
        tracing.trace(Counted(), (images(1),))


def test_memory_that_runs_out_while_tracing_is_not_the_models_fault():
    """The error of the allocator goes up as it is."""

    class Huge(torch.nn.Module):
        def forward(self, x):
            return x + torch.empty(1 << 50)

    with pytest.raises(RuntimeError, match="can't allocate memory"):
        tracing.trace(Huge(), (images(1),))


def test_a_decision_is_kept_where_the_module_can_be_compiled():
    """The compiled module decides at each call; without a decision, or where the compiler refuses, there is none."""
    x = torch.cat([images(1), -images(1)])
    module = Branching().eval()
    script = tracing.script_decisions(module, tracing.trace(module, (x[:1],)))
    for example in (x[:1], x[1:]):
        torch.testing.assert_close(script(example), module(example))
    assert tracing.script_decisions(residual_cnn(), tracing.trace(residual_cnn(), (x[:1],))) is None
    odd = BranchingAsTraced().eval()
    assert tracing.script_decisions(odd, tracing.trace(odd, (x[:1],))) is None


def test_of_two_refusals_the_first_is_told():
    """The second way is one that few networks need."""
    calls = iter(range(9))

    class Refused(torch.nn.Module):
        def forward(self, x):
            raise ValueError(f"call {next(calls)}")

    with pytest.raises(BuildError, match=r"\(?ValueError: call 0") as raised:
        tracing.trace(Refused(), (images(1),))
    assert str(raised.value.__cause__) == "call 0"


def test_memory_that_runs_out_in_the_compiler_is_no_refusal(monkeypatch):
    """It goes up as it is."""

    def script(module):
        raise MemoryError

    traced = tracing.trace(Branching().eval(), (images(1),))
    monkeypatch.setattr(torch.jit, "script", script)
    with pytest.raises(MemoryError):
        tracing.script_decisions(Branching().eval(), traced)


def test_memory_that_runs_out_on_two_examples_is_no_refusal_of_them():
    """A network that takes one example alone is fine; this is not."""
    x = images(2)

    class Full(torch.nn.Module):
        error = MemoryError

        def forward(self, x):
            if len(x) > 1:
                raise self.error
            return x

    decisions = (tracing.Decision(file="net.py", line=1),)
    traced = tracing.Traced(script=torch.nn.Identity(), decisions=decisions)
    module = Full()
    with pytest.raises(MemoryError):
        tracing.require_harmless(module, traced, one_by_one(x))
    Full.error = ValueError
    assert "equal on 2 calibration examples" in tracing.require_harmless(module, traced, one_by_one(x))


DECISIONS = tuple(tracing.Decision(file=f"net{line}.py", line=line) for line in (4, 5, 6))


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "a decision at net4.py:4"),
        (2, "decisions at net4.py:4, net5.py:5"),
        (3, "decisions at net4.py:4, net5.py:5 and 1 more"),
    ],
)
def test_decisions_are_named_by_their_lines(count, said):
    """Two of them, and how many more there are."""
    assert tracing.name_decisions(DECISIONS[:count]) == said


@pytest.mark.parametrize(("share", "is_refused"), [(0.9e-4, False), (1.1e-4, True)])
def test_a_trace_may_round_but_not_differ(share, is_refused):
    """By a ten-thousandth of the largest output of all examples, and of two together."""

    class Rounded(torch.nn.Module):
        def __init__(self, share, sizes):
            super().__init__()
            self.share, self.sizes = share, sizes

        def forward(self, x):
            return x + 2 * self.share if len(x) in self.sizes else x

    examples = [(torch.ones(1, 2),), (torch.full((1, 2), 2.0),), (torch.zeros(1, 2),)]
    for sizes, where in (((1,), r"calibration example 0 \(3 of 3 differ, by up to 0.00022\d* at outputs up to 2\)"),
                         ((2,), r"a batch of 2 \(largest difference 0.00022")):  # fmt: skip
        traced = tracing.Traced(script=Rounded(share, sizes), decisions=DECISIONS[:1])
        if is_refused:
            with pytest.raises(BuildError, match=rf"^the trace froze a decision at net4.py:4 and is .* on {where}"):
                tracing.require_harmless(torch.nn.Identity(), traced, examples)
        else:
            assert "equal on 3 calibration" in tracing.require_harmless(torch.nn.Identity(), traced, examples)


def test_a_network_that_changes_by_itself_is_told_as_such():
    """It is no fault of the trace that it gives other outputs."""
    calls = iter(range(1, 99))

    class Counting(torch.nn.Module):
        def forward(self, x):
            return x + next(calls)

    traced = tracing.Traced(script=torch.nn.Identity(), decisions=DECISIONS)
    with pytest.raises(BuildError, match="keeps something of earlier calls"):
        tracing.require_harmless(Counting(), traced, [(torch.ones(1, 2),)])


def test_what_a_trace_cannot_do_with_two_examples_is_told():
    """Where the network itself takes them; outputs of another shape are another model, too."""

    class Alone(torch.nn.Module):
        wrong = staticmethod(lambda x: x.view(1, 2))

        def forward(self, x):
            return x if len(x) == 1 else self.wrong(x)

    traced = tracing.Traced(script=Alone(), decisions=DECISIONS[:1])
    with pytest.raises(BuildError, match=r"on a batch of 2 \(RuntimeError: shape '\[1, 2\]' is invalid"):
        tracing.require_harmless(torch.nn.Identity(), traced, [(torch.ones(1, 2),)] * 2)
    Alone.wrong = staticmethod(lambda x: x[:1])
    with pytest.raises(BuildError, match=r"on a batch of 2 \(largest difference inf\)"):
        tracing.require_harmless(torch.nn.Identity(), traced, [(torch.ones(1, 2),)] * 2)


def test_a_graph_that_does_not_run_is_the_converter_s():
    """The way out is another than for the network itself; of one that runs no decisions are told."""
    broken = torch.fx.symbolic_trace(torch.nn.Linear(3, 3))
    with pytest.raises(BuildError, match="^the converted model does not run, name the layer in .*skip_layers: Runt"):
        tracing.trace(broken, (torch.ones(1, 2),))

    class Deciding(torch.fx.GraphModule):
        def forward(self, x):
            return x if float(x.sum()) > 0 else -x

    deciding = torch.fx.symbolic_trace(torch.nn.Identity())
    deciding.__class__ = Deciding
    assert tracing.trace(deciding, (torch.ones(1, 2),)).decisions == ()


def test_other_warnings_of_a_traced_network_are_shown():
    """Those of the tracer are what decisions are read from."""

    class Warned(torch.nn.Module):
        def forward(self, x):
            warnings.warn("of the user's own", UserWarning, stacklevel=1)
            return x if float(x.sum()) > 0 else -x

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        traced = tracing.trace(Warned(), (torch.ones(1, 2),))
    assert [str(each.message) for each in shown] == ["of the user's own"]
    assert len(traced.decisions) == 1
