"""Converts shardings, meshes and replica groups between messages and HLO text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import lru_cache

from ...ir.sharding.mesh import NOT_IN_NAMES
from ...ir.sharding.sharding import AnySharding, TupleSharding
from .metadata import metadata_record, metadata_text
from .schema import TABLES, new
from .shapes import DEPTH_LIMIT
from .wire import ProtoError, Record, decode

_REPLICATED, _MAXIMAL, _TUPLE, _TILED, _MANUAL, _UNKNOWN, _UNREDUCED = range(7)
_WORDS = {_REPLICATED: "replicated", _MANUAL: "manual", _UNKNOWN: "unknown", _UNREDUCED: "unreduced",
          _MAXIMAL: "maximal"}  # fmt: skip
_NUMBERS = {word: number for number, word in _WORDS.items()}


def joined(numbers: Iterable[int]) -> str:
    """Returns `1,2,3`."""
    return ",".join(map(str, numbers))


def numbers(text: str) -> list[int]:
    """Parses the numbers of a list without its brackets."""
    return [int(n) for n in text.split(",") if n.strip()]


@lru_cache(maxsize=65536)
def sharding_text(data: bytes, depth: int = 0) -> str:
    """Returns an OpSharding as text. Raises ProtoError."""
    if depth > DEPTH_LIMIT:
        raise ProtoError(f"shardings nested deeper than {DEPTH_LIMIT} levels")
    record = decode(TABLES, "OpSharding", data)
    if record.int("type") == _TUPLE:
        return "{" + ", ".join(sharding_text(part, depth + 1) for part in record.all("tuple_shardings")) + "}"
    if "named_sharding" in record.values:
        return _named_text(record.sub("named_sharding"))
    text = _tiled_text(record)
    if record.int("is_shard_group"):
        word = "shard_like" if record.int("shard_group_type") else "shard_as"
        text += f" {word} {record.int('shard_group_id')}"
    return "{" + text + _metadata_tail(record, " ", nested_single=False) + "}"


def _tiled_text(record: Record) -> str:
    kind = record.int("type")
    devices = record.ints("tile_assignment_devices")
    if kind == _MAXIMAL:
        if len(devices) != 1:
            raise ProtoError(f"a sharding on one device names {len(devices)}")
        return f"maximal device={devices[0]}"
    if kind != _TILED:
        if kind not in _WORDS:
            raise ProtoError(f"sharding of type {kind}")
        return _WORDS[kind]
    shape = record.ints("iota_reshape_dims")
    if len(devices) == 1 or (shape and math.prod(shape) == 1):
        return "replicated"  # XLA reads a tiling over one device like this, whatever its subgroups
    ids = joined(devices)
    if not devices:
        ids = f"<=[{joined(shape)}]"
        if len(record.ints("iota_transpose_perm")) > 1:
            ids += f"T({joined(record.ints('iota_transpose_perm'))})"
    text = f"devices=[{joined(record.ints('tile_assignment_dimensions'))}]{ids}"
    kinds = record.ints("last_tile_dims")
    if kinds:
        return text + " last_tile_dims={" + ", ".join(_WORDS.get(k, "?") for k in kinds) + "}"
    return text + (" last_tile_dim_replicate" if record.int("replicate_on_last_tile_dim") else "")


def _metadata_tail(record: Record, lead: str, nested_single: bool) -> str:
    parts = [metadata_text(data) for data in record.all("metadata")]
    if not parts:
        return ""
    if len(parts) == 1 and not nested_single:
        return f"{lead}metadata={{{parts[0]}}}"
    return f"{lead}metadata={{" + ", ".join(f"{{{p}}}" for p in parts) + "}"


def _mesh_text(mesh: Record) -> str:
    text = "mesh[" + ",".join(f"'{a.str('name')}'={a.int('size')}" for a in mesh.subs("axes")) + "]"
    if mesh.ints("device_ids"):
        return f"{text}, device_ids=({joined(mesh.ints('device_ids'))})"
    if "iota_transform" in mesh.values:
        iota = mesh.sub("iota_transform")
        return f"{text}, device_ids=([{joined(iota.ints('reshape_dims'))}]T({joined(iota.ints('transpose_perm'))}))"
    return text


def _axes(refs: Iterable[Record], names: list[str]) -> list[str]:
    found: list[str] = []
    for ref in refs:
        index = ref.int("mesh_axis_index")
        if not 0 <= index < len(names):
            raise ProtoError(f"a sharding names axis {index} of {len(names)}")
        sub = ref.sub("sub_axis_info")
        tail = f":({sub.int('pre_size')}){sub.int('size')}" if "sub_axis_info" in ref.values else ""
        found.append(f"'{names[index]}'{tail}")
    return found


def _names(mesh: Record) -> list[str]:
    found = [axis.str("name") for axis in mesh.subs("axes")]
    for name in found:
        if not name or NOT_IN_NAMES.search(name):
            raise ProtoError(f"a mesh has an axis {name!r}")
    return found


def _named_text(record: Record) -> str:
    mesh = record.sub("mesh")
    names = _names(mesh)
    if not names and len(mesh.ints("device_ids")) == 1:
        return f"{{maximal_mesh[device_id={mesh.ints('device_ids')[0]}]}}"
    dims = [_axes(d.subs("axes"), names) + ([] if d.int("is_closed") else ["?"]) for d in record.subs("dim_shardings")]
    parts = [_mesh_text(mesh), "[" + ", ".join("{" + ", ".join(d) + "}" for d in dims) + "]"]
    for word in ("replicated", "unreduced", "manual"):
        refs = _axes(record.subs(f"{word}_axes"), names)
        if refs:
            parts.append(f"{word}={{{','.join(refs)}}}")
    if not names:
        parts = [parts[0], "replicated"]
    return "{" + ", ".join(parts) + _metadata_tail(record, ", ", nested_single=True) + "}"


@lru_cache(maxsize=65536)
def sharding_record(sharding: AnySharding) -> Record:
    """Returns a sharding as OpSharding. Callers must not change the record, which is shared."""
    if isinstance(sharding, TupleSharding):
        record = new("OpSharding")
        record.set("type", _TUPLE)
        record.values["tuple_shardings"] = [sharding_record(part) for part in sharding.elements]
        return record
    return single_record(str(sharding))


_DEVICES = re.compile(r"devices=\[([\d,]*)\](?:<=\[([\d,]*)\](?:T\(([\d,]*)\))?|([\d,]+))")
_LAST_DIMS = re.compile(r"last_tile_dims=\{([a-z, ]*)\}")
_GROUP = re.compile(r"shard_(as|like) (\d+)")
_MAXIMAL_DEVICE = re.compile(r"device=(\d+)")
_METADATA = re.compile(r"[ ,]\s*metadata=(\{.*\})\}\Z", re.DOTALL)


def single_record(text: str) -> Record:
    """Parses a single (non-tuple) sharding in the text of Hloom's printer."""
    record = new("OpSharding")
    metadata = _METADATA.search(text)
    if metadata is not None:
        text = text[: metadata.start()] + "}"
    if text.startswith(("{mesh[", "{maximal_mesh[")):
        record = _named_record(record, text)
        _add_metadata(record.sub("named_sharding"), metadata)
        return record
    _add_metadata(record, metadata)
    group = _GROUP.search(text)
    if group is not None:
        record.set("is_shard_group", True)
        record.set("shard_group_id", int(group[2]))
        record.set("shard_group_type", int(group[1] == "like"))
    devices = _DEVICES.search(text)
    if devices is None:
        word = text[1:-1].split()[0]
        record.set("type", _NUMBERS[word])
        if word == "maximal":
            device = _MAXIMAL_DEVICE.search(text)
            record.values["tile_assignment_devices"] = [int(device[1]) if device else 0]
        return record
    _set_tiles(record, devices, text)
    return record


def _set_tiles(record: Record, devices: re.Match[str], text: str) -> None:
    if math.prod(numbers(devices[1])) == 1:
        return  # read as replicated
    record.set("type", _TILED)
    record.set("tile_assignment_dimensions", numbers(devices[1]))
    if devices[4]:
        record.set("tile_assignment_devices", numbers(devices[4]))
    else:
        record.set("iota_reshape_dims", numbers(devices[2]))
        record.set("iota_transpose_perm", numbers(devices[3]) if devices[3] else [0])
    last = _LAST_DIMS.search(text)
    if last is not None:
        record.set("last_tile_dims", [_NUMBERS[word.strip()] for word in last[1].split(",")])
    record.set("replicate_on_last_tile_dim", "last_tile_dim_replicate" in text)


def _add_metadata(record: Record, match: re.Match[str] | None) -> None:
    if match is None:
        return
    inner = match[1][1:-1].strip()
    parts = re.findall(r"\{((?:[^{}\"]|\"(?:[^\"\\]|\\.)*\"|\{[^{}]*\})*)\}", inner) if inner[:1] == "{" else [inner]
    record.values["metadata"] = [metadata_record(part, None) for part in parts]


_MESH = re.compile(r"mesh\[([^\]]*)\](?:,\s*device_ids=\((?:\[([\d,]*)\](?:T\(([\d,]*)\))?|([\d,\s]*))\))?")
_AXIS = re.compile(r"'((?:[^'\\]|\\.)*)'=(\d+)")
_REF = re.compile(r"'((?:[^'\\]|\\.)*)'(?::\((\d+)\)(\d+))?")
_DIM = re.compile(r"\{([^{}]*)\}")
_LIST = re.compile(r"(replicated|unreduced|manual)=\{([^{}]*)\}")


def _mesh_record(mesh: Record, match: re.Match[str]) -> list[str]:
    names: list[str] = []
    for name, size in _AXIS.findall(match[1]):
        axis = mesh.new("axes")
        axis.set("name", name)
        axis.set("size", int(size))
        names.append(name)
    if match[2] is not None:
        iota = mesh.new("iota_transform")
        iota.set("reshape_dims", numbers(match[2]))
        iota.set("transpose_perm", numbers(match[3]) if match[3] else [0])
    elif match[4] is not None:
        mesh.set("device_ids", numbers(match[4]))
    return names


def _add_refs(record: Record, field: str, text: str, names: list[str]) -> None:
    for name, pre, size in _REF.findall(text):
        ref = record.new(field)
        ref.set("mesh_axis_index", names.index(name))
        if size:
            sub = ref.new("sub_axis_info")
            sub.set("pre_size", int(pre))
            sub.set("size", int(size))


def _named_record(record: Record, text: str) -> Record:
    named = record.new("named_sharding")
    mesh = named.new("mesh")
    maximal = re.fullmatch(r"\{maximal_mesh\[device_id=(\d+)\]\}", text)
    if maximal is not None:
        mesh.values["device_ids"] = [int(maximal[1])]
        return record
    match = _MESH.match(text, 1)
    if match is None:
        raise ProtoError(f"sharding {text} has no serialized form")
    names = _mesh_record(mesh, match)
    rest = text[match.end() : -1].lstrip(", ")
    if rest.startswith("["):
        dims, _, rest = rest[1:].partition("]")
        for dim in _DIM.findall(dims):
            made = named.new("dim_shardings")
            _add_refs(made, "axes", dim, names)
            made.set("is_closed", "?" not in dim)
    elif rest in ("manual", "unreduced"):
        _add_refs(named, f"{rest}_axes", ",".join(f"'{n}'" for n in names), names)
    for word, refs in _LIST.findall(rest):
        _add_refs(named, f"{word}_axes", refs, names)
    return record


# -- replica groups


def groups_text(record: Record) -> str | None:
    """Returns the replica groups of an instruction as text, from any of their serialized forms."""
    if "mesh_axes_replica_group_list" in record.values:
        found = record.sub("mesh_axes_replica_group_list")
        mesh = found.sub("mesh")
        return f"{_mesh_text(mesh)} {{{','.join(_axes(found.subs('axes'), _names(mesh)))}}}"
    if "iota_collective_device_list" in record.values:
        return _iota_text(record.sub("iota_collective_device_list"))
    holder = record.sub("collective_device_list") if "collective_device_list" in record.values else record
    if "iota_replica_group_list" in holder.values:  # the field in modules of 2024 and 2025
        return _iota_text(holder.sub("iota_replica_group_list"))
    if holder is not record and holder.unknown:
        raise ProtoError("replica groups in a form that is not known")
    groups = [group.ints("replica_ids") for group in holder.subs("replica_groups")]
    if not groups and holder is record:
        return None
    return "{" + ",".join(f"{{{joined(g)}}}" for g in groups) + "}"


def _iota_text(iota: Record) -> str:
    text = f"[{iota.int('num_replica_groups')},{iota.int('num_devices_per_group')}]"
    text += f"<=[{joined(iota.ints('iota_reshape_dims'))}]"
    perm = iota.ints("iota_transpose_perm")
    return text + (f"T({joined(perm)})" if len(perm) > 1 else "")


_IOTA = re.compile(r"\[(\d+),(\d+)\]<=\[([\d,]*)\](?:T\(([\d,]*)\))?")


def set_groups(record: Record, text: str) -> None:
    """Writes replica groups into an instruction."""
    iota = _IOTA.fullmatch(text)
    mesh = _MESH.match(text)
    if iota is not None:
        made = record.new("iota_collective_device_list")
        made.set("num_replica_groups", int(iota[1]))
        made.set("num_devices_per_group", int(iota[2]))
        made.set("iota_reshape_dims", numbers(iota[3]))
        made.set("iota_transpose_perm", numbers(iota[4]) if iota[4] else [0])
    elif mesh is not None:
        made = record.new("mesh_axes_replica_group_list")
        names = _mesh_record(made.new("mesh"), mesh)
        _add_refs(made, "axes", text[mesh.end() :], names)
    else:
        made = record.new("collective_device_list")
        for group in _DIM.findall(text[1:-1]):
            made.new("replica_groups").set("replica_ids", numbers(group))
