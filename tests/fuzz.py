"""Fuzzing: whatever the input, a result or a diagnostic comes out, soon and without much memory.

    python tests/fuzz.py TARGET --seed A --count N [--workers W] [--out DIR]

tries the inputs of the seeds A, A+1, .., A+N-1 in W processes, and prints how many were tried, how far they came, and
the crashes: any exception that is not a diagnostic, a wrong result, more time or memory than `SECONDS` and `MEGABYTES`,
and a process that ends. Of each kind of crash one input is written to DIR, made small (delta debugging: "Simplifying
and isolating failure-inducing input", Zeller and Hildebrandt, 2002), with its traceback. The targets are in
`fuzzing/targets.py`, the inputs beside it; they depend on the seed and on the programs of these tests only.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / ".import")]

from fuzzing.targets import TARGETS, Target
from fuzzing.workers import results
from hloom import CompileError, InternalError

SECONDS = 10  # of processor time that an input may take; real ones take a hundredth of a second
MEGABYTES = 1024  # an input may add to the memory of the process
PATIENCE = 120  # seconds without a word from a process, which then is ended
TOLD = 10_000
SHRINKING = 30  # seconds for making one input small
ENDED = "the process ended"
_LINE, _WORD, _BYTE = re.compile(r".*\n?"), re.compile(r"\w+|\W"), re.compile(r".", re.DOTALL)
_PARTICULARS = re.compile(r"\d+|'[^']*'|\"[^\"]*\"|<[^>]*>|\b[a-z]+(-[a-z]+)+\b")  # numbers, names, opcodes
_STATM = Path("/proc/self/statm")


class OutOfTime(BaseException):
    """Not an Exception, so that nothing on the way takes it for an error of its own."""


@dataclass(frozen=True)
class Crash:
    """`kind` is the type of the exception and the function of Hloom it comes from: what crashes have in common."""

    seed: int
    kind: str
    report: str
    input: str


@dataclass
class Figures:
    """How far the inputs came, and the crashes."""

    outcomes: Counter[str] = field(default_factory=Counter[str])
    crashes: list[Crash] = field(default_factory=list[Crash])

    def add(self, result: str | Crash) -> None:
        self.outcomes["crashed" if isinstance(result, Crash) else result] += 1
        if isinstance(result, Crash):
            self.crashes.append(result)

    def __str__(self) -> str:
        tried = self.outcomes.total()
        shares = ", ".join(f"{count} {what} ({count / tried:.1%})" for what, count in self.outcomes.most_common())
        return f"{tried} inputs tried, {len(self.crashes)} crashes; {shares}"


@contextmanager
def bounded(seconds: float = SECONDS) -> Generator[None]:
    """Raises OutOfTime or MemoryError in a block that takes too much."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise OutOfTime(f"it takes longer than {seconds} s")

    before = resource.getrlimit(resource.RLIMIT_AS)
    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    if _STATM.exists():
        pages = int(_STATM.read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (MEGABYTES << 20), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def attempt(target: Target, value: str, seed: int = -1, seconds: float = SECONDS) -> str | Crash:
    """How far an input comes, or how it crashes."""
    try:
        with bounded(seconds):
            return target.run(value)
    except CompileError as error:
        if error.diagnostics and all(d.message for d in error.diagnostics) and str(error):
            return "refused"
        return Crash(seed, "a diagnostic without words", traceback.format_exc(), value)
    except (Exception, OutOfTime) as error:
        return Crash(seed, _kind(error), traceback.format_exc(), value)


def _kind(error: BaseException) -> str:
    while isinstance(error, InternalError) and error.__cause__ is not None:
        error = error.__cause__  # passes name themselves in what they raise
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "/hloom/" in f.filename or ".import" in f.filename] or frames
    message = _PARTICULARS.sub("_", str(error).split("\n")[0])[:60]
    # What runs when time is over says little.
    if isinstance(error, OutOfTime | MemoryError | RecursionError):
        return type(error).__name__
    return f"{type(error).__name__} in {Path(own[-1].filename).stem}.{own[-1].name}: {message}"


def campaign(name: str, seeds: Sequence[int]) -> Figures:
    """Tries the inputs of these seeds."""
    found = Figures()
    for seed in seeds:
        found.add(_try(name, seed))
    return found


def _try(name: str, seed: int) -> str | Crash:
    target = TARGETS[name]
    return attempt(target, target.make(random.Random(seed)), seed)


def spread_campaign(name: str, seeds: Sequence[int], workers: int, out: Path | None = None) -> Figures:
    """Tries the inputs of these seeds in processes of their own; tells of each new kind of crash at once, writes it to
    `out`, and tells how far it is every `TOLD` inputs.
    """
    found, kinds = Figures(), set[str]()
    for seed, result in results(lambda seed: _try(name, seed), seeds, workers, PATIENCE):
        if result is None:
            result = Crash(seed, ENDED, "", TARGETS[name].make(random.Random(seed)))
        found.add(result)
        if isinstance(result, Crash) and result.kind not in kinds:
            kinds.add(result.kind)
            print(f"seed {seed}: {result.kind}", flush=True)
            if out is not None:
                write(TARGETS[name], result, out, name)
        if found.outcomes.total() % TOLD == 0:
            print(found, flush=True)
    return found


def smaller(target: Target, crash: Crash, seconds: float = SHRINKING) -> Crash:
    """The crash with as little input as leaving out lines, then words or bytes leads to."""
    end = time.monotonic() + (0 if crash.kind == ENDED else seconds)
    for pieces in map(_pieces, (_BYTE,) if target.is_binary else (_LINE, _WORD)):
        parts = pieces(crash.input)
        size = len(parts)
        while size := size // 2:
            place = 0
            while place < len(parts) and time.monotonic() < end:
                rest = parts[:place] + parts[place + size :]
                made = attempt(target, "".join(rest), crash.seed)
                if isinstance(made, Crash) and made.kind == crash.kind:
                    parts, crash = rest, made
                else:
                    place += size
    return crash


def _pieces(pattern: re.Pattern[str]) -> Callable[[str], list[str]]:
    return lambda text: [match[0] for match in pattern.finditer(text)]


def write(target: Target, crash: Crash, folder: Path, name: str) -> Path:
    """Writes an input that crashes, and beside it how."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{crash.seed}.{'pb' if target.is_binary else 'txt'}"
    path.write_bytes(crash.input.encode("latin-1" if target.is_binary else "utf-8", "surrogatepass"))
    path.with_suffix(".report").write_text(f"seed {crash.seed}: {crash.kind}\n{crash.report}", errors="replace")
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("fuzz-crashes"))
    arguments = parser.parse_args()
    target, start = TARGETS[arguments.target], time.monotonic()
    seeds = range(arguments.seed, arguments.seed + arguments.count)
    found = spread_campaign(arguments.target, seeds, arguments.workers, arguments.out)
    seconds = time.monotonic() - start
    print(f"{arguments.target}, seeds from {arguments.seed}: {found}")
    print(f"{seconds:.0f} s, {len(seeds) / seconds:.0f} inputs/s")
    for kind in dict.fromkeys(c.kind for c in found.crashes):
        alike = [c for c in found.crashes if c.kind == kind]
        path = write(target, smaller(target, min(alike, key=lambda c: len(c.input))), arguments.out, arguments.target)
        print(f"{len(alike)} times {kind}: {path}; seeds {', '.join(str(c.seed) for c in alike[:10])}", flush=True)
    return 1 if found.crashes else 0


if __name__ == "__main__":
    sys.exit(main())
