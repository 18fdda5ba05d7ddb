"""Programs to fuzz with: the real ones of these tests, damaged, with shardings of their own or random ones."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from comm_programs.cases import programs as comm_programs
from fuzzing.edits import EDITS, plain
from fuzzing.mutators import ALL, GENTLE, characters, numbers, same_kind
from fuzzing.strings import MESHES, sharding_text
from hloom import CompileError, parse
from support.command_line import EXAMPLES
from support.op_samples import all_samples
from support.virtual_devices import eight_devices

TESTS = Path(__file__).parents[1]
_SHARDING = re.compile(r", sharding=\{[^\n]*?\}(?=, [a-z_]+=|$|\n)", re.MULTILINE)
_VALUE = re.compile(r"^\s+(?:ROOT )?[^\s=]+ = (\(.*?\)|\w+\[\S*) [\w\-]+\([^\n]*$", re.MULTILINE)
_LEAF = re.compile(r"\b\w+\[([\d,<=?]*)\]")


def entry(*lines: str, header: str = "", before: str = "") -> str:
    """A module of computations, `before`, and an entry of these lines."""
    return f"HloModule m{header}\n{before}\nENTRY e {{\n  " + "\n  ".join(lines) + "\n}\n"


@cache
def corpus() -> tuple[str, ...]:
    """Real programs: examples, golden cases, the samples of all ops, programs about communication."""
    files = [TESTS / "frontends" / "rich.hlo", EXAMPLES / "mlp_named.hlo", EXAMPLES / "mlp_train.hlo"]
    golden = sorted((TESTS / "passes" / "golden").glob("*.hlo"))
    cases = [case for path in golden for case in re.split(r"^//.*\n", path.read_text(), flags=re.MULTILINE)]
    samples = [text for texts in all_samples().values() for text in texts]
    texts = (*[path.read_text() for path in files], *cases, *comm_programs().values(), *samples)
    return tuple(text for text in texts if _is_module(text))


@cache
def lowered() -> tuple[str, ...]:
    """Programs as JAX lowers them; takes a while to make, and needs JAX."""
    from programs.jax_programs import PROGRAMS, text_of

    eight_devices()
    return tuple(text for make in PROGRAMS.values() if len(text := text_of(make())) < 30_000)


@cache
def large() -> tuple[str, ...]:
    """The largest examples: a training step of a transformer, unrolled and as a loop over layers."""
    return tuple((EXAMPLES / f"{name}.hlo").read_text() for name in ("transformer_train", "transformer_scan_train"))


def _is_module(text: str) -> bool:
    try:
        return len(parse(text).entry) > 1
    except CompileError:
        return False


def program(rng: random.Random, programs: Sequence[str]) -> str:
    """A damaged program."""
    text = rng.choice(programs)
    for _ in range(rng.choice((1, 1, 2, 3))):
        text = rng.choice(ALL)(rng, text) or "\n"
    return splice(rng, text, rng.choice(programs)) if rng.random() < 0.1 else text


def sharded_program(rng: random.Random, programs: Sequence[str]) -> str:
    """A program with random shardings over 1 to 8 devices, gently damaged, or its shardings."""
    text = rng.choice(programs)
    if rng.random() < 0.3:
        text = _mutate_shardings(rng, text)
    else:
        text = with_shardings(rng, _SHARDING.sub("", text))
    for _ in range(rng.choice((0, 1, 1, 2))):
        text = rng.choice(GENTLE)(rng, text) or "\n"
    return text


def swept_program(rng: random.Random, programs: Sequence[str]) -> str:
    """A program that is most often still valid: edited, with shardings, sometimes damaged. Large programs are rare."""
    text = _printed(rng.choices(programs, cum_weights=_weights(tuple(programs)))[0])
    for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3))):
        text = rng.choice(EDITS)(rng, text)
    match rng.randrange(10):
        case 0 | 1 | 2 | 3:
            text = with_shardings(rng, _SHARDING.sub("", text))
        case 4 | 5:
            text = with_shardings(rng, text)
        case 6:
            text = _mutate_shardings(rng, text)
        case _:
            pass
    if rng.random() < 0.2:
        text = rng.choice(ALL if rng.random() < 0.3 else GENTLE)(rng, text) or "\n"
    return splice(rng, text, rng.choice(programs)) if rng.random() < 0.02 else text


@cache
def _weights(programs: tuple[str, ...]) -> tuple[float, ...]:
    """The weights of programs, added up: the more instructions, the less."""
    return tuple(itertools.accumulate(1 / math.sqrt(max(1, text.count(" = "))) for text in programs))


@cache
def _printed(text: str) -> str:
    """A program as we print it."""
    return plain(parse(text).to_text())


def with_shardings(rng: random.Random, text: str) -> str:
    """Shardings over one mesh for most parameters and some other values."""
    mesh = rng.choice(MESHES)
    entry = text.find("ENTRY")
    for match in reversed(list(_VALUE.finditer(text))):
        inside = match.start() > entry
        if rng.random() < (0.6 if inside and " parameter(" in match[0] else 0.15 if inside else 0.03):
            ranks = [len([d for d in leaf.split(",") if d]) for leaf in _LEAF.findall(match[1])]
            found = [sharding_text(rng, mesh, rank) for rank in ranks]
            is_tuple = match[1].startswith("(") and (not found or rng.random() < 0.9)
            at = match.end()
            made = "{" + ", ".join(found) + "}" if is_tuple else found[0]
            text = f"{text[:at]}, sharding={made}{text[at:]}"
    return text


def _mutate_shardings(rng: random.Random, text: str) -> str:
    def changed(match: re.Match[str]) -> str:
        return match[0] if rng.random() < 0.5 else rng.choice((numbers, same_kind, characters))(rng, match[0])

    return _SHARDING.sub(changed, text)


def splice(rng: random.Random, text: str, other: str) -> str:
    """Lines of one program among those of another."""
    lines, others = text.splitlines(keepends=True), other.splitlines(keepends=True)
    start = rng.randrange(len(others)) if others else 0
    place = rng.randrange(len(lines) + 1)
    return "".join([*lines[:place], *others[start : start + rng.randint(1, 4)], *lines[place:]])
