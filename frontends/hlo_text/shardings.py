"""Parses shardings and meshes: converts the syntax tree of the grammar to values, and checks them.

All errors of the text are found here, with their places: unknown axes, axes used twice, sub-axes that do not exist,
device lists of the wrong length or with a duplicate.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ...ir.sharding.digit import iota_digits, split
from ...ir.sharding.mesh import LARGEST_LIST, LARGEST_MESH, NOT_IN_NAMES, AxisRef, IotaOrder, Mesh
from ...ir.sharding.sharding import (
    AnySharding,
    DimSharding,
    ShardGroup,
    Sharding,
    ShardingKind,
    Spelling,
    TupleSharding,
)
from ...ir.sharding.sharding_text import from_tiles
from ...ir.strings import unescape
from .errors import TextError, did_you_mean
from .grammar import read
from .scan import blank_comments, split_list
from .shapes import ints

_TUPLE = re.compile(r"\{\s*\{")
_PLAIN = re.compile(r"\{[^{}\"']*+\}")
_PLAIN_TUPLE = re.compile(rf"\{{\s*+{_PLAIN.pattern}\s*+(?:,\s*+{_PLAIN.pattern}\s*+)*+\}}")
_KINDS = {kind.value: kind for kind in ShardingKind}


@lru_cache(maxsize=65536)
def parse_sharding(text: str) -> AnySharding:
    """Parses the value of a `sharding=` attribute, in any of HLO's spellings. Raises TextError."""
    elements = _elements(text)
    if elements:
        return TupleSharding(elements)
    tree = read("sharding", "sharding", text)
    if tree.data == "tuple_sharding":
        return TupleSharding(tuple(_single(child) for child in tree.children))
    return _single(tree.children[0])


def _elements(text: str) -> tuple[Sharding, ...]:
    """Returns the shardings of a tuple, equal texts read once: a training step's has thousands. None of them if the
    text is of no tuple, or wrong: read as a whole, it says where.
    """
    clean = blank_comments(text) if _TUPLE.match(text) else ""
    if not clean.endswith("}"):
        return ()
    try:
        if _PLAIN_TUPLE.fullmatch(clean):
            texts = _PLAIN.findall(clean)
        else:
            texts = [clean[start:end] for start, end in split_list(clean, 1, len(clean) - 1)]
        found = {one: parse_sharding(one) for one in set(texts) if not _TUPLE.match(one)}
    except TextError:
        return ()
    singles = {one: sharding for one, sharding in found.items() if isinstance(sharding, Sharding)}
    return tuple(singles[one] for one in texts) if singles.keys() >= set(texts) else ()


@lru_cache(maxsize=1024)
def parse_meshes(text: str) -> Mapping[str, Mesh]:
    """Parses `{mesh = #sdy.mesh<["data"=2, "model"=4]>, ..}` into meshes by name. Raises TextError."""
    found: dict[str, Mesh] = {}
    for entry in read("meshes", "xla.sdy.meshes", text).children:
        if entry is None:
            continue
        name = str(entry.children[0]).strip('"')
        if name in found:
            raise error_at(entry.children[0], f"mesh '{name}' is defined twice")
        found[name] = _mesh_body(entry.children[1], name)
    return found


def parse_shardy(text: str, meshes: Mapping[str, Mesh]) -> tuple[tuple[Sharding, ...], bool]:
    """Parses the shardings of an (unquoted) `xla.sdy.sharding`; also returns whether it is a per-value list. Raises
    TextError.
    """
    tree = read("shardy", "xla.sdy.sharding", text)
    found = tuple(_shardy_body(child, meshes) for child in tree.children if child is not None)
    return found, tree.data == "many_shardy"


def error_at(token: Any, message: str, help: str | None = None) -> TextError:
    return TextError(message, token.start_pos, token.end_pos, help)


def _number(token: Any, what: str, least: int = 0) -> int:
    value = int(token)
    if value < least or value > LARGEST_MESH:
        raise error_at(token, f"{what} must be between {least} and {LARGEST_MESH}, not {value}")
    return value


# -- device lists


def _single(tree: Any) -> Sharding:
    if tree.data == "maximal_mesh":
        device = _number(tree.children[0], "device_id")
        return Sharding(ShardingKind.MAXIMAL, device=device, spelling=Spelling.NAMED)
    if tree.data == "named_sharding":
        return _named(tree)
    parts: dict[str, Any] = {}
    for part in tree.children:
        name = "main" if part.data in ("kind", "maximal", "devices") else str(part.data)
        if name in parts:
            place = part.meta.start_pos if not part.meta.empty else tree.meta.start_pos
            raise TextError("sharding: this part is given twice", place)
        parts[name] = part
    main = parts.get("main")
    start, end = tree.meta.start_pos, tree.meta.end_pos
    if main is None:
        raise TextError("sharding: devices=[..], replicated, manual, maximal, .. expected", start, end)
    result = _main_part(main, parts, start, end)
    if "group" in parts:
        kind, number = parts["group"].children
        result = replace(result, group=ShardGroup(str(kind), _number(number, "shard group")))
    if "metadata" in parts:
        result = replace(result, metadata=_metadata(parts["metadata"].children[0]))
    return result


def _main_part(main: Any, parts: dict[str, Any], start: int, end: int) -> Sharding:
    for name, needs in (("device", "maximal"), ("last_replicated", "devices"), ("last_dims", "devices")):
        if name in parts and main.data != needs:
            what = "device=" if name == "device" else "last_tile_dim.."
            raise TextError(f"sharding: {what} without {needs}", start, end)
    if main.data == "kind":
        return Sharding(_KINDS[str(main.children[0])])
    if main.data == "maximal":
        if "device" not in parts:
            raise TextError("sharding: maximal needs device=N", start, end)
        return Sharding(ShardingKind.MAXIMAL, device=_number(parts["device"].children[0], "device"))
    subgroups: tuple[str, ...] = ()
    if "last_replicated" in parts:
        subgroups = ("replicated",)
    if "last_dims" in parts:
        if subgroups:
            raise TextError("sharding: last_tile_dim_replicate and last_tile_dims exclude each other", start, end)
        subgroups = tuple(str(k) for k in parts["last_dims"].children if k is not None)
    return _tiles(main.children[0], main.children[1], subgroups)


def _tiles(dims_token: Any, order_tree: Any, subgroups: tuple[str, ...]) -> Sharding:
    dims = ints(dims_token)
    if min(dims) < 1:
        raise error_at(dims_token, "sharding: tile dimensions must be positive")
    if len(dims) < len(subgroups):
        raise error_at(dims_token, f"sharding: {len(dims)} tile dimensions for {len(subgroups)} subgroup dimensions")
    count = math.prod(dims)
    if order_tree.data == "iota_order":
        order = iota_order(*order_tree.children)
        if math.prod(order.dims) != count:
            raise error_at(order_tree.children[0],
                         f"sharding: {count} tiles, but the list has {math.prod(order.dims)} devices")
        _check_regular(dims, order, dims_token)
        return from_tiles(dims, subgroups, order)
    token = order_tree.children[0]
    ids = ints(token)
    if len(ids) != count:
        raise error_at(token, f"sharding: {count} tiles, but the list has {len(ids)} devices")
    if count == 1:
        raise error_at(token, "sharding: a list of one device", "write {maximal device=N} or {replicated}")
    check_ids(ids, token)
    return from_tiles(dims, subgroups, ids)


def check_ids(ids: Sequence[int], token: Any) -> None:
    if min(ids, default=0) < 0 or max(ids, default=0) > LARGEST_MESH:
        raise error_at(token, "device ids must not be negative or beyond 32 bits")
    if len(set(ids)) != len(ids):
        seen: set[int] = set()
        twice = next(i for i in ids if i in seen or seen.add(i))
        raise error_at(token, f"device {twice} is listed twice")


def iota_order(dims_token: Any, perm_token: Any) -> IotaOrder:
    dims = ints(dims_token)
    if min(dims) < 1 or math.prod(dims) > LARGEST_MESH:
        raise error_at(dims_token, "sizes of a device list must be positive and their product fit 32 bits")
    perm = ints(perm_token) if perm_token is not None else tuple(range(len(dims)))
    if perm_token is None and len(dims) > 1:
        raise error_at(dims_token, f"T(..) expected after <=[..] with {len(dims)} dimensions")
    if sorted(perm) != list(range(len(dims))):
        raise error_at(perm_token, f"T(..) must be a permutation of 0 .. {len(dims) - 1}")
    return IotaOrder(dims, perm)


def _check_regular(sizes: Sequence[int], order: IotaOrder, token: Any) -> None:
    """Rejects irregular device lists, which must be expanded, for absurd numbers of devices."""
    if math.prod(sizes) > LARGEST_LIST and split(iota_digits(order.dims, order.perm), sizes) is None:
        raise error_at(
            token, f"a device order that does not follow the dimensions, for more than {LARGEST_LIST} devices"
        )


def _metadata(token: Any) -> str:
    return str(token)[len("metadata={") : -1]


# -- meshes and axes


def _quoted(token: Any) -> str:
    """Returns the name of an axis. Prints put it between quotes as it is, so it can have no escapes."""
    name = unescape(str(token)[1:-1])
    if not name or NOT_IN_NAMES.search(name):
        raise error_at(token, "the name of an axis is not empty, and has no quotes, backslashes and braces")
    return name


def _axes(trees: Iterable[Any]) -> tuple[tuple[str, int], ...]:
    axes: list[tuple[str, int]] = []
    for tree in trees:
        if tree is None:
            continue
        name, size = _quoted(tree.children[0]), _number(tree.children[1], "the size of an axis", 1)
        if any(name == n for n, _ in axes):
            raise error_at(tree.children[0], f"axis '{name}' is defined twice")
        axes.append((name, size))
        if math.prod(s for _, s in axes) > LARGEST_MESH:
            raise error_at(tree.children[1], "the mesh has more devices than fit 32 bits")
    return tuple(axes)


def mesh_of(tree: Any) -> Mesh:
    """Parses `mesh['x'=2,'y'=4], device_ids=..`."""
    *axis_trees, _, ids = tree.children
    axes = _axes(axis_trees)
    if ids is None:
        return Mesh(axes)
    size = math.prod(s for _, s in axes)
    if ids.data == "iota_ids":
        order = iota_order(*ids.children)
        if math.prod(order.dims) != size:
            raise error_at(ids.children[0], f"the mesh has {size} places, the list {math.prod(order.dims)} devices")
        _check_regular([s for _, s in axes], order, ids.children[0])
        trivial = order.perm == tuple(range(len(order.perm)))
        return Mesh(axes, None if trivial else order)
    return Mesh(axes, _ids(ids.children[0], size))


def _ids(token: Any, size: int) -> tuple[int, ...] | None:
    ids = ints(token)
    if len(ids) != size:
        raise error_at(token, f"the mesh has {size} places, the list {len(ids)} devices")
    check_ids(ids, token)
    if max(ids) >= size:
        raise error_at(token, f"the mesh has {size} places, the list device {max(ids)}")
    return None if ids == tuple(range(size)) else ids


def _mesh_body(tree: Any, symbol: str) -> Mesh:
    """Parses `<["x"=2], device_ids=[1, 0]>`; without axes and with one id it is a mesh of that single device."""
    *axis_trees, _, ids = tree.children
    axes = _axes(axis_trees)
    size = math.prod(s for _, s in axes)
    if ids is not None and not axes and len(ints(ids)) == 1:
        return Mesh((), (_number(ids, "device"),), symbol=symbol)
    return Mesh(axes, _ids(ids, size) if ids is not None else None, symbol=symbol)


def _ref(tree: Any, mesh: Mesh) -> AxisRef:
    name_token, pre_token, size_token = tree.children
    name = _quoted(name_token)
    names = [n for n, _ in mesh.axes]
    if name not in names and name.isascii() and name.isdigit() and int(name) < len(names):
        name = names[int(name)]
    if name not in names:
        known = ", ".join(f"'{n}'={s}" for n, s in mesh.axes)
        raise error_at(name_token, f"the mesh has no axis '{name}'", did_you_mean(name, names, f"its axes are {known}"))
    if pre_token is None:
        return AxisRef(name)
    total, pre, size = mesh.axis_size(name), int(pre_token), int(size_token)
    if pre < 1 or size < 2 or total % (pre * size) or size == total:
        raise TextError(f"axis '{name}' of size {total} has no part ({pre}){size}", name_token.start_pos,
                        size_token.end_pos, "in 'x':(pre)size the product pre * size must divide the size of the axis")
    ref = AxisRef(name, pre, size)
    if mesh.size > LARGEST_LIST and mesh.with_parts([ref]) != mesh:
        raise TextError(f"axis '{name}' cannot be split as ({pre}){size} in this device order, for more than "
                        f"{LARGEST_LIST} devices", name_token.start_pos, size_token.end_pos)
    return ref


def axis_refs(trees: Iterable[Any], mesh: Mesh, used: list[AxisRef]) -> tuple[AxisRef, ...]:
    """Parses the axes of one list. `used` collects the axes of the whole sharding, which must be distinct."""
    result: list[AxisRef] = []
    for tree in trees:
        if tree is None:
            continue
        ref = _ref(tree, mesh)
        if any(_overlap(ref, other) for other in used):
            token = tree.children[0]
            raise error_at(token, f"axis '{ref.name}' is used twice")
        used.append(ref)
        result.append(ref)
    return tuple(result)


def _overlap(a: AxisRef, b: AxisRef) -> bool:
    if a.name != b.name:
        return False
    if not a.size or not b.size:
        return True
    return a.pre < b.pre * b.size and b.pre < a.pre * a.size


def _dim(tree: Any, mesh: Mesh, used: list[AxisRef]) -> DimSharding:
    *entries, priority = tree.children
    entries = [e for e in entries if e is not None]
    is_open = bool(entries) and entries[-1].data == "open_mark"
    if is_open:
        entries.pop()
    for entry in entries:
        if entry.data == "open_mark":
            raise TextError("'?' must come last in a dimension", tree.meta.start_pos, tree.meta.end_pos)
    axes = axis_refs([e.children[0] for e in entries], mesh, used)
    return DimSharding(axes, is_open, int(priority[1:]) if priority is not None else None)


def _sets(trees: Iterable[Any], mesh: Mesh, used: list[AxisRef]) -> dict[str, tuple[AxisRef, ...]]:
    found: dict[str, tuple[AxisRef, ...]] = {}
    for tree in trees:
        word = str(tree.children[0])
        if word in found or word == "unknown":
            wrong = f"unexpected '{word}='" if word == "unknown" else f"{word}= is given twice"
            raise error_at(tree.children[0], wrong)
        found[word] = axis_refs(tree.children[1:], mesh, used)
    return found


def _named(tree: Any) -> Sharding:
    mesh_tree, placement, *sets, metadata = tree.children
    mesh = mesh_of(mesh_tree)
    used: list[AxisRef] = []
    dims: tuple[DimSharding, ...] = ()
    marked: dict[str, tuple[AxisRef, ...]] = {}
    if placement.data == "dims":
        for tree in placement.children:
            if tree is not None and tree.children[-1] is not None:
                raise error_at(tree.children[-1], "only Shardy's spelling has priorities")
        dims = tuple(_dim(d, mesh, used) for d in placement.children if d is not None)
    elif placement.children[0] in ("manual", "unreduced"):
        if not mesh.axes:
            raise error_at(placement.children[0], f"'{placement.children[0]}' along no axis: the mesh has none")
        used = [AxisRef(n) for n, _ in mesh.axes]
        marked[str(placement.children[0])] = tuple(used)
    elif placement.children[0] != "replicated":
        raise error_at(placement.children[0], f"unexpected '{placement.children[0]}' after a mesh")
    marked |= _sets(sets, mesh, used)
    return Sharding(ShardingKind.TILED, mesh.with_parts(used), dims, spelling=Spelling.NAMED,
                    replicated=marked.get("replicated", ()), unreduced=marked.get("unreduced", ()),
                    manual=marked.get("manual", ()), metadata=_metadata(metadata) if metadata is not None else None)


def _shardy_body(tree: Any, meshes: Mapping[str, Mesh]) -> Sharding:
    mesh_tree, *rest = tree.children
    if mesh_tree.data == "mesh_symbol":
        token = mesh_tree.children[0]
        symbol = str(token)[1:].strip('"')
        if symbol not in meshes:
            known = ", ".join(meshes) or "none (module attribute xla.sdy.meshes)"
            raise error_at(token, f"no mesh '{symbol}'", did_you_mean(symbol, meshes, f"known meshes: {known}"))
        mesh = meshes[symbol]
    else:
        mesh = _mesh_body(mesh_tree.children[0], "mesh")
    if not mesh.axes and isinstance(mesh.order, tuple):
        return Sharding(ShardingKind.MAXIMAL, device=mesh.order[0], spelling=Spelling.NAMED)
    used: list[AxisRef] = []
    dims = tuple(_dim(d, mesh, used) for d in rest if d is not None and d.data == "dim")
    sets = _sets([s for s in rest if s is not None and s.data == "axis_set"], mesh, used)
    return Sharding(ShardingKind.TILED, mesh.with_parts(used), dims, spelling=Spelling.NAMED,
                    manual=sets.get("manual", ()), replicated=sets.get("replicated", ()),
                    unreduced=sets.get("unreduced", ()))
