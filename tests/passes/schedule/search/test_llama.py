"""The backward pass of Llama 3.1 8B, whose figures were computed by another program (labels of the same kind, in C++).

The other program gathers a whole bucket when memory holds it; plans here divide buckets that it does not hold, and may
be faster for that. Its exact search had a window of 12 tensors.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from typing import Any

import pytest
from hloom.passes.schedule.search.arrange import arrange
from hloom.passes.schedule.search.best import best_schedule
from hloom.passes.schedule.search.bounds import lower_bound
from hloom.passes.schedule.search.heuristics import XLA_BYTES, capped, in_groups, per_tensor, simplefsdp
from support.import_graph import ROOT


def _problems() -> Any:
    spec = importlib.util.spec_from_file_location("llama_problems", ROOT / "bench" / "llama_problems.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


# devices, latency us, GB/s, tokens; milliseconds: bound, best known, simplefsdp, per layer, XLA's rule, per tensor
ROWS = [
    (8, 30, 394, 2048, 126.5, 126.7, 127.5, 130.1, 162.0, 165.3),
    (8, 30, 394, 16384, 965.3, 965.3, 965.4, 966.4, 988.0, 988.0),
    (64, 150, 298, 512, 108.1, 112.6, 196.8, 118.8, 187.2, 196.8),
    (64, 150, 298, 2048, 128.5, 130.6, 133.6, 136.2, 211.6, 222.1),
    (256, 564, 295, 2048, 129.4, 133.9, 413.4, 154.6, 407.7, 443.8),
    (256, 564, 295, 8192, 488.9, 489.0, 490.7, 491.3, 633.5, 670.5),
]


@pytest.mark.parametrize("row", [ROWS[2], *(pytest.param(r, marks=pytest.mark.slow) for r in ROWS[:2] + ROWS[3:])])
def test_figures(row: tuple[float, ...]) -> None:
    devices, latency, bandwidth, tokens, bound, best, simple, layer, xla, tensor = row
    llama = _problems()
    setting = llama.Setting(devices, latency * 1e-6, bandwidth * 1e9, tokens, 3.6e9)
    problem, layers = llama.backward(llama.MODELS[0], setting)

    def milliseconds(buckets: Any) -> float:
        found = arrange(problem, buckets)
        assert found.is_within
        return found.seconds * 1e3

    assert milliseconds(per_tensor(problem)) == pytest.approx(tensor, rel=1e-3)
    assert milliseconds(capped(problem, XLA_BYTES, alone=True)) == pytest.approx(xla, rel=1e-3)
    assert milliseconds(simplefsdp(problem)) == pytest.approx(simple, rel=1e-3)
    assert layer * 0.98 <= milliseconds(in_groups(problem, layers, layers)) <= layer * 1.001
    found = best_schedule(problem, layers, layers, budget=0, trials=200)
    assert bound * 0.999 <= found.bound * 1e3
    assert found.bound * 1e3 <= found.outcome.seconds * 1e3 <= best * 1.01


@pytest.mark.parametrize("row", ROWS[2:5])
def test_two_layers_are_proven(row: tuple[float, ...]) -> None:
    """21 tensors: gathers of the best plans run further ahead than the search's first window."""
    devices, latency, bandwidth, tokens = row[:4]
    llama = _problems()
    setting = llama.Setting(devices, latency * 1e-6, bandwidth * 1e9, min(tokens, 8192), 3.6e9)
    problem, layers = llama.backward(replace(llama.MODELS[0], layers=2), setting)
    found = best_schedule(problem, layers, layers)
    assert found.is_proven
    assert lower_bound(problem) <= found.outcome.seconds * (1 + 1e-9)
    assert found.outcome.seconds <= arrange(problem, in_groups(problem, layers, layers)).seconds
