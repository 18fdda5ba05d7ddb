"""The house: who may import whom, what is packaged, and what every file has to have.

docs/architecture.md is its map. Only source files are looked at, so an installed copy or a virtual
environment in the checkout does no harm.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import hloom
import pytest
from support.import_graph import (
    ROOT,
    circles,
    import_graph,
    name_of,
    nodes_of,
    own_imports,
    parsed,
    rooms,
    without,
)

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = ("ir", "frontends", "passes", "cost", "codegen", "report", "runtime", "driver", "cli", "with_jax")
# Folders that are named otherwise than their package: a folder `jax` at the root would hide JAX in a checkout.
PACKAGE_NAMES = {"with_jax": "jax"}
OTHERS = ("tests", "examples", "bench", "docs")

# What each part of the package may import, besides itself.
MAY_IMPORT: dict[str, set[str]] = {
    "ir": set(),
    "cost": {"ir"},
    "frontends": {"ir"},
    "codegen": {"ir", "cost"},
    "runtime": {"ir", "cost", "codegen"},  # runs a Module and knows no pass; on XLA in the form that codegen makes
    "passes": {"ir", "cost"},
    "report": {"ir", "cost", "passes"},
    "with_jax": {"ir", "cost", "frontends", "passes", "codegen"},
    "driver": {"ir", "cost", "frontends", "passes", "report", "runtime", "codegen"},
    "cli": {"ir", "cost", "frontends", "passes", "report", "codegen", "runtime", "driver"},
    "__main__": {"ir", "cli", "runtime"},
    "__init__": {"jax", "ir", "cost", "frontends", "passes", "report", "codegen", "runtime", "driver"},
}
# What each room of a part may import of the same part, besides itself. All rooms of a part that is here are.
ROOMS: dict[str, set[str]] = {
    "ir": set(),
    "ir/types": {"ir"},
    "ir/sharding": {"ir", "ir/types"},
    "ir/factors": {"ir", "ir/types", "ir/sharding"},
    "ir/graph": {"ir", "ir/types", "ir/sharding", "ir/factors"},
    "ir/ops": {"ir", "ir/types", "ir/sharding", "ir/factors", "ir/graph"},
    "ir/ops/calls": {"ir", "ir/types", "ir/sharding", "ir/factors", "ir/graph", "ir/ops"},
    "ir/tools": {"ir", "ir/types", "ir/sharding", "ir/factors", "ir/graph", "ir/ops", "ir/ops/calls"},
    "ir/analysis": {"ir", "ir/types", "ir/sharding", "ir/factors", "ir/graph", "ir/ops", "ir/tools"},
    "ir/deadlock": {
        "ir", "ir/types", "ir/sharding", "ir/factors", "ir/graph", "ir/ops", "ir/ops/calls", "ir/tools", "ir/analysis",
    },
    "passes/resharding/base": set(),
    "passes/resharding/search": {"passes/resharding/base"},
    "passes/resharding/exchange": {"passes/resharding/base"},
    "passes/resharding": {"passes/resharding/base", "passes/resharding/search", "passes/resharding/exchange"},
    "passes/op_sharding": {"passes/resharding", "passes/resharding/base"},
    "passes/base": {"passes/op_sharding", "passes/resharding/base", "passes/spmd/local_forms"},
    "passes/cleanup": {"passes/base"},
    "passes/fusion": {"passes/base", "passes/cleanup"},
    "passes/schedule/search": set(),
    "passes/schedule/rewrites": {"passes/base", "passes/cleanup"},
    "passes/schedule": {
        "passes/annotating", "passes/base", "passes/cleanup", "passes/schedule/search", "passes/schedule/rewrites",
    },
    "passes/annotating": {"passes/base"},
    "passes/propagation": {"passes/base", "passes/op_sharding", "passes/resharding"},
    "passes/planning": {
        "passes", "passes/annotating", "passes/base", "passes/cleanup", "passes/op_sharding", "passes/propagation",
        "passes/resharding", "passes/schedule",
    },
    "passes/spmd/checks": {"passes/op_sharding"},
    "passes/spmd/emit": {
        "passes/op_sharding", "passes/resharding", "passes/resharding/base", "passes/resharding/exchange",
    },
    "passes/spmd/local_forms": {"passes/op_sharding", "passes/resharding", "passes/spmd/emit"},
    "passes/spmd/structure": {"passes/resharding", "passes/spmd/checks", "passes/spmd/emit"},
    "passes/spmd": {
        "passes/base", "passes/op_sharding", "passes/spmd/checks", "passes/spmd/emit", "passes/spmd/local_forms",
        "passes/spmd/structure",
    },
    "passes": {
        "passes/annotating", "passes/base", "passes/cleanup", "passes/fusion", "passes/op_sharding",
        "passes/propagation", "passes/resharding", "passes/resharding/base", "passes/schedule",
        "passes/schedule/rewrites", "passes/schedule/search", "passes/spmd", "passes/spmd/local_forms",
    },
    "runtime/ranks": set(),
    "runtime/fabric": {"runtime/ranks"},
    "runtime/plan": {"runtime/fabric", "runtime/ranks"},
    "runtime/inputs": {"runtime/plan"},
    "runtime/native": {"runtime/plan", "runtime/ranks"},
    "runtime": {"runtime/checkpoint", "runtime/fabric", "runtime/inputs", "runtime/plan", "runtime/ranks"},
    "runtime/check": {"runtime", "runtime/plan", "runtime/ranks"},
    "runtime/checkpoint": {"runtime/fabric", "runtime/inputs", "runtime/plan", "runtime/ranks"},
    "runtime/proof": {"runtime", "runtime/check", "runtime/inputs", "runtime/plan"},
    "runtime/proof/relations": {"runtime", "runtime/fabric", "runtime/plan", "runtime/proof"},
}
# Folders in which no files import each other in a circle, imports in functions and for type checkers included.
WITHOUT_CIRCLES = ("ir", "passes", "runtime")
# Imports that may close a circle all the same: (importer, imported).
CLOSING: dict[tuple[str, str], str] = {
    ("ir/graph/instruction.py", "ir/graph/computation.py"): "the type of `parent`, and of what is called",
    ("ir/graph/computation.py", "ir/graph/module.py"): "the type of `parent`",
    ("ir/factors/sharding_rule.py", "ir/factors/rule_text.py"): "`str(rule)`",
    ("ir/sharding/sharding.py", "ir/sharding/sharding_text.py"): "`str(sharding)`",
}

# Imports that only register what belongs to a higher room: (importer, imported).
REGISTERING: dict[tuple[str, str], str] = {
    ("ir/graph/__init__.py", "ir/ops/calls/__init__.py"): "importing the types of a program registers all ops",
}

# Late names that lead to a higher room: (importer, imported).
UPWARD: dict[tuple[str, str], str] = {
    ("ir/graph/module.py", "ir/tools/printer.py"): "`Module.to_text`",
    ("ir/in_notebooks.py", "report/html/notebook.py"): "what notebooks show",
    ("ir/graph/module.py", "frontends/proto/__init__.py"): "`Module.to_proto`",
    ("ir/graph/module.py", "frontends/stablehlo/__init__.py"): "`Module.to_stablehlo`",
}

# Distributions that the package may import, and those it may import only inside functions.
ANYWHERE = {"numpy", "ml_dtypes"}
LATE = {"highspy", "lark", "llvmlite", "mpi4py", "networkx"}

LONGEST = 400
LONG_FILES: dict[str, str] = {}  # path: why it is one file all the same


def files_of(folders: tuple[str, ...], suffixes: tuple[str, ...]) -> Iterator[Path]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            hidden = any(part.startswith(".") for part in path.relative_to(ROOT).parts)
            if path.suffix in suffixes and not hidden and path.is_file():
                yield path


SOURCES = [ROOT / "__init__.py", ROOT / "__main__.py", *files_of(PACKAGES, (".py",))]
PYTHON = [*SOURCES, *files_of(OTHERS, (".py",))]


def _foreign_imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and distribution of each absolute import outside the standard library."""
    found: list[tuple[int, str]] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.append((node.lineno, node.module or ""))
    for line, name in found:
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names:
            yield line, top


def _at_import_time(tree: ast.Module) -> ast.Module:
    """The statements that importing the module runs: not functions, not what only type checkers see."""
    kept = [
        node for node in tree.body
        if not isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    ]  # fmt: skip
    return ast.Module(kept, [])


def test_imports_go_in_one_direction() -> None:
    wrong: list[str] = []
    seen: set[tuple[str, str]] = set()
    upward = {(file, other.split("/")[0]) for file, other in UPWARD}
    for path in SOURCES:
        part = path.relative_to(ROOT).parts[0].removesuffix(".py")
        for line, (imported, *_) in own_imports(path):
            seen.add((part, imported))
            if imported != part and imported not in MAY_IMPORT[part] and (name_of(path), imported) not in upward:
                wrong.append(f"{name_of(path)}:{line}: {part} imports {imported}")
    assert wrong == []
    assert {("passes", "ir"), ("runtime", "ir"), ("cli", "passes"), ("__main__", "cli")} <= seen


def test_all_but_the_machine_ask_the_machine() -> None:
    """Links and rates are named in cost/ alone; passes ask the machine."""
    rates = {"Cluster", "Link", "Links", "parse_links"}
    found = [(name_of(path), parts) for path in SOURCES for _, parts in own_imports(path)]
    others = [(name, parts) for name, parts in found if not name.startswith("cost/")]
    assert [o for o in others if o[1][:2] == ("cost", "links") or rates & set(o[1])] == []
    assert any(parts[:2] == ("cost", "machine") for _, parts in others)


def test_rooms_import_in_one_direction() -> None:
    files = import_graph(SOURCES)
    declared = REGISTERING | UPWARD
    assert [arrow for arrow in declared if arrow[1] not in files[arrow[0]]] == [], "these are gone by now"
    graph = rooms(without(files, declared))
    parts = {room.partition("/")[0] for room in ROOMS}
    assert {room for room in graph if room.partition("/")[0] in parts} == set(ROOMS)
    wrong = [
        f"{room} imports {other}"
        for room, allowed in ROOMS.items()
        for other in graph[room]
        if other.partition("/")[0] == room.partition("/")[0] and other not in allowed
    ]
    assert wrong == []
    assert circles({room: frozenset(allowed) for room, allowed in ROOMS.items()}) == []


def test_the_command_line_asks_and_prints() -> None:
    """Its work is in the library, where programs in Python have it, too."""
    lines = {path: len(path.read_text().splitlines()) for path in files_of(("cli",), (".py",))}
    assert 20 < len(lines) < sum(lines.values()) <= 2300
    calls = [name_of(path) for path in lines if "run_pipeline(" in path.read_text()]
    assert calls == ["cli/partition.py"]  # of `hloom opt`


def test_the_runtime_of_native_code_is_small() -> None:
    """It has no rules of its own of what machine code can do: these are in codegen/native."""
    lines = [len(path.read_text().splitlines()) for path in files_of(("runtime/native",), (".py",))]
    assert 5 < len(lines) < sum(lines) <= 1250


def test_files_import_in_no_circle() -> None:
    graph = import_graph(SOURCES)
    assert [arrow for arrow in CLOSING if arrow[1] not in graph[arrow[0]]] == [], "these are gone by now"
    inside = tuple(f"{folder}/" for folder in WITHOUT_CIRCLES)
    found = circles(without(graph, CLOSING | UPWARD))
    assert [circle for circle in found if any(name.startswith(inside) for name in circle)] == []


def test_circles_are_found() -> None:
    arrows = {"a": "b", "b": "cd", "c": "a", "d": "e", "e": "d", "f": "a"}
    graph = {name: frozenset(others) for name, others in arrows.items()}
    assert circles(graph) == [["a", "b", "c"], ["d", "e"]]
    assert circles(without(graph, {("c", "a"): "", ("d", "e"): ""})) == []


def test_foreign_imports_are_few_and_heavy_ones_late() -> None:
    wrong: list[str] = []
    for path in SOURCES:
        for line, name in _foreign_imports(nodes_of(path)):
            if name not in ANYWHERE | LATE:
                wrong.append(f"{name_of(path)}:{line}: {name}")
        for line, name in _foreign_imports(ast.walk(_at_import_time(parsed(path)))):
            if name in LATE:
                wrong.append(f"{name_of(path)}:{line}: {name} at import time")
    assert wrong == []


def test_packages_are_the_folders() -> None:
    """Except for copies that installing leaves in the checkout."""
    found: set[str] = set()
    for folder, folders, files in os.walk(ROOT):
        is_root = Path(folder) == ROOT
        folders[:] = [f for f in folders if not f.startswith(".") and not (is_root and f in (*OTHERS, "build"))]
        if "__init__.py" in files:
            parts = Path(folder).relative_to(ROOT).parts
            found.add(".".join(["hloom", *(PACKAGE_NAMES.get(part, part) for part in parts)]))
    setuptools = PROJECT["tool"]["setuptools"]
    assert setuptools["packages"] == sorted(found)
    renamed = {f"hloom.{name}": folder for folder, name in PACKAGE_NAMES.items()}
    assert setuptools["package-dir"] == {"hloom": "."} | renamed
    assert {p.split(".")[1] for p in found if "." in p} == {PACKAGE_NAMES.get(p, p) for p in PACKAGES}
    assert set(PACKAGES) <= set(PROJECT["tool"]["pyright"]["include"])


def test_import_folder_has_one_link_per_item() -> None:
    links = ROOT / ".import" / "hloom"
    items = (*PACKAGES, "__init__.py", "__main__.py", "py.typed")
    wanted = {PACKAGE_NAMES.get(item, item): item for item in items}
    found = {path.name: path for path in links.iterdir() if path.name != "__pycache__"}
    assert set(found) == set(wanted)
    for name, link in found.items():
        assert link.is_symlink(), name
        assert os.readlink(link) == f"../../{wanted[name]}"
        assert link.resolve(strict=True) == (ROOT / wanted[name]).resolve()


def test_no_python_files_at_the_root_but_two() -> None:
    assert {p.name for p in ROOT.glob("*.py")} == {"__init__.py", "__main__.py"}


def test_package_is_typed_and_has_one_version() -> None:
    assert (ROOT / "py.typed").is_file()
    assert "py.typed" in PROJECT["tool"]["setuptools"]["package-data"]["hloom"]
    assert hloom.__version__ == PROJECT["project"]["version"]
    assert f"## {hloom.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_public_names_exist_and_are_documented() -> None:
    for name in hloom.__all__:
        value = getattr(hloom, name)
        assert name == "__version__" or value.__doc__, name


def test_modules_have_docstrings() -> None:
    """Each says what the file is, its idea and its assumptions."""
    assert [name_of(path) for path in PYTHON if not ast.get_docstring(parsed(path))] == []


def test_files_are_short() -> None:
    long = {name_of(p): n for p in PYTHON if (n := len(p.read_text().splitlines())) > LONGEST}
    assert {name: n for name, n in long.items() if name not in LONG_FILES} == {}
    assert set(LONG_FILES) <= set(long), "these are short by now"


# A path below one of the folders where machines keep what is theirs.
_MACHINE_PATH = re.compile(r"(?<![\w./~-])/(?:work|tmp|root|home|Users|opt|mnt|private)/\w")


def test_no_machine_paths() -> None:
    suffixes = (".py", ".md", ".txt", ".hlo", ".lark", ".toml", ".mlir")
    texts = [*files_of((*PACKAGES, *OTHERS), suffixes), *ROOT.glob("*.py"), *ROOT.glob("*.md"), ROOT / "pyproject.toml"]
    texts += [p for p in (ROOT / ".ci").rglob("*") if p.is_file()]
    assert len(texts) > 100
    found = [
        f"{name_of(path)}:{number}: {line.strip()[:80]}"
        for path in texts
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if _MACHINE_PATH.search(line)
    ]
    assert found == []


def test_machine_paths_are_recognised() -> None:
    folder = "home"
    assert _MACHINE_PATH.search(f'source_file="/{folder}/me/model.py"')
    assert not _MACHINE_PATH.search(f"see docs/{folder}/page and https://example.org/{folder}/x")


def test_readme_has_the_two_commands() -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    first, second = (block.splitlines() for block in blocks)
    assert len(first) == len(second) == 1
    assert first[0].startswith("python3 -m venv .venv && .venv/bin/pip install -q '.[mpi,native]' && ")
    assert first[0].endswith(" --ranks 4 --check")
    assert second[0] == ".venv/bin/pip install -q '.[test]' && .venv/bin/python -m pytest"
    example = first[0].split("hloom run ")[1].split()[0]
    assert (ROOT / example).is_file()
    extras = PROJECT["project"]["optional-dependencies"]
    assert set(extras) == {"mpi", "xla", "native", "plan", "test", "bench", "docs", "dev"}


def test_private_names_stay_in_their_modules() -> None:
    """Pyright checks it, and the script of CI runs pyright."""
    assert PROJECT["tool"]["pyright"]["reportPrivateUsage"] is True
    assert "pyright" in (ROOT / ".ci" / "run").read_text()


def test_ci_script_is_executable() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


PAGES = ("README.md", "CONTRIBUTING.md", "examples/README.md", *map(name_of, sorted((ROOT / "docs").rglob("*.md"))))


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target
