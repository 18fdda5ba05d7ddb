"""Each row of the table of JAX's features has the outcome that it says."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from support.jax_rows import Row, rows, run

jax: Any = pytest.importorskip("jax")


def case(row: Row) -> Any:
    return pytest.param(row, id=row.name, marks=[pytest.mark.slow] if row.slow else [])


@pytest.mark.share(6)  # neighbours are variants of a feature
@pytest.mark.parametrize("row", [case(row) for row in rows()])
def test_row(row: Row) -> None:
    if len(jax.devices()) < row.devices:
        pytest.skip(f"XLA has fewer than {row.devices} devices")
    outcome = run(row)
    assert outcome.kind == row.expected, outcome.reason
    if row.refused is not None:
        assert row.refused in outcome.reason


def test_rows_have_titles_of_their_own() -> None:
    titles = [row.title for row in rows()]
    assert len(set(titles)) == len(titles)
    assert importlib.import_module("support.jax_rows").TABLE.is_dir()
