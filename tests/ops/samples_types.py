"""Samples of the ops that move or combine elements, with types of every class: the first program of their templates.

Beside XLA `test_type_coverage` runs more of them; these are for the other tests of all samples.
"""

from __future__ import annotations

from ops.typed_programs import first_accepted

_MOVING = ("broadcast", "concatenate", "copy", "dynamic-slice", "dynamic-update-slice", "gather", "pad", "reshape",
           "reverse", "select", "slice", "transpose")  # fmt: skip
_COMBINING = ("convolution", "dot", "reduce", "reduce-window", "scatter", "select-and-scatter", "sort")
_ELEMENTS = {
    **dict.fromkeys(_MOVING, ("pred", "s4", "u8", "s64", "f8e4m3fn", "f16", "bf16", "f64", "c64")),
    **dict.fromkeys(_COMBINING, ("s8", "u8", "u32", "s64", "f16", "bf16", "f64", "c64")),
}

SAMPLES = {
    opcode: [p.module.to_text() for e in elements if (p := first_accepted(opcode, e)) is not None]
    for opcode, elements in _ELEMENTS.items()
}
