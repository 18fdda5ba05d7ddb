"""The models of the papers, in plain JAX: `MODELS` has each at a small size and at the paper's, as shapes only.

    from models import MODELS

    program = MODELS["dense_fsdp"].small()      # a `Program`: function, shapes of arguments, shardings
    local = hloom.partition(program.module)

Needs JAX and this folder's parent on the Python path.
"""

from .registry import MODELS as MODELS
