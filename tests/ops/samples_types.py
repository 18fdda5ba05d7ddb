"""Samples of the ops that move or combine elements, with types of every class: the first program of their templates.

Beside XLA `test_type_coverage` runs more of them; these are for the other tests of all samples.
"""

from __future__ import annotations

from ops.typed_programs import accepted

_MOVING = ("broadcast", "concatenate", "copy", "dynamic-slice", "dynamic-update-slice", "gather", "pad", "reshape",
           "reverse", "select", "slice", "transpose")  # fmt: skip
_COMBINING = ("convolution", "dot", "reduce", "reduce-window", "scatter", "select-and-scatter", "sort")
_ELEMENTS = {
    **dict.fromkeys(_MOVING, ("pred", "s4", "u8", "s64", "f8e4m3fn", "f16", "bf16", "f64", "c64")),
    **dict.fromkeys(_COMBINING, ("s8", "u8", "u32", "s64", "f16", "bf16", "f64", "c64")),
}

SAMPLES = {
    opcode: [accepted(opcode)[e][0].module.to_text() for e in elements if e in accepted(opcode)]
    for opcode, elements in _ELEMENTS.items()
}
