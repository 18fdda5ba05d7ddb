"""Contractions and certified times, for people and as JSON: multiply-adds per device, and which part of them several
devices repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from ..cost.work import Contraction
from ..ir.grouping import group_by, numberless
from ..passes.resharding.certificate import Certificate, ProgramCertificate
from .columns import columns


def times_text(found: Certificate | ProgramCertificate) -> str:
    """Returns the time that plans minimize, on which machine, and how far it is from a lower bound."""
    ratio = f"{found.time_ratio:.2f}" if found.bound_seconds else "-"
    return (f"minimized: time on {found.machine}, {found.seconds * 1e6:.3g} us; lower bound "
            f"{found.bound_seconds * 1e6:.3g} us, ratio {ratio}")  # fmt: skip


HEAD = ("contraction", "multiply-adds", "runs", "repeated", "source")
RIGHT = (False, True, True, True, False)

_LEAST = 0.01  # part of the program's multiply-adds that is worth a row
_PREFIXES = ("", " K", " M", " G", " T", " P", " E")


def amount(number: float) -> str:
    """Returns a number of at most three digits and a prefix: `998`, `1.26 K`, `40.3 G`."""
    step = 0
    while number >= 999.5 and step < len(_PREFIXES) - 1:
        number, step = number / 1000, step + 1
    return (f"{number:.3g}" if step else f"{number:.0f}") + _PREFIXES[step]


def share(part: float, whole: float) -> str:
    """Returns a part as `25 %`, `0.3 %`; `-` for nothing."""
    if not part or not whole:
        return "-"
    percent = 100 * part / whole
    return f"{percent:.0f} %" if percent >= 1 else f"{percent:.1g} %"


def work_table(found: Sequence[Contraction], every: bool = False) -> str:
    """Returns one line per contraction with more than a per cent of the work, most work first, and one for the others.

    Unless `every` one is asked for, those that differ in numbers of names only are one line, the first, with their work
    together.
    """
    total = sum(c.work for c in found)
    groups = [[c] for c in found] if every else _alike(found)
    ordered = sorted(groups, key=lambda group: -sum(c.work for c in group))
    shown = [group for group in ordered if sum(c.work for c in group) >= _LEAST * total]
    rows = [HEAD, *map(_row, shown)]
    if rest := [c for group in ordered[len(shown) :] for c in group]:
        repeated = share(sum(c.repeated_work for c in rest), sum(c.work for c in rest))
        rows.append((f"{len(rest)} smaller", amount(sum(c.work for c in rest)), "", repeated, ""))
    return columns(rows, RIGHT)


def _alike(found: Sequence[Contraction]) -> list[list[Contraction]]:
    groups = group_by(found, lambda c: (c.opcode, c.multiply_adds, c.count, c.alike, c.exact, c.source,
                                        numberless(c.op_name), "" if c.source or c.op_name else c.name))  # fmt: skip
    return list(groups.values())


def work_summary(found: Sequence[Contraction]) -> str:
    """Returns `1.26 K multiply-adds per device, 25 % of them repeated`, marked if it is only a lower bound."""
    work, repeated = sum(c.work for c in found), sum(c.repeated_work for c in found)
    bound = "" if all(c.exact for c in found) else "at least "
    again = f", {share(repeated, work)} of them repeated" if repeated else ""
    return f"{bound}{amount(work)} multiply-adds per device{again}"


def _row(group: Sequence[Contraction]) -> tuple[str, ...]:
    c, more = group[0], f" (+{len(group) - 1})" if len(group) > 1 else ""
    runs = str(c.count) if c.exact else f"{c.count} per trip"
    repeated = f"{share(c.repeated_work, c.work)} on {c.alike}" if c.alike > 1 else "-"
    source = " ".join(filter(None, (c.source, c.op_name)))
    return f"{c.opcode} {c.name}{more}", amount(sum(c.work for c in group)), runs, repeated, source


def certificate_text(found: Certificate) -> str:
    """Returns the moves of a plan, one per line, and how far its bytes and its time are from lower bounds."""
    ratio = f"{found.ratio:.2f}" if found.bound_bytes else "-"
    return "\n".join((
        *(f"  {move}" for move in found.moves or ("nothing to do",)),
        f"{found.collectives} collectives; {found.received_bytes} bytes received per device, "
        f"lower bound {found.bound_bytes}, ratio {ratio}; peak memory {found.peak_bytes} bytes",
        times_text(found),
    ))  # fmt: skip


def work_record(found: Sequence[Contraction]) -> dict[str, object]:
    """Returns the contractions of a program as JSON, most work first, with their totals."""
    fields = [(c, asdict(c)) for c in sorted(found, key=lambda c: -c.work)]
    return {
        "work": sum(c.work for c in found),
        "repeated_work": sum(c.repeated_work for c in found),
        "contractions": [
            f | {"runs": f.pop("count"), "work": c.work, "repeated_work": c.repeated_work} for c, f in fields
        ],
    }


def certificate_record(found: ProgramCertificate) -> dict[str, object]:
    """Returns the totals of a program's reshardings as JSON."""
    return {
        "count": len(found.reshardings), "machine": found.machine, "seconds": found.seconds,
        "bound_seconds": found.bound_seconds, "received_bytes": found.received_bytes, "bound_bytes": found.bound_bytes,
    }  # fmt: skip
