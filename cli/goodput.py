"""Implements `hloom goodput`: the share of a machine that does useful work while parts of it fail."""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict
from typing import Any

from ..cost.goodput.detours import MOST_NODES, Torus, detours
from ..cost.goodput.events import PodEvents, simulate_pod
from ..cost.goodput.pod import Pod, at_least, efficiency, needed_availability
from ..driver.training.cadence import MACHINE_DAYS, daly_interval
from .exit_codes import EXIT_OK
from .messages import print_json
from .streams import say, working

_CONFIDENCE = 0.95
_DAY = 86400.0


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
    step = _take_program(args) if args.program is not None else None
    events: dict[float, PodEvents] = {}
    if args.events is not None:
        with working("simulating failures and repairs"):
            events = {h: simulate_pod(pod, h, args.repair, args.events, args.seed) for h in args.availability}
    rows = [_row(args, pod, chips, host, events.get(host)) for chips in args.slices for host in args.availability]
    needed = [_needed(pod, args.need, host) for host in args.availability] if args.need is not None else []
    mixes = [_mixed(args, pod, host, events.get(host)) for host in args.availability] if args.mix else []
    torus = Torus(args.torus) if args.torus else None
    cuts = [detours(torus, n) for n, size in enumerate(torus.shape) if size > 2] if torus else []
    if args.json:
        print_json({"cubes": pod.cubes, "hosts": pod.hosts, "chips": pod.chips, "rows": rows, "needed": needed,
                    "mixes": mixes, "detours": [asdict(cut) for cut in cuts], "step_seconds": step})  # fmt: skip
        return EXIT_OK
    _show(args, pod, rows, needed, step)
    for row in mixes:
        in_time = f"; events {_pair(row['events_switched'], row['events_static'])}" if args.events is not None else ""
        say(f"the mix of jobs takes {_percent(row['switched'])} with optical switches if {row['availability']:.2%} of "
            f"hosts are up{in_time}")  # fmt: skip
    for cut in cuts:
        say(f"a link of axis {cut.axis} of a torus of {_shape(args.torus)} is missing: {cut.longer:.2%} of "
            f"pairs take up to {cut.most} hops more, an all-to-all keeps {cut.all_to_all:.0%} of its bandwidth, a sum "
            f"along the ring {cut.ring:.0%}")  # fmt: skip
    return EXIT_OK


def _take_program(args: argparse.Namespace) -> float:
    """Takes the bytes of a program's state for --state, and returns the seconds of a step on the machine."""
    from ..cost.presets import parse_machine
    from ..driver.compile import compile  # and the passes, which other tables do without
    from ..driver.training.loop import state_count
    from ..frontends import load
    from ..runtime.checkpoint.layout import StateLayout

    program = compile(load(args.program), backend="reference", machine=parse_machine(args.machine, args.links))
    arrays = StateLayout.of(program.local, state_count(program.local)).arrays
    args.state = args.state or sum(array.nbytes(tuple((0, n) for n in array.shape.dims)) for array in arrays)
    return program.forecast().seconds


def _mixed(args: argparse.Namespace, pod: Pod, host: float, events: PodEvents | None) -> dict[str, Any]:
    mix = [(chips // pod.chips, jobs) for chips, jobs in args.mix]
    found = {"availability": host, "switched": pod.switched_mix(mix, host)}
    if events is None:
        return found
    return found | {"events_switched": events.switched_mix(mix), "events_static": events.static_mix(mix)}


def _row(args: argparse.Namespace, pod: Pod, chips: int, host: float, events: PodEvents | None) -> dict[str, Any]:
    cubes = chips // pod.chips
    found: dict[str, Any] = {
        "slice": chips, "availability": host,
        "switched": pod.switched(cubes, host), "static": pod.static(cubes, host),
    }  # fmt: skip
    if events is not None:
        found |= {"events_switched": events.switched(cubes), "events_static": events.static(cubes)}
    if args.state is not None:
        hosts = cubes * pod.hosts
        between, write = MACHINE_DAYS * _DAY / hosts, args.state / (hosts * args.write)
        interval = daly_interval(write, between)
        worked = efficiency(interval, write, args.restart, between)
        found |= {"interval": interval, "worked": worked, "goodput": found["switched"] * worked}
    return found


def _needed(pod: Pod, need: int, host: float) -> dict[str, Any]:
    cube = pod.cube_availability(host)
    return {"need": need, "availability": host, "cube": cube, "chance": at_least(need, pod.cubes, cube)}


def _show(
    args: argparse.Namespace, pod: Pod, rows: list[dict[str, Any]], needed: list[dict[str, Any]],
    step: float | None,
) -> None:  # fmt: skip
    say(f"{pod.cubes} cubes of {pod.hosts} hosts and {pod.chips} chips; of all chips in slices, per cent: with optical "
        "switches / static")  # fmt: skip
    say("slice".rjust(7) + "".join(f"{h:.2%} of hosts up".rjust(24) for h in args.availability))
    for chips in args.slices:
        mine = [row for row in rows if row["slice"] == chips]
        say(str(chips).rjust(7) + "".join(_pair(r["switched"], r["static"]).rjust(24) for r in mine))
        if args.events is not None:
            say("events".rjust(7) + "".join(_pair(r["events_switched"], r["events_static"]).rjust(24) for r in mine))
        if args.state is not None:
            first = mine[0]  # the interval does not depend on availability
            steps = "" if step is None else f", or {first['interval'] / step:.0f} steps of {step * 1e3:.3g} ms"
            say(f"        a checkpoint each {first['interval']:.4g} s{steps}: {first['worked']:.2%} of a job's time is "
                f"kept; goodput {', '.join(_percent(r['goodput']) for r in mine)}")  # fmt: skip
    for row in needed:
        share, chance = f"{row['availability']:.2%}", f"{row['chance']:.2%}"
        say(f"{row['need']} of {pod.cubes} cubes are up with a chance of {chance} if {share} of hosts are")
    if needed:
        cube = needed_availability(args.need, pod.cubes, _CONFIDENCE)
        of_hosts = f"{cube ** (1 / pod.hosts):.3%}"
        say(f"for {_CONFIDENCE:.0%} cubes have to be up for {cube:.2%} of time, hosts for {of_hosts}")


def _shape(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))


def _pair(switched: float, static: float | None) -> str:
    return f"{_percent(switched)} / {'-' if static is None else _percent(static)}"


def _percent(share: float) -> str:
    return f"{share * 100:.1f}"
