"""Tables of the package are complete from the first use on, whichever name a process touches first."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil

import pytest
from support.command_line import ROOT
from support.import_graph import Place, imported_places, module_of, name_of, parsed
from support.nursery import cold
from support.pushed_tables import Source, pushed_tables
from test_house import SOURCES

# The one table that other modules fill as they are imported: the ops, all of which `ir.graph` imports.
REGISTER = Place("ir/graph/op.py", "register")

# What a fresh process does first, and the arguments with which it partitions then.
FIRST = {
    "local_forms": ("forms = hloom.local_forms()", "forms=forms"),
    "PassContext": ("forms = hloom.PassContext().forms", "forms=forms"),
    "PIPELINE": ("passes = hloom.PIPELINE", "passes=passes"),
    "register": ("hloom.register(type('Own', (hloom.Op,), {'opcode': 'own'}))", ""),
    "custom_call": ("hloom.custom_call('own')(abs)", ""),
    "builder": ("hloom.builder", ""),
    "LocalOp": ("hloom.LocalOp", ""),
}
COLD = """
import hloom
{first}
local = hloom.partition(hloom.parse('''
HloModule m, num_partitions=4
ENTRY e {{
  x = f32[16] parameter(0), sharding={{devices=[4]<=[4]}}
  ROOT y = f32[9] slice(x), slice={{[3:12]}}, sharding={{devices=[4]<=[4]}}
}}
'''), {arguments})
import numpy as np
(y,) = hloom.simulate(local, [np.arange(16, dtype=np.float32)])
print([int(n) for n in y], len(hloom.local_forms().entries))
"""


@pytest.mark.parametrize("name", FIRST)
def test_registries_are_complete_whatever_comes_first(name: str) -> None:
    first, arguments = FIRST[name]
    code = COLD.format(first=first, arguments=arguments)
    done = cold(code, ROOT)
    assert done.out == "[3, 4, 5, 6, 7, 8, 9, 10, 11] 25\n", done.err


def test_no_table_is_filled_by_other_modules() -> None:
    """A table that imports fill is wrong until they have run: those of the package are complete where they are."""
    files = {module_of(p): name_of(p) for p in SOURCES}
    found = list(pushed_tables([Source(name_of(p), parsed(p).body, imported_places(p, files)) for p in SOURCES]))
    assert [f for f in found if f[2] != REGISTER] == []
    assert {file.rpartition("/")[0] for file, _, place in found if place == REGISTER} == {"ir/ops", "ir/ops/calls"}


@pytest.mark.parametrize(
    "text",
    [
        "TABLE[1] = 2", "del TABLE[1]", "def f():\n    table.TABLE.append(1)", "@fill(1)\ndef f(): ...",
        "x = table.fill(2)", "class A:\n    x = other(3)", "@other\nclass A: ...",
    ],
)  # fmt: skip
def test_filled_tables_of_others_are_found(text: str) -> None:
    table = "TABLE = []\ndef fill(x):\n    def add(y):\n        TABLE.append(y)\n    return add"
    names = {"table": Place("table", ""), "TABLE": Place("table", "TABLE"), "fill": Place("table", "fill")}
    others = {"table": table, "calls": "def other(x):\n    return fill(x)", "user": text}
    names["other"] = Place("calls", "other")
    found = list(pushed_tables([Source(name, ast.parse(source).body, names) for name, source in others.items()]))
    assert [file for file, _, _ in found] == ["user"]


def test_other_calls_and_tables_are_fine() -> None:
    text = "MINE = {}\nMINE[1] = 2\nread(3)\ndef f():\n    fill(2)\n    m.append(1)"
    table = "TABLE = {}\ndef read(x):\n    return TABLE[x]\ndef fill(x):\n    TABLE[x] = x"
    names = {"read": Place("table", "read"), "fill": Place("table", "fill"), "m": Place("table", "")}
    sources = [Source("table", ast.parse(table).body, {}), Source("a", ast.parse(text).body, names)]
    assert list(pushed_tables(sources)) == []


@pytest.mark.parametrize("package", ["hloom", "hloom.jax", "hloom.runtime"])
def test_no_module_hides_a_public_name(package: str) -> None:
    """Whoever imports `hloom.jax.x` sets the attribute `x` of `hloom.jax`, in place of a late name `x`."""
    module = importlib.import_module(package)
    modules = {m.name for m in pkgutil.iter_modules(module.__path__)}
    hidden = {name for name in module.__all__ if name in modules}
    assert {name for name in hidden if not inspect.ismodule(getattr(module, name))} == set()
