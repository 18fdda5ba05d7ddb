"""Implements `hloom reshard SHAPE FROM TO`: the plan between two shardings, and its certificate."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace

from .. import frontends
from ..cost.presets import parse_machine
from ..ir.diagnostics import fail
from ..ir.sharding.mesh import Mesh
from ..ir.sharding.sharding import Sharding
from ..passes.resharding.certificate import reshard
from ..report.times import times_text
from .exit_codes import EXIT_OK
from .messages import print_json
from .streams import say


def reshard_command(args: argparse.Namespace) -> int:
    """Prints moves, bytes received per device, the lower bound, and peak memory."""
    shape = frontends.parse_shape(args.shape)
    if not shape.is_array or shape.is_dynamic:
        fail(f"{shape} is not the shape of an array with fixed dimensions")
    source, target = (parse_one_sharding(text, args.mesh) for text in (args.source, args.target))
    mesh = Mesh(tuple(args.mesh.items())) if args.mesh else next((s.mesh for s in (source, target) if s.mesh), None)
    source, target = (s if s.mesh else replace(s, mesh=mesh) for s in (source, target))
    found = reshard(shape, source, target, args.memory, parse_machine(args.machine, args.links, mesh))
    if args.json:
        print_json(asdict(found))
        return EXIT_OK
    for move in found.moves or ("nothing to do",):
        say(f"  {move}")
    ratio = f"{found.ratio:.2f}" if found.bound_bytes else "-"
    say(f"{found.collectives} collectives; {found.received_bytes} bytes received per device, "
          f"lower bound {found.bound_bytes}, ratio {ratio}; peak memory {found.peak_bytes} bytes")
    say(times_text(found))
    return EXIT_OK


def parse_one_sharding(text: str, mesh: dict[str, int] | None) -> Sharding:
    """Parses a sharding in HLO text; with `--mesh` also just the dimensions, `[{'x'}, {}]`."""
    if text.lstrip().startswith("["):
        if mesh is None:
            fail(f"{text} names axes of a mesh", help="give it with --mesh x=2,y=4")
        text = f"{{{Mesh(tuple(mesh.items()))}, {text}}}"
    found = frontends.parse_sharding(text)
    if not isinstance(found, Sharding):
        fail(f"{text} is the sharding of a tuple")
    return found
