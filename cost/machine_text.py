"""Writes machine files (`cost.machine_file`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from operator import attrgetter

from .links import Link
from .machine import DEFAULT, Cluster
from .machine_file import COUNTS, FLAGS, ROWS, SINGLE, TORUS, MachineFile
from .quantity import Quantity

_FLOATS = {8: "f8e4m3fn", 16: "bf16", 32: "f32", 64: "f64"}
_LINK = Link()
_ASSUMED = "as given"


def machine_text(file: MachineFile) -> str:
    """Returns the text of a machine file. Numbers that are those of the default machine are left out, but not measured
    ones of native code.
    """
    return "\n".join([f"name = {json.dumps(file.name)}", *_tables(file.machine, file.sources)]) + "\n"


def _tables(machine: Cluster, sources: Mapping[str, str]) -> Iterator[str]:
    def sourced(table: str, key: str, value: float, quantity: Quantity) -> str:
        text = f"{value:.6g}" if quantity in (Quantity.SHARE, Quantity.COUNT) else json.dumps(quantity.text(value))
        return f"{key} = {{ value = {text}, source = {json.dumps(sources.get(f'{table}.{key}', _ASSUMED))} }}"

    for table in dict.fromkeys(table for table, _ in SINGLE):
        lines = [
            sourced(table, key, attrgetter(name)(machine), quantity)
            for (own, key), (name, quantity) in SINGLE.items()
            if own == table and _is_told(machine, table, key, name)
        ]  # fmt: skip
        lines += [f"{key} = {json.dumps(value)}" for (own, key), name in FLAGS.items()
                  if own == table and (value := getattr(machine, name)) != getattr(DEFAULT, name)]  # fmt: skip
        yield from ["", f"[{table}]", *lines] if lines else []
    yield from ["", "[work]  # multiply-adds per second"]
    yield from (sourced("work", _FLOATS[bits], rate, Quantity.RATE) for bits, rate in machine.by_bits)
    yield from (sourced("work", f"s{bits}", rate, Quantity.RATE) for bits, rate in machine.by_integer_bits)
    if not machine.by_bits or machine.points != machine.by_bits[-1][1]:
        yield sourced("work", "other", machine.points, Quantity.RATE)
    for n, (start, link) in enumerate(machine.links.levels):
        extra = {"step": link.step, "torus": link.torus, "shape": list(link.shape)}
        extra |= {key: value for key in (*COUNTS, "rails") if (value := getattr(link, key)) != getattr(_LINK, key)}
        row = {"from": start, "latency": link.latency, "bandwidth": link.bandwidth,
               **{key: value for key, value in extra.items() if value}}  # fmt: skip
        yield from _row("links", row, sources.get(f"links.{n}", _ASSUMED))
    for n, fit in enumerate(machine.fits):
        row = {"kind": fit.kind, "devices": list(fit.devices), "latency": fit.latency, "bandwidth": fit.bandwidth}
        row |= {key: value for key, value in (("array", fit.array), ("cold", fit.cold)) if value}
        yield from _row("collectives", row, sources.get(f"collectives.{n}", _ASSUMED))
    if machine.engines or machine.torus_engines:
        named = (f"{key} = {json.dumps(name)}" for key, name in machine.engines)
        yield from ["", "[engines]", *([f"{TORUS} = true"] if machine.torus_engines else []), *named]


def _is_told(machine: Cluster, table: str, key: str, name: str) -> bool:
    """Whether a file has this number of a machine."""
    if table == "native" and machine.native.is_known:
        return key not in machine.native.unmeasured
    return attrgetter(name)(machine) != attrgetter(name)(DEFAULT)


def _row(table: str, row: Mapping[str, object], source: str) -> Iterator[str]:
    yield from ["", f"[[{table}]]"]
    for key, value in row.items():
        quantity = ROWS[table][key]
        known = quantity.text(value) if quantity is not None and isinstance(value, float) else value
        yield f"{key} = {json.dumps(known)}"
    yield f"source = {json.dumps(source)}"
