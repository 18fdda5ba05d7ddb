"""The goodput of a pod as JSON and for people: by slice size and availability of hosts, of a job with checkpoints, of a
mix of jobs, and of a torus without a link.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..cost.goodput.detours import Torus, detours
from ..cost.goodput.events import PodEvents, simulate_pod
from ..cost.goodput.pod import DAY, MACHINE_DAYS, Pod, at_least, daly_interval, efficiency, needed_availability
from ..cost.sizes import timed

Record = dict[str, Any]
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class GoodputQuestion:
    """A question about a pod: the goodput of `slices` (chips) where hosts are up for the shares `availability` of time.

    Where they are given it also asks for the chance that `need` cubes are up, a simulation over `days` with `repair`
    hours to repair a host, the loss of a job of `state` bytes whose hosts write `write` bytes per second and that takes
    `restart` seconds to start again, the goodput of a `mix` of jobs (chips, number), and the bandwidth of a `torus`
    without one link.
    """

    pod: Pod
    slices: Sequence[int]
    availability: Sequence[float]
    need: int | None = None
    days: float | None = None
    repair: float = 4.0
    seed: int = 0
    state: int | None = None
    write: int = 10**9
    restart: float = 360.0
    mix: Sequence[tuple[int, int]] = ()
    torus: tuple[int, ...] | None = None

    def record(self) -> Record:
        """Returns the answers as JSON."""
        pod, events = self.pod, dict[float, PodEvents]()
        if self.days is not None:
            events = {h: simulate_pod(pod, h, self.repair, self.days, self.seed) for h in self.availability}
        torus = Torus(self.torus) if self.torus else None
        cuts = [detours(torus, n) for n, size in enumerate(torus.shape) if size > 2] if torus else []
        return {
            "cubes": pod.cubes, "hosts": pod.hosts, "chips": pod.chips,
            "rows": [self._row(chips, host, events.get(host)) for chips in self.slices for host in self.availability],
            "needed": [self._needed(self.need, host) for host in self.availability if self.need is not None],
            "mixes": [self._mixed(host, events.get(host)) for host in self.availability if self.mix],
            "detours": [asdict(cut) for cut in cuts],
        }  # fmt: skip

    def _row(self, chips: int, host: float, events: PodEvents | None) -> Record:
        pod, cubes = self.pod, chips // self.pod.chips
        found: Record = {"slice": chips, "availability": host,
                         "switched": pod.switched(cubes, host), "static": pod.static(cubes, host)}  # fmt: skip
        if events is not None:
            found |= {"events_switched": events.switched(cubes), "events_static": events.static(cubes)}
        if self.state is not None:
            hosts = cubes * pod.hosts
            between, write = MACHINE_DAYS * DAY / hosts, self.state / (hosts * self.write)
            interval = daly_interval(write, between)
            worked = efficiency(interval, write, self.restart, between)
            found |= {"interval": interval, "worked": worked, "goodput": found["switched"] * worked}
        return found

    def _needed(self, need: int, host: float) -> Record:
        cube = self.pod.cube_availability(host)
        return {"need": need, "availability": host, "cube": cube, "chance": at_least(need, self.pod.cubes, cube)}

    def _mixed(self, host: float, events: PodEvents | None) -> Record:
        mix = [(chips // self.pod.chips, jobs) for chips, jobs in self.mix]
        found = {"availability": host, "switched": self.pod.switched_mix(mix, host)}
        if events is None:
            return found
        return found | {"events_switched": events.switched_mix(mix), "events_static": events.static_mix(mix)}

    def text(self, record: Record, step: float | None = None) -> str:
        """Returns the answers of `record` for people. `step` are the seconds of a step of the job."""
        return "\n".join(self._lines(record, step))

    def _lines(self, record: Record, step: float | None) -> Iterator[str]:
        pod = self.pod
        yield (f"{pod.cubes} cubes of {pod.hosts} hosts and {pod.chips} chips; of all chips in slices, per cent: with "
               "optical switches / static")  # fmt: skip
        yield "slice".rjust(7) + "".join(f"{h:.2%} of hosts up".rjust(24) for h in self.availability)
        for chips in self.slices:
            mine = [row for row in record["rows"] if row["slice"] == chips]
            yield _pairs(str(chips), mine)
            if self.days is not None:
                yield _pairs("events", mine, "events_")
            if self.state is not None:
                first = mine[0]  # the interval does not depend on availability
                steps = "" if step is None else f", or {first['interval'] / step:.0f} steps of {timed(step)}"
                yield (f"        a checkpoint each {first['interval']:.4g} s{steps}: {first['worked']:.2%} of a job's "
                       f"time is kept; goodput {', '.join(_percent(r['goodput']) for r in mine)}")  # fmt: skip
        for row in record["needed"]:
            yield (f"{row['need']} of {pod.cubes} cubes are up with a chance of {row['chance']:.2%} if "
                   f"{row['availability']:.2%} of hosts are")  # fmt: skip
        if self.need is not None:
            cube = needed_availability(self.need, pod.cubes, _CONFIDENCE)
            of_hosts = f"{cube ** (1 / pod.hosts):.3%}"
            yield f"for {_CONFIDENCE:.0%} cubes have to be up for {cube:.2%} of time, hosts for {of_hosts}"
        for row in record["mixes"]:
            in_time = f"; events {_pair(row, 'events_')}" if self.days is not None else ""
            yield (f"the mix of jobs takes {_percent(row['switched'])} with optical switches if "
                   f"{row['availability']:.2%} of hosts are up{in_time}")  # fmt: skip
        for cut in record["detours"]:
            yield (f"a link of axis {cut['axis']} of a torus of {'x'.join(map(str, self.torus or ()))} is missing: "
                   f"{cut['longer']:.2%} of pairs take up to {cut['most']} hops more, an all-to-all keeps "
                   f"{cut['all_to_all']:.0%} of its bandwidth, a sum along the ring {cut['ring']:.0%}")  # fmt: skip


def _pairs(name: str, rows: Sequence[Record], of: str = "") -> str:
    return name.rjust(7) + "".join(_pair(row, of).rjust(24) for row in rows)


def _pair(row: Record, of: str) -> str:
    switched, static = row[f"{of}switched"], row[f"{of}static"]
    return f"{_percent(switched)} / {'-' if static is None else _percent(static)}"


def _percent(share: float) -> str:
    return f"{share * 100:.1f}"
