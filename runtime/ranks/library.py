"""The MPI library as mpi4py has it, imported when it is first used."""

from __future__ import annotations

from typing import Any

EXIT_MPI_MISSING = 69  # EX_UNAVAILABLE of sysexits.h


class MpiMissing(Exception):
    """MPI cannot be used: a library or the launcher is not there, or they do not belong together."""

    exit_code = EXIT_MPI_MISSING


def load_mpi() -> Any:
    """The module `mpi4py.MPI`; importing it initialises MPI. Raises MpiMissing."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise MpiMissing(f"mpi4py cannot be imported ({error}); pip install 'hloom[mpi]'") from error
    except RuntimeError as error:
        raise MpiMissing(f"mpi4py finds no MPI library ({error}); pip install 'hloom[mpi]'") from error
    return MPI
