"""States the layouts of Fourier transforms, which XLA's CPU runtime takes in one order of dimensions only.

The compiler (XLA of jaxlib 0.10) gives a transform the layout that its user would like to have, for example the one of
a gather along the last dimension, and then the runtime refuses it.

    before:  f = c64[12,5] fft(x), fft_type=RFFT, fft_length={12,9}
    after:   f = c64[12,5] fft(x), fft_type=RFFT, fft_length={12,9}
             g = c64[12,5]{1,0} custom-call(f), custom_call_target="LayoutConstraint",
                   operand_layout_constraints={c64[12,5]{1,0}}
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.graph.computation import Computation
from ..ir.graph.instruction import Instruction
from ..ir.graph.module import Module
from ..ir.tools.pattern import Bindings, P, edited
from ..ir.types.shape import Layout

_TRANSFORM = P("fft").where(lambda i: i.shape.rank > 1)


def with_fft_layouts(module: Module) -> Module:
    """Returns a copy whose transforms have their first dimension outermost; the module itself if it has none."""
    return edited(module, _TRANSFORM, _state_layout)


def _state_layout(computation: Computation, transform: Instruction, _: Bindings) -> None:
    shape = replace(transform.shape.without_layout(), layout=Layout(tuple(reversed(range(transform.shape.rank)))))
    with computation.at(after=transform):
        stated = computation.build(
            "custom-call", transform, shape=shape, like=transform, custom_call_target="LayoutConstraint",
            operand_layout_constraints=(shape,),
        )  # fmt: skip
    stated.sharding = transform.sharding
    computation.replace_all_uses(transform, stated)
    computation.set_operand(stated, 0, transform)  # which is one of the uses
