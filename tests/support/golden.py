"""Golden cases as data: the files `tests/passes/golden/*.hlo`, cut into cases. `test_golden` says what verbs mean."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "passes" / "golden"
ARROW = "// ==>"

# Golden cases that are evaluated and not proved, by file: two whose results are undefined in every trial, a
# reduce-window whose computation is no sum, and products of a float and an integer.
UNPROVED = {"found": 1, "halo": 1, "indexed": 1, "spmd": 1}


@dataclass
class Case:
    file: Path
    name: str
    verbs: list[str] = field(default_factory=list[str])
    text: str = ""
    expected: str = ""
    lines: tuple[int, int] = (0, 0)  # of the expected text in the file, as a slice


def cases_of(file: Path) -> list[Case]:
    found: list[Case] = []
    part: list[str] = []
    for number, line in enumerate([*file.read_text().splitlines(), "// CASE"]):
        if line.startswith("// CASE"):
            if found:
                _finish(found[-1], part, number)
            found.append(Case(file, line.removeprefix("// CASE").strip()))
            part = []
        else:
            part.append(line)
    return found[:-1]


def _finish(case: Case, lines: list[str], end: int) -> None:
    verbs = [n for n, line in enumerate(lines) if line.startswith("// ") and line.split()[1].isupper()]
    case.verbs = [lines[n].removeprefix("// ") for n in verbs]
    body = lines[len(verbs) :]
    split = body.index(ARROW) if ARROW in body else len(body)
    case.text = "\n".join(body[:split])
    case.expected = "\n".join(body[split + 1 :]).strip()
    start = end - len(body) + split + 1
    case.lines = (min(start, end), end)


def golden_texts(stem: str, verb: str) -> list[str]:
    """The inputs of the cases of one file that have a verb."""
    return [c.text for c in cases_of(FOLDER / f"{stem}.hlo") if any(v.split()[0] == verb for v in c.verbs)]


def all_cases() -> list[Case]:
    return [case for file in sorted(FOLDER.glob("*.hlo")) for case in cases_of(file)]


def pass_examples() -> dict[str, tuple[str, Case]]:
    """The shortest case of each pass, and its pipeline as text: one that runs the pass alone, or else it first."""
    found: dict[str, list[tuple[int, int, str, Case]]] = {}
    for number, (pipeline, case) in enumerate(_runs()):
        names = re.findall(r"([a-z][a-z0-9-]*)(?:\{[^}]*\})?(?:,|$)", pipeline.partition(" ")[0])
        size = 1000 * len(names) + len((case.text + case.expected).splitlines())
        found.setdefault(names[0], []).append((size, number, pipeline, case))
    return {name: min(cases)[2:] for name, cases in found.items()}


def _runs() -> Iterator[tuple[str, Case]]:
    for case in all_cases():
        yield from ((verb.removeprefix("RUN "), case) for verb in case.verbs if verb.startswith("RUN "))
