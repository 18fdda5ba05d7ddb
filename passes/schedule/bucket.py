"""Combines collectives by a rule that the user names, and leaves the order of the computation as it is.

    bucket{rule=size,most-bytes=30MB}          buckets of up to this size
    bucket{rule=layer}                         one per layer: the first number in the names of parameters
    bucket{rule=names,names=*layers*0*|*out*}  one per pattern; what none fits stays by itself
    bucket{rule=simplefsdp}                    SimpleFSDP's rule: as much as computation hides
    bucket{rule=xla}                           XLA's: 30 MiB, what is larger stays by itself
    bucket{rule=auto}                          the best plan for the machine

Gathers of a bucket stand where the first is needed, reductions where the last is made. Collectives that computation
needs at once are combined where they stand close together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...cost.sizes import Bytes
from ...ir.diagnostics import fail
from ...ir.graph.module import Module, Stage
from ..base import Pass, PassContext, refuse_starts
from .combining import CombinedForm, form_named
from .extract import Extract
from .labels import in_patterns, labels_of, names_of_gather, names_of_reduction
from .planning import Planning
from .search.arrange import Buckets, arrange
from .search.best import best_schedule
from .search.heuristics import XLA_BYTES, capped, in_groups, simplefsdp
from .search.problem import ActionKind, Outcome, Plan

_MOST = Bytes(XLA_BYTES)


@dataclass(frozen=True)
class Bucket(Pass):
    """Combines collectives by `rule`: auto, simplefsdp, layer, names, size or xla."""

    name: ClassVar[str] = "bucket"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.LOCAL, Stage.SCHEDULED})
    rule: str = "auto"
    most_bytes: Bytes = _MOST
    names: str = ""
    form: str = CombinedForm.VARIADIC.value

    def run(self, module: Module, context: PassContext) -> bool:
        refuse_starts(module, self.name)
        rules = self._rules()
        if self.rule not in rules:
            fail(f"pass bucket has no rule '{self.rule}'", help="rules: " + ", ".join(rules))
        if (self.rule == "names") != bool(self.names):
            fail("pass bucket needs names with rule=names, and with no other", help="bucket{rule=names,names=a*|b*}")
        remarks: list[str] = []

        def planner(problem: Extract) -> tuple[Extract, Outcome]:
            problem, buckets = rules[self.rule](problem)
            remarks.append(_remark(problem, buckets))
            return problem, arrange(problem.problem, buckets, ahead=0)

        planning = Planning(planner, context.machine, form_named(self.form), reorders=False)
        found = planning.plan(module, float("inf"))
        if found is None or all(size == 1 for size in found.buckets):
            context.diagnostics.remark("bucket: there is nothing to combine")
            return found is not None
        for remark in remarks:
            context.diagnostics.remark(remark)
        return True

    def _rules(self) -> dict[str, Callable[[Extract], tuple[Extract, Buckets]]]:
        return {
            "auto": lambda e: (e, _best(e)),
            "simplefsdp": lambda e: (e, simplefsdp(e.problem)),
            "layer": lambda e: _grouped(e, *labels_of(e.gathers, e.reductions)),
            "names": self._by_names,
            "size": lambda e: (e, capped(e.problem, self.most_bytes)),
            "xla": lambda e: (e, capped(e.problem, self.most_bytes, alone=True)),
        }

    def _by_names(self, e: Extract) -> tuple[Extract, Buckets]:
        patterns = self.names.split("|")
        gathers, reductions = ([names_of_gather(g) for g in e.gathers], [names_of_reduction(r) for r in e.reductions])
        return _grouped(e, list(in_patterns(gathers, patterns)), list(in_patterns(reductions, patterns)))


def _grouped(e: Extract, gathers: Sequence[object], reductions: Sequence[object]) -> tuple[Extract, Buckets]:
    """Returns the problem with a bucket per label."""
    by_gather, by_reduction = (dict(zip(tensors, labels, strict=True)) for tensors, labels in
                               ((e.gathers, gathers), (e.reductions, reductions)))  # fmt: skip
    e = e.grouped(gathers, reductions)
    return e, in_groups(e.problem, [by_gather[g] for g in e.gathers], [by_reduction[r] for r in e.reductions])


def _best(e: Extract) -> Buckets:
    return _of_plan(best_schedule(e.problem, *labels_of(e.gathers, e.reductions)).outcome.plan)


def _of_plan(plan: Plan) -> Buckets:
    gathers, reductions = (
        tuple(a.end for a in plan if a.kind is kind) for kind in (ActionKind.GATHER, ActionKind.REDUCE)
    )
    return Buckets(gathers, reductions)


def _remark(e: Extract, buckets: Buckets) -> str:
    """Reports how the collectives of a computation were combined, and why more were not."""
    parts: list[str] = []
    for what, tensors, ends in (("gather", e.problem.gathers, buckets.gathers),
                                ("reduction", e.problem.reductions, buckets.reductions)):  # fmt: skip
        if tensors:
            starts = (0, *ends[:-1])
            kinds = [len({t.key for t in tensors[a:b]}) for a, b in zip(starts, ends, strict=True)]
            text = f"{_counted(len(tensors), what)} in {_counted(len(ends), 'bucket')}"
            if sum(kinds) > len(ends):
                text += f", {sum(kinds) - len(ends)} more collectives for other groups or types"
            parts.append(text)
    fixed = sum(i.op.is_collective for segment in e.segments for i in segment)
    if fixed:
        parts.append(f"{fixed} keep their place, since computation needs them at once")
    return f"bucket: {e.computation.name}: " + "; ".join(parts)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" + ("s" if count != 1 else "")
