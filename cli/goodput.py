"""Implements `hloom goodput`: the share of a machine that does useful work while parts of it fail."""

from __future__ import annotations

import argparse
import math

from ..cost.goodput.detours import MOST_NODES
from ..cost.goodput.pod import Pod
from ..report.goodput import GoodputQuestion
from ..report.progress import working
from .messages import answer


def goodput(args: argparse.Namespace) -> int:
    """Prints the table of slice sizes and availabilities, or JSON. Raises argparse.ArgumentTypeError for slices that do
    not fit.
    """
    pod = Pod(args.pod, args.hosts, args.chips)
    if args.need is not None and args.need > pod.cubes:
        raise argparse.ArgumentTypeError(f"--need {args.need}: the pod has {pod.cubes} cubes")
    mixed = [chips for chips, _ in args.mix or ()]
    for option, chips in (*(("--slices", chips) for chips in args.slices), *(("--mix", chips) for chips in mixed)):
        if chips % pod.chips or chips > pod.cubes * pod.chips:
            raise argparse.ArgumentTypeError(
                f"{option}: {chips} chips are not a number of cubes of {pod.chips} chips, up to {pod.cubes} of them"
            )
    if math.prod(args.torus or ()) > MOST_NODES:
        raise argparse.ArgumentTypeError(f"--torus: at most {MOST_NODES} nodes are looked at")
    step, state = _step_and_state(args) if args.program is not None else (None, args.state)
    question = GoodputQuestion(
        pod, args.slices, args.availability, args.need, args.events, args.repair, args.seed, args.state or state,
        args.write, args.restart, args.mix or (), args.torus,
    )  # fmt: skip
    with working("simulating failures and repairs"):
        found = question.record()
    return answer(args, lambda: found | {"step_seconds": step}, lambda: question.text(found, step))


def _step_and_state(args: argparse.Namespace) -> tuple[float, int]:
    """Returns the seconds of a step of the program on the machine, and the bytes of its state."""
    from ..cost.presets import parse_machine
    from ..driver.compile import compile  # and the passes, which other tables do without
    from ..driver.training.loop import state_layout
    from ..frontends import load

    program = compile(load(args.program), backend="reference", machine=parse_machine(args.machine, args.links))
    return program.forecast().seconds, state_layout(program.local).nbytes
