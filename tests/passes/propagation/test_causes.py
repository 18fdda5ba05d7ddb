"""Paths of digits back to their annotations end, whatever the causes are."""

from __future__ import annotations

import hloom
from hloom.ir.sharding.digit import Digit
from hloom.passes.propagation.causes import trace
from hloom.passes.propagation.values import Cause, Gain, Leaf


def test_a_path_of_causes_in_a_circle_ends_where_it_began() -> None:
    module = hloom.parse("HloModule m\nENTRY e { a = f32[8] parameter(0)  ROOT b = f32[8] negate(a) }")
    high, low = Digit(2, 2), Digit(2, 1)
    a, b = (Leaf(i.shape, i, ((high, low),), (False,), [[]]) for i in module.entry)
    via = module.entry.root
    a.causes[0] = [Gain((high,), Cause(via, b, 0)), Gain((low,), None)]
    b.causes[0] = [Gain((low,), Cause(via, a, 0)), Gain((high,), Cause(via, a, 0))]
    assert [leaf for leaf, _, _ in trace(b, 0, Digit(4, 1))] == [b, a]  # both digits as one
    assert [leaf for leaf, _, _ in trace(b, 0, low)] == [b, a]
    assert [cause for _, _, cause in trace(b, 0, low)][-1] is None
