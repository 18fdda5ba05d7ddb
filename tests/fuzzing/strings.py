"""Short texts that Hloom reads besides programs, by kind; random shardings; command lines; and damage to them."""

from __future__ import annotations

import math
import random
import shlex
from collections.abc import Sequence

from fuzzing.mutators import ABSURD, SMALL, characters, cut, numbers, small_numbers, tokens
from support.command_line import EXAMPLES, ROOT

Axes = Sequence[tuple[str, int]]

STRINGS: dict[str, tuple[str, ...]] = {
    "sharding": (
        "{replicated}", "{maximal device=3}", "{manual}", "{devices=[2,4]<=[8]}", "{devices=[2,1,4]<=[2,4]T(1,0) "
        "last_tile_dim_replicate}", "{devices=[2,2]0,1,3,2}", "{devices=[1,2,2]<=[4] last_tile_dims={manual}}",
        "{{devices=[2]<=[2]}, {replicated}}", "{mesh['x'=2,'y'=4], [{'x'}, {'y', ?}]}",
        "{mesh['x'=4], [{'x':(1)2}], unreduced={'x':(2)2}}", "{mesh['x'=2], device_ids=(1,0), [{}], replicated={'x'}}",
        "{devices=[4]<=[4] shard_as 1}", "{unreduced}", "{}", "{maximal_mesh[device_id=1]}",
    ),
    "shape": (
        "f32[8,16]{1,0}", "f32[]", "(s32[], f32[2,<=3], token[])", "bf16[8,128]{1,0:T(8,128)(2,1)S(1)}", "()",
        "s4[7]{0:E(4)}", "f32[<=8]", "opaque[]", "c128[0,3]", "(f32[2], (pred[], u8[3]{0}))", "f32[2]{0:T(2)L(1)}",
    ),
    "groups": ("{{0,1},{2,3}}", "[2,4]<=[8]", "[4,2]<=[2,4]T(1,0)", "{}", "mesh['x'=2,'y'=4] {'y'}", "[1,1]<=[1]"),
    "pipeline": (
        "propagate,spmd-partition,cse,dce", "synchronous,call-inliner,propagate", "spmd-partition{windowed=100}",
        "sort-prefix", "slice-of-pad,index-batching,shardy-regions,propagate", "propagate{priority=false}",
        "reshaped-sums,propagate", "narrow-broadcasts,propagate",
    ),
    "links": ("1us/100GB", "1us/100GB;8:5us/25GB", "0.5ns/1B;y:5ms/25TB", "1s/1KB;2:1us/3MB;4:0us/1GB"),
    "mesh": ("x=2,y=4", "x=8", "data=2", "x=2,y=2,z=2", "y=1"),
    "setting": ("w*=,y", "x=x", "*=x,?", "w1=x:(1)2,y", "w*=x y,"),
    "strategy": (
        '[mesh]\nx = 2\ny = 4\n[shardings]\n"w*" = ",y"\nx = "x"\n', "[mesh]\nx = 8\n", '[shardings]\nx = "?"\n',
        '[shardings]\n"a" = "x:(1)2,y"\n',
    ),
    "rule": (
        "([i k], [k j]) -> [i j] reduction={k}", "([i j]) -> [(i j)] {i=8, j=4}", "([i 1], []) -> ([i], [i])",
        "([i]) -> [i] {i=8} permutation={i}", "([i j k]) -> [i] {i=8, j=16, k=32} reduction={j, k} monoid=maximum",
        "([i j]) -> [i j] need_replication={j}", "() -> [i]",
    ),
    "shardy_rule": (
        "#sdy.op_sharding_rule<([i, jk])->([i, j, k]) {i=8, j=4, k=4} reduction={} need_replication={i}, custom>",
        "#sdy.op_sharding_rule<([i, j], [j, k])->([i, k]) {i=8, j=16, k=16} reduction={j}>",
        "#sdy.op_sharding_rule<([i, z_1])->([i, z_1]) {i=8, z_1=16} blocked_propagation={i}>",
    ),
    "constant": (
        "f32[2] constant({1, -0.0})", "s4[3] constant({-8, 7, 0})", "pred[2,2] constant({{true,false},{1,0}})",
        "c64[2] constant({(1,2), (inf,-nan)})", "bf16[] constant(nan(0x1))", "(s32[], f32[1]) constant((1, {2}))",
        "u64[] constant(18446744073709551615)", "f8e4m3fn[2]{0} constant({448, 0x1p-3})", "f32[0] constant({})",
    ),
}  # fmt: skip

MESHES: tuple[Axes, ...] = (
    (("x", 1),), (("x", 2),), (("x", 3),), (("x", 4),), (("x", 2), ("y", 2)), (("x", 5),), (("x", 3), ("y", 2)),
    (("x", 7),), (("x", 8),), (("x", 4), ("y", 2)), (("x", 2), ("y", 4)), (("x", 2), ("y", 2), ("z", 2)),
)  # fmt: skip


def sharding_text(rng: random.Random, mesh: Axes, rank: int) -> str:
    """A sharding of an array over a mesh in one of the spellings, the devices sometimes in another order."""
    if rng.random() < 0.06:
        return rng.choice(("{replicated}", "{manual}", "{unreduced}", "{maximal device=0}", "{maximal device=1}"))
    return _device_list(rng, mesh, rank) if rng.random() < 0.3 else _named(rng, mesh, rank)


def _named(rng: random.Random, mesh: Axes, rank: int) -> str:
    refs: list[str] = []
    for name, size in mesh:
        halves = size % 2 == 0 and size > 2 and rng.random() < 0.3
        refs += [f"'{name}':(1)2", f"'{name}':(2){size // 2}"] if halves else [f"'{name}'"]
    rng.shuffle(refs)
    dims: list[list[str]] = [[] for _ in range(rank)]
    sets: dict[str, list[str]] = {"replicated": [], "unreduced": [], "manual": []}
    for ref in refs:
        if rank and rng.random() < 0.7:
            rng.choice(dims).append(ref)
        elif rng.random() < 0.3:
            sets[rng.choice(list(sets))].append(ref)
    entries = ", ".join("{" + ",".join(d + ["?"] * (rng.random() < 0.15)) + "}" for d in dims)
    axes = ",".join(f"'{name}'={size}" for name, size in mesh)
    rest = "".join(f", {key}={{{','.join(found)}}}" for key, found in sets.items() if found)
    return f"{{mesh[{axes}]{_order(rng, mesh)}, [{entries}]{rest}}}"


def _order(rng: random.Random, mesh: Axes) -> str:
    if rng.random() > 0.1:
        return ""
    devices = list(range(math.prod(size for _, size in mesh)))
    rng.shuffle(devices)
    return f", device_ids=({','.join(map(str, devices))})"


def _device_list(rng: random.Random, mesh: Axes, rank: int) -> str:
    dims = [1] * rank
    rest = 1
    for _, size in mesh:
        place = rng.randint(-1, rank - 1)
        if place < 0:
            rest *= size
        else:
            dims[place] *= size
    tail = ""
    if rest > 1 or not dims:
        dims.append(rest)
        kind = rng.choice(("replicated", "replicated", "manual", "unreduced"))
        tail = " last_tile_dim_replicate" if rng.random() < 0.5 else f" last_tile_dims={{{kind}}}"
    devices = list(range(math.prod(size for _, size in mesh)))
    if rng.random() < 0.2:
        rng.shuffle(devices)
        return f"{{devices=[{','.join(map(str, dims))}]{','.join(map(str, devices))}{tail}}}"
    return f"{{devices=[{','.join(map(str, dims))}]<=[{len(devices)}]{tail}}}"


def string(rng: random.Random) -> str:
    """The kind of a string, a space, and a damaged string of that kind."""
    kind = rng.choice(list(STRINGS))
    text = sharding_text(rng, rng.choice(MESHES), rng.randrange(4)) if kind == "sharding" and rng.random() < 0.5 else ""
    return f"{kind} {_damaged(rng, text or rng.choice(STRINGS[kind]), STRINGS[kind])}"


def _damaged(rng: random.Random, text: str, others: Sequence[str]) -> str:
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        mutator = rng.choice((cut, characters, characters, numbers, small_numbers, tokens, tokens))
        text = mutator(rng, text) if text else rng.choice(ABSURD)
        if rng.random() < 0.1:
            other = rng.choice(others)
            text = text[: rng.randrange(len(text) + 1)] + other[rng.randrange(len(other) + 1) :]
    return text


_PROGRAMS = tuple(str(EXAMPLES.relative_to(ROOT) / f"{name}.hlo") for name in ("mlp_named", "mlp_train"))
# What options take: the kind of a string, or values. Those that start processes or write files are left out.
_VALUES: dict[str, tuple[str, ...]] = {
    "--devices": SMALL, "--mesh": STRINGS["mesh"], "--set": STRINGS["setting"], "--werror": ("all", "gather", "x"),
    "--passes": STRINGS["pipeline"], "--dump-after": ("all", "propagate", "dce,cse"), "--form": ("manual", "replica"),
    "--without": ("w1", "x", "nothing"), "--memory": SMALL, "--links": STRINGS["links"], "--inst": ("dot.1", "w1", "x"),
    "--computation": ("main", "f"), "--depth": SMALL, "--seed": SMALL, "--inputs": ("random", "zeros", "nowhere.npz"),
    "--strategy": ("nowhere.toml",), "--json": (), "--text": (), "--time": (), "--check": (),
}  # fmt: skip
_COMMANDS: dict[str, tuple[int, tuple[str, ...]]] = {  # programs, options
    "run": (1, ("--devices", "--mesh", "--set", "--check", "--inputs", "--seed", "--werror")),
    "eval": (1, ("--inputs", "--seed")),
    "partition": (1, ("--devices", "--mesh", "--set", "--form", "--werror", "--strategy")),
    "opt": (1, ("--passes", "--devices", "--dump-after", "--time", "--mesh")),
    "comm": (1, ("--json", "--devices", "--mesh")),
    "memory": (1, ("--json", "--devices", "--mesh")),
    "shard": (1, ("--json", "--text", "--devices", "--mesh", "--set")),
    "explain": (1, ("--without", "--json", "--devices", "--set")),
    "rules": (1, ()),
    "show": (1, ("--computation",)),
    "isolate": (1, ("--inst", "--computation", "--depth")),
    "diff": (2, ()),
    "verify": (1, ()),
    "picture": (0, ("--mesh",)),
    "reshard": (0, ("--mesh", "--memory", "--links")),
}


def command(rng: random.Random) -> str:
    """A command line, as a shell would take it."""
    name = rng.choice(list(_COMMANDS))
    files, options = _COMMANDS[name]
    words = [name, *(rng.choice((*_PROGRAMS, *_PROGRAMS, *_PROGRAMS, "-", "nowhere.hlo")) for _ in range(files))]
    if name in ("picture", "reshard"):
        mesh = rng.choice(MESHES)
        rank = rng.randint(1, 3)
        words.append(f"f32[{','.join(rng.choice(('8', '16', '5', '1')) for _ in range(rank))}]")
        words += [sharding_text(rng, mesh, rank) for _ in range(1 if name == "picture" else 2)]
    if name == "explain":
        words.append(rng.choice(("w1", "x", "dot.1", "nothing", "")))
    for option in rng.sample(options, rng.randint(0, len(options))) + (["--passes"] if name == "opt" else []):
        words += [option, rng.choice(_VALUES[option])] if _VALUES[option] else [option]
    for _ in range(rng.choice((0, 0, 1, 2))):
        place = rng.randrange(len(words))
        # Options stay as they are: a damaged one may abbreviate one that writes files.
        if not words[place].startswith("--"):
            words[place] = _damaged(rng, words[place], words).lstrip("/-").replace("..", "").replace("\0", "")
    return shlex.join(words)
