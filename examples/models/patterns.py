"""What each kind of model must send, as the papers say it: every pattern raises AssertionError with the table of
collectives.

A pattern takes the program and its partitioned module. Bytes are those of the buffer that a collective works on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable

import hloom
import jax

from .layout import Tree
from .training import Program

Pattern = Callable[[Program, hloom.Module], None]


def sent(local: hloom.Module, kind: str, *axes: str, at_least: int = 0) -> list[hloom.Collective]:
    """Returns the collectives of a kind, over exactly these axes of the mesh if any are given, of so many bytes."""
    found = [c for c in hloom.collectives(local) if c.kind == kind and c.buffer_bytes >= at_least]
    return [c for c in found if not axes or set(axes) == set(axes_of(c))]


def axes_of(collective: hloom.Collective) -> list[str]:
    """Returns the axes of the mesh along which devices exchange data; none for pairs."""
    named = re.search(r"\((.*)\)", collective.groups)
    return named[1].split() if named else []


def expect(local: hloom.Module, name: str, found: Iterable[hloom.Collective], count: int) -> None:
    """Raises AssertionError unless so many collectives were found."""
    found = list(found)
    if len(found) != count:
        table = "\n".join(f"{c.kind:18} {c.buffer_bytes:12,} {c.count:4} {c.groups:20} {c.cause}" for c in found)
        raise AssertionError(f"{local.name}: {len(found)} {name}, {count} expected\n{table}")


def bytes_of(program: Program, letters: str, width: int = 2) -> int:
    """Returns the bytes of an activation on one device, divided as the table says."""
    whole = math.prod(program.sizes[letter] for letter in letters) * width
    spec = program.layout.table[letters]
    return whole // math.prod(program.layout.axes[axis] for axis in spec if isinstance(axis, str))


def leaves(tree: Tree) -> int:
    """Returns the number of weights in a tree of letters."""
    return len(jax.tree.leaves(tree))


def in_layers(found: Iterable[hloom.Collective], program: Program) -> list[hloom.Collective]:
    """Returns those that run once per layer, in the loops over layers forward and backward."""
    return [c for c in found if c.count == program.sizes["L"]]


def megatron(program: Program, local: hloom.Module) -> None:
    """Two all-reduces of activations forward and two backward per layer, and one of attention's again where layers are
    computed again; nothing else that is as large over `model`.
    """
    size = bytes_of(program, "BSM")
    reduces = in_layers(sent(local, "all-reduce", "model", at_least=size), program)
    expect(local, "all-reduces per layer", reduces, 4 + program.recomputed)
    for kind in ("all-gather", "reduce-scatter", "all-to-all"):
        expect(local, f"{kind} over model", sent(local, kind, "model", at_least=size), 0)


def sequence(program: Program, local: hloom.Module) -> None:
    """Each all-reduce of Megatron's is a reduce-scatter here, and an all-gather where the values are read: before the
    first products of a pair forward, and for gradients of results and weights backward.
    """
    size = bytes_of(program, "BSM")
    for kind, count in (("reduce-scatter", 4 + program.recomputed), ("all-gather", 6)):
        expect(local, f"{kind}s per layer", in_layers(sent(local, kind, "model", at_least=size), program), count)
    expect(local, "all-reduces", sent(local, "all-reduce", "model", at_least=size), 0)


def finalized(program: Program, local: hloom.Module) -> None:
    """Over `model` as sequence parallelism; over `data` one all-gather per weight of a product and pass, and one
    reduce-scatter per gradient.
    """
    sequence(program, local)
    weights = jax.tree.leaves(program.weights["layers"])
    products = [letters for letters in weights if len(letters) > 2 and "M" in letters]
    size = min(bytes_of(program, letters) for letters in products)
    gathers, scatters = (in_layers(sent(local, kind, "data", at_least=size), program)
                         for kind in ("all-gather", "reduce-scatter"))  # fmt: skip
    expect(local, "all-gathers of weights per layer", gathers, 2 * len(products))
    expect(local, "reduce-scatters of gradients per layer", scatters, len(products))


def fsdp(program: Program, local: hloom.Module) -> None:
    """Over `data`: one all-gather per weight and use, one reduce-scatter per gradient; only the loss is all-reduced.
    Weights of layers are used forward, and backward, where the layer is computed again. Gradients of norms may take a
    shorter way where several axes hold them alike.
    """
    layers = leaves(program.weights["layers"])
    expect(local, "all-gathers", sent(local, "all-gather", "data"), layers + leaves(program.weights))
    matrices = [letters for letters in jax.tree.leaves(program.weights) if letters not in ("M", "LM")]
    scatters = sent(local, "reduce-scatter", "data", at_least=4 * program.sizes["M"] + 1)
    expect(local, "reduce-scatters", scatters, len(matrices))
    expect(local, "all-reduces of gradients", sent(local, "all-reduce", "data", at_least=32), 0)
    if set(program.layout.axes) == {"data"}:
        hloom.assert_collectives(local, all_reduce=1, all_to_all=0, collective_permute=0)


def mixture(program: Program, local: hloom.Module) -> None:
    """Dispatch and combine are all-to-alls of the experts' rows, forward and backward; nothing is gathered."""
    again = 2 if program.recomputed else 0
    hloom.assert_collectives(local, all_to_all=4 + again, all_gather=0, reduce_scatter=0, collective_permute=0)
    rows = bytes_of(program, "EGCM")
    expect(local, "all-to-alls of rows", (c for c in sent(local, "all-to-all") if c.buffer_bytes == rows), 4 + again)


def staged(program: Program, local: hloom.Module) -> None:
    """Steps are collective-permutes of one micro-batch, of the state and of the stream, forward and backward; along
    `stage` nothing else is sent but sums of what all stages share.
    """
    sizes = program.sizes
    iterations = sizes["Z"] * sizes["W"] * sizes["T"] + sizes["T"] - 1
    permutes = sent(local, "collective-permute")
    expect(local, "collective-permutes", permutes, 4)
    state = bytes_of(program, "TBSM")
    wrong = [c for c in permutes if (c.count, c.buffer_bytes) != (iterations, state)]
    expect(local, f"collective-permutes other than {iterations} times {state} bytes", wrong, 0)
    for kind in ("all-gather", "reduce-scatter", "all-to-all"):
        expect(local, f"{kind} along stage", (c for c in sent(local, kind) if "stage" in axes_of(c)), 0)


def halos(program: Program, local: hloom.Module) -> None:
    """Every convolution with a window exchanges halos, forward and for the gradient of its input but for the first;
    nothing larger than the features before the classes is gathered.
    """
    permutes = [c for c in sent(local, "collective-permute") if c.cause.startswith("halo of convolution")]
    kernels = [letters for letters in jax.tree.leaves(program.weights) if program.sizes[letters[0]] in (3, 7)]
    windows = 2 * len([letters for letters in kernels if len(letters) > 3]) - 1
    if (found := len({c.cause for c in permutes})) < windows:
        raise AssertionError(f"{local.name}: {found} convolutions exchange halos, {windows} expected")
    batch, features = program.arguments[1].shape[0], max(program.sizes.values())
    for kind in ("all-gather", "reduce-scatter", "all-to-all"):
        expect(local, f"large {kind}", sent(local, kind, at_least=4 * batch * features + 1), 0)


def frames(program: Program, local: hloom.Module) -> None:
    """The pairs of products as in sequence parallelism, three per layer; convolutions exchange halos."""
    size = bytes_of(program, "BSM")
    pairs = in_layers(sent(local, "reduce-scatter", "model", at_least=size), program)
    expect(local, "reduce-scatters per layer", pairs, 6)
    expect(local, "all-reduces", sent(local, "all-reduce", "model", at_least=size), 0)
    permutes = in_layers(sent(local, "collective-permute"), program)
    expect(local, "convolutions that exchange halos", {c.cause: c for c in permutes}.values(), 3)


def cached(program: Program, local: hloom.Module) -> None:
    """Nothing as large as a device's part of a layer's cache is sent."""
    cache = bytes_of(program, "BSND")
    expect(local, "large collectives", (c for c in hloom.collectives(local) if c.buffer_bytes >= cache), 0)


def cached_by_heads(program: Program, local: hloom.Module) -> None:
    """Two all-reduces of one vector per word and layer; the cache stays where it is."""
    cached(program, local)
    vectors = [c for c in sent(local, "all-reduce", "model") if "dot" in c.cause]
    expect(local, "all-reduces per layer", vectors, 2)


def around(program: Program, local: hloom.Module) -> None:
    """Keys and values travel, and again with their gradients, which then go home; nothing is gathered."""
    hloom.assert_collectives(local, collective_permute=8, all_gather=0, reduce_scatter=0, all_to_all=0)
    steps = program.layout.axes["ring"] - 1
    expect(local, "steps of the ring", (c for c in sent(local, "collective-permute") if c.count == steps), 6)
    expect(local, "steps home", (c for c in sent(local, "collective-permute") if c.count == 1), 2)
