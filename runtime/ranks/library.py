"""Imports the MPI library through mpi4py when it is first used."""

from __future__ import annotations

import os
from typing import Any

# In Open MPI: otherwise UCX prints an error, without cause, when ranks of a node share memory.
WITHOUT_UCX = ("OMPI_MCA_osc", "^ucx")
EXIT_MPI_MISSING = 69  # EX_UNAVAILABLE of sysexits.h


class MpiMissing(Exception):
    """MPI cannot be used: a library or the launcher is missing, or they belong to different MPIs."""

    exit_code = EXIT_MPI_MISSING


def load_mpi() -> Any:
    """Imports `mpi4py.MPI`, which initialises MPI. Raises MpiMissing."""
    os.environ.setdefault(*WITHOUT_UCX)
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise MpiMissing(f"mpi4py cannot be imported ({error}); pip install 'hloom[mpi]'") from error
    except RuntimeError as error:
        raise MpiMissing(f"mpi4py finds no MPI library ({error}); pip install 'hloom[mpi]'") from error
    return MPI
