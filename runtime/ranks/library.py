"""Imports the MPI library through mpi4py when it is first used."""

from __future__ import annotations

import os
from typing import Any

# What one-sided transfers of Open MPI leave out, unless the user chooses: Hloom only shares memory within a node. UCX
# would print an error, without cause, and libfabric would take a second of each start to look for networks.
ONE_SIDED = {"OMPI_MCA_osc": "^ucx", "OMPI_MCA_btl": "^ofi"}
EXIT_MPI_MISSING = 69  # EX_UNAVAILABLE of sysexits.h


class MpiMissing(Exception):
    """MPI cannot be used: a library or the launcher is missing, or they belong to different MPIs."""

    exit_code = EXIT_MPI_MISSING


def load_mpi() -> Any:
    """Imports `mpi4py.MPI`, which initialises MPI. Raises MpiMissing."""
    for name, value in ONE_SIDED.items():
        os.environ.setdefault(name, value)
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise MpiMissing(f"mpi4py cannot be imported ({error}); pip install 'hloom[mpi]'") from error
    except RuntimeError as error:
        raise MpiMissing(f"mpi4py finds no MPI library ({error}); pip install 'hloom[mpi]'") from error
    return MPI
