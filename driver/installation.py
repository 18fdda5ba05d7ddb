"""Looks for the parts of an installation, and tells the needs of those that are missing."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ..codegen.native.compile_llvm import host
from ..cost.sizes import sized
from ..ir import disk_cache
from ..ir.installed import version_of
from ..report.columns import columns
from ..runtime.ranks.cores import core_count
from ..runtime.ranks.launch import find_mpiexec
from ..runtime.ranks.library import MpiMissing
from .backend import has_native_code

_PATIENCE = 10  # seconds that mpiexec may take to tell its version
_SHARED = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Finding:
    """A part of the installation: whether it is `ok`, what was found, and else what needs it and the help."""

    name: str
    ok: bool
    found: str
    help: str = ""


def installation() -> list[Finding]:
    """Returns all parts, those that are missing last."""
    return sorted((check() for check in _CHECKS), key=lambda f: not f.ok)


def _hloom() -> Finding:
    packages = ", ".join(f"{name} {number}" for name in ("numpy", "ml_dtypes", "lark") if (number := version_of(name)))
    own = version_of("hloom") or "a checkout"
    return Finding("hloom", True, f"{own}, Python {platform.python_version()}, {packages}")


def _machine() -> Finding:
    return Finding("machine", True, f"{core_count()} cores, {platform.machine()}, {platform.system()}")


def _native() -> Finding:
    number = version_of("llvmlite")
    if has_native_code():
        return Finding("native code", True, f"llvmlite {number}, for {host()[0]}")
    needs = "pip install 'hloom[native]'" if number is None else "the processor needs a fused multiply-add"
    return Finding("native code", False, f"llvmlite {number}" if number else "no llvmlite",
                   f"programs run op by op in numpy, {needs}")  # fmt: skip


def _mpi() -> Finding:
    try:
        launcher = find_mpiexec()
    except MpiMissing as error:
        return Finding("MPI", False, "no mpiexec", f"run --ranks and bench --ranks need it: {error}")
    library = version_of("mpi4py")
    if library is None:
        return Finding("MPI", False, f"{launcher}, no mpi4py", "run --ranks needs it: pip install 'hloom[mpi]'")
    return Finding("MPI", True, f"{_first_line(launcher)}, mpi4py {library}, {launcher}")


def _first_line(launcher: str) -> str:
    try:
        done = subprocess.run([launcher, "--version"], capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "an mpiexec that does not tell its version"
    return next(iter((done.stdout or done.stderr).splitlines()), "").strip() or "an mpiexec without a version"


def _shared_memory() -> Finding:
    try:
        free = shutil.disk_usage(_SHARED).free
    except OSError:
        return Finding("shared memory", False, f"no {_SHARED}", "without it ranks of a node exchange through MPI")
    return Finding("shared memory", True, f"{sized(free)} free")


def _jax() -> Finding:
    number = version_of("jax")
    if number is None:
        return Finding("JAX", False, "not installed",
                       "hloom.jax, from-jax and StableHLO need it: pip install 'hloom[xla]'")  # fmt: skip
    return Finding("JAX", True, f"jax {number}, jaxlib {version_of('jaxlib')}")


def _solver() -> Finding:
    number = version_of("highspy")
    if number is None:
        return Finding("solver", False, "no highspy", "plans over many choices need it: pip install 'hloom[plan]'")
    return Finding("solver", True, f"highspy {number}")


def _cache() -> Finding:
    place, refusal = disk_cache.folder(), disk_cache.refusal()
    if place is None:
        return Finding("cache", False, refusal or "switched off", "each run compiles anew: HLOOM_CACHE names a folder")
    files = [p.stat().st_size for p in place.rglob("*") if p.is_file()] if place.is_dir() else []
    return Finding("cache", True, f"{len(files)} files, {sized(sum(files))} in {place}")


_CHECKS: tuple[Callable[[], Finding], ...] = (_hloom, _machine, _native, _mpi, _shared_memory, _jax, _solver, _cache)


def installation_record(found: Sequence[Finding]) -> dict[str, object]:
    """Returns parts of an installation as JSON, and the environment."""
    return {"findings": [asdict(f) for f in found], "environment": dict(environment())}


def installation_text(found: Sequence[Finding]) -> str:
    """Returns a table of the parts of an installation, the environment, and the help for those that are missing."""
    rows = [(f.name, "ok" if f.ok else "missing", f.found) for f in found]
    variables = (f"{name}={value}" for name, value in environment())
    missing = (f"  help: {f.name}: {f.help}" for f in found if not f.ok)
    return "\n".join((columns(rows, (False, False, False)), *variables, *missing))


def environment() -> Iterator[tuple[str, str]]:
    """Yields the variables of the environment that Hloom reads."""
    return ((name, value) for name, value in sorted(os.environ.items()) if name.startswith("HLOOM_"))
