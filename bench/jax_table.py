"""Prints the table of JAX's features: each used with `jax.jit` and with `hloom.jax.jit`, and compared.

    python bench/jax_table.py [SUBJECT ..]

Rows are in tests/with_jax/table/, subjects are the names of its files. The outcome is "same", "JAX cannot either" or
"refused", with the reason. Exits with 1 if a row has another outcome than it says.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.jax_rows import Outcome, Row, rows, run
from support.virtual_devices import eight_devices


def outcome(row: Row) -> Outcome:
    """Runs a row; what neither JAX nor a diagnostic says is an outcome, too."""
    try:
        return run(row)
    except Exception as error:
        return Outcome(type(error).__name__, str(error).splitlines()[0] if str(error) else "")


def main() -> int:
    eight_devices()
    counts, wrong, subject = Counter[str](), 0, ""
    for row in rows():
        if sys.argv[1:] and row.subject not in sys.argv[1:]:
            continue
        if row.subject != subject:
            subject = row.subject
            print(f"\n{subject}")
        found = outcome(row)
        counts[found.kind] += 1
        unexpected = found.kind != row.expected
        wrong += unexpected
        print(f"{'!' if unexpected else ' '} {row.title:60} {found.kind}{': ' if found.reason else ''}{found.reason}",
              flush=True)  # fmt: skip
    print("\n" + ", ".join(f"{kind}: {count}" for kind, count in counts.most_common()))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
