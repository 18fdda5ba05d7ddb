"""Machine files: a `Cluster` as TOML, with the source of every number.

    name = "h100"

    [memory]
    size = { value = "80 GB", source = "data sheet" }
    bandwidth = { value = "3350 GB/s", source = "data sheet" }

    [work]                                           # multiply-adds per second by float type
    bf16 = { value = "494 T", source = "data sheet, half of the operations per second" }

    [[links]]                                        # from this stride of the device number on
    from = 1
    latency = "25 us"
    bandwidth = "368 GB/s"
    source = "fit"

`[memory]` also has `reserve`, the share that programs must leave free, and `host`, the bandwidth each way between a
device and its host; `xla = true` says that forecasts state the memory that XLA for CPUs allocates, not that of the
kernels that they time. `[compute]` has `launch`, the time of a kernel in addition to its bytes or work; `overlap`, the
speed of computation while a collective runs; `attention`, the share of the rate that a kernel for attention reaches;
`fuses = false` says that programs run op by op, `epilogues = true` that a product and the ops on elements after it are
one kernel, `prologues = true` that a product computes operands from narrower values as it reads them. `[products]` are
those of `cost.products`, `[native]` has the seconds of `cost.native_speed`, and `error` in `[forecast]` is the largest
of forecasts that were compared with steps. `[work]` may have `other`, for all other types. Links may have `step`,
`torus`, `shape`, `wrap`, `cores`, `crossed` and `rails = true` (`cost.links`). `[[collectives]]` are measured ones:
`kind`, `devices` along each level of links, `latency`, `bandwidth` (bytes that a device receives), `array` (seconds of
each that it combines after the first), `cold` (more seconds where caches hold nothing of its code), `source`.
`[engines]` name the engine of a kind, or of the links from a stride on; by `torus = true` each axis of a torus is one.
`like = "h100"` names a preset: what the file leaves out is as there, but for `[forecast]`, and for `[[collectives]]`
and `[engines]` if it has links of its own. Without it, what a file leaves out is as on the default machine.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, cast, get_args

from ..ir.diagnostics import Location, SourceFile, fail
from ..ir.sharding.mesh import LARGEST_MESH
from ..ir.types.element_type import ELEMENT_TYPES
from ..ir.user_files import read_text, read_toml
from .fits import Fit
from .formulas import Kind
from .links import Link, Links
from .machine import DEFAULT, Cluster
from .native_speed import FORMER, NATIVE, NativeSpeed
from .products import ProductSpeed
from .quantity import Quantity
from .toml_places import Places

SINGLE = {
    ("memory", "size"): ("memory_size", Quantity.BYTES),
    ("memory", "bandwidth"): ("memory_bytes", Quantity.BANDWIDTH),
    ("memory", "reserve"): ("reserve", Quantity.SHARE),
    ("memory", "host"): ("host_bytes", Quantity.BANDWIDTH),
    ("compute", "launch"): ("launch_seconds", Quantity.SECONDS),
    ("compute", "overlap"): ("overlap_share", Quantity.SHARE),
    ("compute", "attention"): ("attention_share", Quantity.SHARE),
    ("forecast", "error"): ("known_error", Quantity.SHARE),
    ("products", "share"): ("products.share", Quantity.SHARE),
    ("products", "rows"): ("products.rows", Quantity.COUNT),
    ("products", "columns"): ("products.columns", Quantity.COUNT),
    ("products", "depth"): ("products.depth", Quantity.COUNT),
    ("products", "units"): ("products.units", Quantity.COUNT),
    ("products", "least"): ("products.least", Quantity.COUNT),
    **{("native", name): (f"native_speed.{name}", Quantity.SECONDS) for name in NATIVE},
    ("native", "second_cache"): ("native_speed.second_cache", Quantity.BYTES),
}
"""The numbers of a machine by table and key: the field of `Cluster`, or of one of its fields, and what they count."""

FLAGS = {
    ("memory", "xla"): "has_xla_memory", ("compute", "fuses"): "fused", ("compute", "epilogues"): "has_epilogues",
    ("compute", "prologues"): "has_prologues",
}  # fmt: skip
"""The facts of a machine by table and key: the field of `Cluster`."""

TORUS = "torus"
"""The key of `[engines]` that makes each axis of a torus an engine."""

COUNTS = "wrap", "cores", "crossed"
"""The keys of `[[links]]` that count nodes, devices and links of a torus."""

ROWS: dict[str, dict[str, Quantity | None]] = {
    "links": {"from": None, "latency": Quantity.SECONDS, "bandwidth": Quantity.BANDWIDTH, "step": Quantity.SECONDS,
              "torus": None, "shape": None, "rails": None, **dict.fromkeys(COUNTS, Quantity.COUNT), "source": None},
    "collectives": {"kind": None, "devices": None, "latency": Quantity.SECONDS, "bandwidth": Quantity.BANDWIDTH,
                    "array": Quantity.SECONDS, "cold": Quantity.SECONDS, "source": None},
}  # fmt: skip
"""The keys of the tables with several rows; None for those that are no quantity."""

PRESET_FILES = {path.stem: path for path in sorted((Path(__file__).parent / "machines").glob("*.toml"))}
"""The machine files of the presets, by name."""

_MOST_AXES = 8  # of a torus
_TABLES = ("memory", "compute", "products", "native", "forecast", "work", *ROWS, "engines")


@dataclass(frozen=True, slots=True)
class MachineFile:
    """The contents of a machine file. `sources` are by `table.key`, or `table.number` for tables of several rows."""

    name: str
    machine: Cluster
    sources: Mapping[str, str]


def load_machine(path: str) -> MachineFile:
    """Reads a machine file. Raises CompileError with the place of the error."""
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        fail(f"cannot read the machine file {path}: {getattr(error, 'strerror', None) or error}",
             help="hloom machine NAME > FILE.toml writes one that can be changed")  # fmt: skip
    return read_machine(text, path)


def read_machine(text: str, path: str = "<text>") -> MachineFile:
    """Reads the text of a machine file; `path` names it in errors. Raises CompileError."""
    source = SourceFile(path, text)
    return _Reader(source, Places(text)).read(read_toml(source, help="docs/machines.md shows a machine file"))


Key = tuple[str, int, str]
"""A table, the number of its row, and a key in it; an empty key for the table."""


@dataclass(slots=True)
class _Reader:
    """Reads the tables of one file."""

    source: SourceFile
    places: Places
    sources: dict[str, str] = field(default_factory=dict[str, str])

    def read(self, found: Mapping[str, Any]) -> MachineFile:
        name = found.get("name", "")
        if not isinstance(name, str):
            self.fail(("", 0, "name"), "the name is not a string")
        for table in found:
            if table not in ("name", "like", *_TABLES):
                self.unknown(("" if table in self.places.top else table, 0, table), table, _TABLES)
        found = self.like(found)
        fields: dict[str, Any] = {}
        for (table, key), (target, quantity) in SINGLE.items():
            value = self.table(found, table).get(key)
            if value is not None:
                fields[target] = self.sourced(table, key, value, quantity)
        for table in dict.fromkeys(table for table, _ in SINGLE):
            for key in self.table(found, table):
                if (table, key) not in (*SINGLE, *FLAGS, *(("native", name) for name in FORMER)):
                    self.unknown((table, 0, key), key, [k for t, k in (*SINGLE, *FLAGS) if t == table])
        parts: dict[str, dict[str, Any]] = {"products": {}, "native_speed": {}}
        for target in [target for target in fields if "." in target]:
            table, key = target.split(".")
            parts[table][key] = fields.pop(target)
        fields["products"] = ProductSpeed(**parts["products"])
        speed = parts["native_speed"]
        missing = tuple(name for name in NATIVE if name not in speed) if speed else ()
        fields["native_speed"] = NativeSpeed(**speed, unmeasured=missing)
        for (table, key), own in FLAGS.items():
            fields[own] = self.flag((table, 0, key), self.table(found, table).get(key, getattr(DEFAULT, own)))
        self.work(self.table(found, "work"), fields)
        if rows := self.rows(found, "links"):
            fields["links"] = self.links(rows)
        fields["fits"] = tuple(self.fit(n, row) for n, row in enumerate(self.rows(found, "collectives")))
        engines = dict(self.table(found, "engines"))
        fields["torus_engines"] = self.flag(("engines", 0, TORUS), engines.pop(TORUS, False))
        fields["engines"] = tuple(self.engine(k, v) for k, v in engines.items())
        return MachineFile(name or Path(self.source.name).stem, Cluster(**fields), self.sources)

    def like(self, found: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the tables of a file, completed by those of the preset that it is like."""
        name = found.get("like")
        if name is None:
            return found
        path = PRESET_FILES.get(name) if isinstance(name, str) else None
        if path is None:
            self.unknown(("", 0, "like"), str(name), PRESET_FILES)
        base = self.like(read_toml(SourceFile(str(path), path.read_text(encoding="utf-8"))))
        dropped = {"forecast", "collectives", "engines"} if "links" in found else {"forecast"}
        tables = {key: base.get(key, {}) | self.table(found, key) for key in _TABLES if key not in (*ROWS, *dropped)}
        return {**{key: value for key, value in base.items() if key not in dropped}, **found, **tables}

    def table(self, found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        value = found.get(name, {})
        if not isinstance(value, dict):
            self.fail(("", 0, name), f"'{name}' is not a table", f"write [{name}] above its keys")
        return cast(dict[str, Any], value)

    def rows(self, found: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
        """Returns the rows of a table with several, whose keys are checked."""
        rows = found.get(name, [])
        if not isinstance(rows, list):
            self.fail((name, 0, ""), f"'{name}' is not a table with rows", f"write [[{name}]] above each row")
        for n, row in enumerate(cast(list[Mapping[str, Any]], rows)):
            for key in row:
                if key not in ROWS[name]:
                    self.unknown((name, n, key), key, ROWS[name])
            if not isinstance(row.get("source"), str):
                self.fail((name, n, ""), "this row has no source", 'write where its numbers come from: source = ".."')
            self.sources[f"{name}.{n}"] = row["source"]
        return cast(list[Mapping[str, Any]], rows)

    def sourced(self, table: str, key: str, value: Any, quantity: Quantity) -> float:
        """Returns a number that is given with its source."""
        place = table, 0, key
        wanted = f'write {key} = {{ value = "{quantity.example}", source = ".." }}'
        if not isinstance(value, dict) or set(cast(dict[str, Any], value)) != {"value", "source"}:
            self.fail(place, f"'{key}' has no value and source", wanted)
        given = cast(dict[str, Any], value)
        if not isinstance(given["source"], str) or not given["source"].strip():
            self.fail(place, f"the source of '{key}' is empty", "say where the number comes from")
        self.sources[f"{table}.{key}"] = given["source"]
        return self.number(place, given["value"], quantity)

    def number(self, place: Key, value: Any, quantity: Quantity) -> float:
        found = quantity.read(value)
        if found is None:
            self.fail(place, f"'{value}' is not {quantity.value}", f'write it as "{quantity.example}"')
        return found

    def work(self, rates: Mapping[str, Any], fields: dict[str, Any]) -> None:
        by_bits, by_integer_bits = dict[int, float](), dict[int, float]()
        for key, value in rates.items():
            rate = self.sourced("work", key, value, Quantity.RATE)
            element = ELEMENT_TYPES.get(key)
            if key == "other":
                fields["points"] = rate
            elif element is None or not (element.is_float or element.is_integer):
                self.fail(("work", 0, key), f"'{key}' is no type of floats or integers",
                          "write f8e4m3fn, bf16, f32, f64, s8 or other")  # fmt: skip
            else:
                (by_bits if element.is_float else by_integer_bits)[element.bits] = rate
        fields["by_bits"] = tuple(sorted(by_bits.items()))
        fields["by_integer_bits"] = tuple(sorted(by_integer_bits.items()))
        if by_bits and "points" not in fields:
            fields["points"] = by_bits[max(by_bits)]

    def links(self, rows: list[Mapping[str, Any]]) -> Links:
        levels: list[tuple[int, Link]] = []
        for n, row in enumerate(rows):
            first = row.get("from", 1 if not n else None)
            least = levels[-1][0] + 1 if n else 1
            if not isinstance(first, int) or not least <= first <= (LARGEST_MESH if n else 1):
                self.fail(("links", n, "from"), "'from' is no stride of the device number above those before",
                          "the first row begins with from = 1, each further row with a larger stride")  # fmt: skip
            torus = row.get("torus", 0)
            if not isinstance(torus, int) or not 0 <= torus <= _MOST_AXES:
                self.fail(("links", n, "torus"), f"'{torus}' is not a number of axes", "write 2 or 3, or leave it out")
            latency, bandwidth = (self.of_row("links", n, row, key) for key in ("latency", "bandwidth"))
            step = self.of_row("links", n, row, "step") if "step" in row else 0.0
            shape = cast(list[Any], row.get("shape", []) if isinstance(row.get("shape", []), list) else [0])
            if not all(isinstance(size, int) and 0 < size <= LARGEST_MESH for size in shape):
                self.fail(("links", n, "shape"), f"'{row['shape']}' are not the devices along each axis",
                          "write [8, 16, 16]")  # fmt: skip
            rails = self.flag(("links", n, "rails"), row.get("rails", False))
            counts = {key: int(self.of_row("links", n, row, key)) for key in COUNTS if key in row}
            link = Link(latency, bandwidth, step, torus, tuple(shape), **counts, rails=rails, places=())
            levels.append((first, link))
        return Links(tuple(levels))

    def of_row(self, table: str, n: int, row: Mapping[str, Any], key: str) -> float:
        quantity = ROWS[table][key]
        assert quantity is not None
        if key not in row:
            self.fail((table, n, ""), f"this row has no {key}", f'write {key} = "{quantity.example}"')
        return self.number((table, n, key), row[key], quantity)

    def fit(self, n: int, row: Mapping[str, Any]) -> Fit:
        kind, devices = row.get("kind"), row.get("devices")
        if kind not in get_args(Kind):
            self.fail(("collectives", n, "kind"), f"'{kind}' is not a kind of collectives", ", ".join(get_args(Kind)))
        sizes = cast(list[Any], devices) if isinstance(devices, list) else []
        if not sizes or not all(isinstance(k, int) and 0 < k <= LARGEST_MESH for k in sizes) or sizes[-1] < 2:
            self.fail(("collectives", n, "devices"),
                      f"'{devices}' are not devices of a group along each level of links",
                      "write [8] for groups of eight, [8, 4] for those of four nodes with eight each")  # fmt: skip
        latency, bandwidth = (self.of_row("collectives", n, row, key) for key in ("latency", "bandwidth"))
        more = {key: self.of_row("collectives", n, row, key) for key in ("array", "cold") if key in row}
        return Fit(cast(Kind, kind), tuple(sizes), latency, bandwidth, **more)

    def engine(self, key: str, name: Any) -> tuple[Kind | int, str]:
        place = "engines", 0, key
        if not isinstance(name, str) or not name or name == "compute":
            self.fail(place, f"'{name}' is not the name of an engine of collectives", 'write all-gather = "gathers"')
        if key.isdigit():
            return int(key), name
        if key not in get_args(Kind):
            self.unknown(place, key, get_args(Kind))
        return cast(Kind, key), name

    def flag(self, place: Key, value: Any) -> bool:
        if not isinstance(value, bool):
            self.fail(place, f"'{value}' is neither true nor false")
        return value

    def unknown(self, place: Key, name: str, known: Any) -> NoReturn:
        near = difflib.get_close_matches(name, list(known), 1)
        help = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
        self.fail(place, f"'{name}' is unknown here", help)

    def fail(self, place: Key, message: str, help: str | None = None) -> NoReturn:
        start, end = self.places.of(*place)
        fail(message, Location(self.source, start, end), help)
