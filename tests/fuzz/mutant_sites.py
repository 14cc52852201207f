"""Where a module can be changed by a little, and how: comparisons, constants, conditions, dropped calls.

The replacements are mutmut's operators, one for each operator and constant (its ``mutation.mutators``). mutmut's own
runner is not used: it calls a mutated function through a trampoline that an environment variable switches, so that
constants of a module cannot change, and takes the tests of one process for all that run. Left out of its operators are
those whose mutants say little of the tests: ``a = None`` (dies wherever the line runs), other texts (messages stand
in golden files), and other arguments. Added are a branch that is always or never taken, and a call that is dropped.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider
from mutmut.mutation import mutators

TRUE, FALSE = cst.Name("True"), cst.Name("False")


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change of one module: ``before``, the whole lines from ``first`` on, becomes ``after``.

    ``line`` is where the change is, ``lines`` are those of its statement, and ``module_level`` says that it runs when
    the module is imported.
    """

    module: str
    kind: str
    line: int
    lines: tuple[int, ...]
    module_level: bool
    first: int
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def name(self) -> str:
        """Eight letters that stand for this change."""
        said = "\n".join((self.module, str(self.first), *self.before, "", *self.after))
        return hashlib.sha256(said.encode()).hexdigest()[:8]

    def moved_to(self, text: str) -> Mutant | None:
        """The same change where its lines now are, nearest to where they were; None where they are gone."""
        lines, size = text.splitlines(), len(self.before)
        starts = [i + 1 for i in range(len(lines)) if tuple(lines[i : i + size]) == self.before]
        if not starts:
            return None
        by = min(starts, key=lambda start: abs(start - self.first)) - self.first
        moved = tuple(line + by for line in self.lines)
        return dataclasses.replace(self, first=self.first + by, line=self.line + by, lines=moved)

    def apply(self, text: str) -> str:
        """The module's text with the change."""
        lines = text.splitlines()
        lines[self.first - 1 : self.first - 1 + len(self.before)] = self.after
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, kw_only=True)
class Site:
    """A node, and what it can be replaced with."""

    node: cst.CSTNode
    kind: str
    replacement: cst.CSTNode
    statement: cst.CSTNode
    module_level: bool


def _always_and_never(node: cst.If | cst.IfExp) -> Iterator[cst.CSTNode]:
    yield node.with_changes(test=TRUE)
    yield node.with_changes(test=FALSE)


def _never(node: cst.While) -> Iterator[cst.CSTNode]:
    yield node.with_changes(test=FALSE)


def _keep_all(node: cst.CompIf) -> Iterator[cst.CSTNode]:
    yield node.with_changes(test=TRUE)


def _dropped_call(node: cst.Expr) -> Iterator[cst.CSTNode]:
    if isinstance(node.value, cst.Call | cst.Await):
        yield cst.Pass()


def _other_number(node: cst.BaseNumber) -> Iterator[cst.CSTNode]:
    """Of a number too large for it one more is the same: ``1e100`` and ``1e+100``."""
    for other in mutators.operator_number(node):
        if not isinstance(other, cst.BaseNumber) or ast.literal_eval(other.value) != ast.literal_eval(node.value):
            yield other


OPERATORS: tuple[tuple[type[cst.CSTNode], str, Callable[[Any], Iterable[cst.CSTNode]]], ...] = (
    (cst.BaseNumber, "number", _other_number),
    (cst.Name, "constant", mutators.operator_name),
    (cst.UnaryOperation, "sign or not", mutators.operator_remove_unary_ops),
    (cst.CSTNode, "operator", mutators.operator_swap_op),
    (cst.CSTNode, "keyword", mutators.operator_keywords),
    (cst.AugAssign, "operator", mutators.operator_augmented_assignment),
    (cst.If, "branch", _always_and_never),
    (cst.IfExp, "branch", _always_and_never),
    (cst.While, "branch", _never),
    (cst.CompIf, "branch", _keep_all),
    (cst.Expr, "call", _dropped_call),
)


class _Finder(cst.CSTVisitor):
    """Collects the sites; annotations, decorators and what only a type checker reads are no code that runs."""

    def __init__(self) -> None:
        self.sites: list[Site] = []
        self._functions = 0
        self._statements: list[cst.CSTNode] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Annotation | cst.Decorator | cst.Import | cst.ImportFrom | cst.TypeAlias | cst.Slice):
            return isinstance(node, cst.Slice)
        if isinstance(node, cst.If) and isinstance(node.test, cst.Name) and node.test.value == "TYPE_CHECKING":
            return False
        if isinstance(node, cst.BaseStatement):
            self._statements.append(node)
        for kind, name, replacements in OPERATORS:
            if isinstance(node, kind):
                self.sites += [
                    Site(
                        node=node,
                        kind=name,
                        replacement=replacement,
                        statement=self._statements[-1],
                        module_level=not self._functions,
                    )
                    for replacement in replacements(node)
                ]
        if isinstance(node, cst.FunctionDef | cst.Lambda):
            self._functions += 1
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if isinstance(original_node, cst.FunctionDef | cst.Lambda):
            self._functions -= 1
        if self._statements and original_node is self._statements[-1]:
            self._statements.pop()


class Module:
    """A module's text and the sites in it, of which those on ``only`` lines (None: on any)."""

    def __init__(self, name: str, text: str, only: Collection[int] | None = None) -> None:
        self._name, self._text = name, text
        self._wrapper = MetadataWrapper(cst.parse_module(text))
        self._positions = self._wrapper.resolve(PositionProvider)
        finder = _Finder()
        self._wrapper.module.visit(finder)
        sites = [site for site in finder.sites if site.node in self._positions]
        self.sites = [site for site in sites if only is None or set(self._range(site.node)) & set(only)]

    def mutant(self, site: Site) -> Mutant | None:
        """The module with this change; None where it would not be Python, or the same."""
        changed = self._wrapper.module.deep_replace(site.node, site.replacement).code
        try:
            compile(changed, self._name, "exec")
        except (SyntaxError, ValueError):
            return None
        if changed == self._text:
            return None
        lines = {*self._range(site.node), self._positions[site.statement].start.line}
        if isinstance(site.statement, cst.SimpleStatementLine):
            lines |= set(self._range(site.statement))
        first, before, after = _difference(self._text.splitlines(), changed.splitlines())
        return Mutant(
            module=self._name,
            kind=site.kind,
            line=self._positions[site.node].start.line,
            lines=tuple(sorted(lines)),
            module_level=site.module_level,
            first=first,
            before=before,
            after=after,
        )

    def _range(self, node: cst.CSTNode) -> range:
        where: CodeRange = self._positions[node]
        if isinstance(node, cst.If | cst.While):  # its condition, not what it guards
            return range(where.start.line, self._positions[node.test].end.line + 1)
        return range(where.start.line, where.end.line + 1)


def _difference(old: list[str], new: list[str]) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """The number of the first line that differs, and the lines that do, of either text."""
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    return start + 1, tuple(old[start : len(old) - end]), tuple(new[start : len(new) - end])
