"""Budgets for tests: limits on the number of collectives of each kind, on bytes, and on work.

    def test_step_communicates_little() -> None:
        local = hloom.partition(hloom.load("step.hlo"))
        hloom.assert_collectives(local, all_gather=0, all_reduce=2, bytes_at_most=100_000, work_at_most=2 * 10**9)
"""

from __future__ import annotations

from collections.abc import Sequence

from ..cost.collectives import collectives
from ..cost.work import Contraction, contractions
from ..ir.checked_call import checked
from ..ir.graph.module import Module
from ..ir.graph.op import OPS
from ..ir.tools.spmd import require_per_device
from .collectives import KindTotal, by_kind, collectives_table, summary
from .work import work_summary, work_table

KINDS = {kind.replace("-", "_"): kind for kind, op in OPS.items() if op.is_collective and not kind.endswith("-start")}


@checked
def assert_collectives(
    module: Module, *, bytes_at_most: int | None = None, work_at_most: int | None = None,
    total: int | range | None = None, **kinds: int | range,
) -> None:
    """Checks the number of collectives of a per-device program, by kind or in total, the bytes that one device sends,
    and the multiply-adds of its contractions.

    `kinds` are `all_gather=0`, `all_reduce=range(3)` (up to two), and so on; other kinds are not limited. They and
    `total` count instructions: one in a loop counts once, however often it runs. Bytes and multiply-adds count in every
    run; a limit on them fails if the number of runs is unknown. Raises AssertionError with the table of collectives,
    and with that of contractions if there is too much work; CompileError for a module that is not partitioned,
    TypeError for an unknown kind.
    """
    if unknown := sorted(set(kinds) - set(KINDS)):
        raise TypeError(f"there is no collective '{unknown[0]}': {', '.join(KINDS)}")
    require_per_device(module)
    found = sorted(collectives(module), key=lambda c: -c.sent_bytes)
    totals = {t.kind: t for t in by_kind(found)}
    counted = [(totals.get(KINDS[name]) or KindTotal(KINDS[name], 0, 0, 0), wanted) for name, wanted in kinds.items()]
    if total is not None:
        counted.append((KindTotal("collective", len(found), sum(c.count for c in found), 0), total))
    broken = [_excess(t, wanted) for t, wanted in counted if not _keeps(t.instructions, wanted)]
    sent = sum(c.sent_bytes for c in found)
    if bytes_at_most is not None and sent > bytes_at_most:
        broken.append(f"{sent:,} bytes sent per device, {bytes_at_most:,} allowed")
    elif bytes_at_most is not None and not all(c.exact for c in found):
        broken.append(f"a loop runs an unknown number of times, {bytes_at_most:,} bytes allowed")
    tables = [collectives_table(found)] * bool(found) + [summary(found)]
    if work_at_most is not None and (excess := _excess_work(work := contractions(module), work_at_most)):
        broken.append(excess)
        tables += [work_table(work), work_summary(work)]
    if broken:
        raise AssertionError("\n\n".join([f"{module.name}: {'; '.join(broken)}", *tables]))


def _excess_work(found: Sequence[Contraction], most: int) -> str:
    """Returns why contractions exceed so many multiply-adds; empty if they do not."""
    work, repeated = sum(c.work for c in found), sum(c.repeated_work for c in found)
    if work > most:
        again = f", {repeated:,} of them repeated" if repeated else ""
        return f"{work:,} multiply-adds per device{again}, {most:,} allowed"
    unknown = not all(c.exact for c in found)
    return f"a loop runs an unknown number of times, {most:,} multiply-adds allowed" if unknown else ""


def _excess(found: KindTotal, wanted: int | range) -> str:
    runs = f" ({found.runs} runs)" if found.runs != found.instructions else ""
    plural = "s" * (found.instructions != 1)
    return f"{found.instructions} {found.kind} instruction{plural}{runs}, {_wanted(wanted)} allowed"


def _keeps(count: int, wanted: int | range) -> bool:
    return count in wanted if isinstance(wanted, range) else count == wanted


def _wanted(wanted: int | range) -> str:
    return f"{min(wanted, default=0)} to {max(wanted, default=0)}" if isinstance(wanted, range) else str(wanted)
