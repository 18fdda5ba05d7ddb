"""Saves the state of a program to a folder and loads it again, on any mesh and any number of ranks.

    hloom.checkpoint.save("steps", local, state, step=120)     # global arrays, of all devices in this process
    found = hloom.checkpoint.load("steps", local)              # the newest complete step
    state, step = found.arrays, found.step

`local` is a partitioned program and `state` its first parameters. On ranks both functions take `comm`, and the arrays
are local ones, a list for each device of the rank, as `hloom.run` takes them.

A step is a folder. Each rank writes a file of tiles, and each tile is written once, however many devices hold it.
`manifest.json` names types, dimensions and shardings, and has the place and the checksums of each tile. The folder is
written under another name and renamed when all of it is on the disk, so a folder named `step-N` is complete.
"""

from .api import load as load
from .api import save as save
from .read import LoadedStep as LoadedStep
from .step_folder import CheckpointError as CheckpointError
