"""Writes docs/passes.md, the page of all passes, from their classes and the golden cases of the tests.

    python docs/make_passes.py

Each pass has its docstring, its options, the passes that it must come before or after, and a program before and after
it, as the golden cases keep it. Tests run these cases and compare the page with the output of this script.
"""

from __future__ import annotations

import difflib
import inspect
import sys
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in (".import", "tests") if str(ROOT / folder) not in sys.path]

from hloom.frontends import parse  # noqa: E402
from hloom.ir.graph.module import Stage  # noqa: E402
from hloom.passes.base import Pass  # noqa: E402
from hloom.passes.named import ORDER, PASSES  # noqa: E402
from support.golden import Case, pass_examples  # noqa: E402

PAGE = ROOT / "docs" / "passes.md"

_HEAD = """\
# Passes

Made by `python docs/make_passes.py` from the classes in `passes/` and the golden cases in `tests/passes/golden/`; do
not edit by hand.

Each pass runs by itself: `hloom opt program.hlo --passes=NAME{option=value}`, or in Python
`hloom.run_passes(module, "NAME{option=value}")`. The pipelines are in `passes/pipelines.py` and `passes/scheduling.py`.
The example is a program before (`-`) and after (`+`) the pass. Both compute the same.
"""


def page() -> str:
    """The text of docs/passes.md."""
    examples = pass_examples()
    return "\n".join([_HEAD, *(_entry(PASSES[name], *examples[name]) for name in sorted(PASSES))])


def _entry(step: type[Pass], pipeline: str, case: Case) -> str:
    lines = [f"## {step.name}\n", f"{inspect.cleandoc(step.__doc__ or '')}\n", *_facts(step)]
    passes, _, links = pipeline.partition(" rounds=")[0].partition(" links=")
    run = f"`--passes={passes}`" + (f", `--links='{links}'`" if links else "")
    return "\n".join([*lines, f"\n{case.name[0].upper()}{case.name[1:]} ({run}):\n", _difference(case)])


def _facts(step: type[Pass]) -> list[str]:
    """The stages and options of a pass, and its place among others."""
    stages = " or ".join(s.value for s in Stage if s in step.consumes) if step.consumes != frozenset(Stage) else "any"
    left = f", leaves {step.produces.value}" if step.produces else ""
    options = fields(step) if is_dataclass(step) else ()
    named = [f"`{o.name.replace('_', '-')}`" + (f" (`{str(o.default).lower()}`)" if o.default != "" else "")
             for o in options if o.default is not MISSING]  # fmt: skip
    order: dict[str, list[str]] = {}
    for rule in ORDER:
        if step.name in (rule.first, rule.second):
            where, other = ("before", rule.second) if rule.first == step.name else ("after", rule.first)
            order.setdefault(f"- {where} {{}}: {rule.why}", []).append(f"`{other}`")
    return [
        f"- stage: takes {stages}{left}",
        *([f"- options: {', '.join(named)}"] if named else []),
        *(text.format(", ".join(others)) for text, others in order.items()),
    ]


def _difference(case: Case) -> str:
    before, after = parse(case.text).to_text().splitlines(), case.expected.splitlines()
    lines = difflib.unified_diff(before, after, n=len(before), lineterm="")
    return "\n".join(["```diff", *list(lines)[3:], "```\n"])


if __name__ == "__main__":
    PAGE.write_text(page())
