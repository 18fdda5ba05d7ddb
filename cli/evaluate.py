"""Implements `hloom eval`, which runs the program unpartitioned; shares inputs and summaries of outputs with `hloom
run`.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..driver.assumptions import remark_callbacks
from ..driver.backend import Backend
from ..ir.diagnostics import Diagnostics
from ..ir.graph.module import Module
from ..ir.tools.names import result_names
from ..ir.tools.unknown_values import require_values
from ..ir.types.element_type import from_numpy
from ..ir.types.literal import Array
from ..runtime.allocator import keep_freed_memory
from ..runtime.evaluator import evaluate, reference_grid
from ..runtime.fabric.tiles import same_bits
from ..runtime.inputs.inputs import inputs_for_module
from ..runtime.outputs import check_outputs, save_outputs
from ..runtime.plan.call_graph import live_in
from .exit_codes import EXIT_OK
from .messages import print_json, tell_found
from .streams import say, working

_MANY, _SHOWN = 16, 12  # outputs on a terminal


def evaluate_command(args: argparse.Namespace) -> int:
    """Evaluates the program and writes or summarises its results."""
    from .reading import read_program  # which loads the readers, and kept programs need none

    keep_freed_memory()
    module = read_program(args)
    reference_grid(module)  # rejects per-device programs before making inputs for them
    require_values(live_in(module.entry), "to run the program")  # which fusing may put into another order
    diagnostics = Diagnostics()
    remark_callbacks(module, diagnostics)
    backend = Backend.chosen(args.backend, module)
    backend.remark(diagnostics)
    tell_found(args, diagnostics.found, quiet=False)
    if args.out is not None:
        check_outputs(Path(args.out))
    with working("running on one device"):
        outputs = evaluate(backend.prepared(module), inputs_for(args, module, args.seed), backend.kernels())
    if args.out is not None:
        save_outputs(Path(args.out), outputs, result_names(module))
    if args.json:
        results = outputs_json(outputs, result_names(module))
        print_json({"program": module.name, "backend": backend.name, "outputs": results})
    else:
        print_outputs(outputs, result_names(module))
    return EXIT_OK


def inputs_for(args: argparse.Namespace, module: Module, seed: int) -> list[Array]:
    """Makes the inputs that `--inputs` describes: global arrays for the parameters of a program. Raises CompileError.
    """
    return inputs_for_module(module, args.inputs, seed)


def print_outputs(outputs: Sequence[Array], names: Sequence[str], per_device: Sequence[int] = ()) -> None:
    """Prints one line for each output: number, name, type, dimensions, range; of many only the first on a terminal. The
    first dimension of outputs in `per_device` counts devices: they get one line per device, unless all are equal.
    """
    shown = _SHOWN if sys.stdout.isatty() and len(outputs) > _MANY else len(outputs)
    for number, (array, name) in enumerate(zip(outputs[:shown], names, strict=False)):
        if number not in per_device:
            say(f"output {number} {name}: {_summary(array)}")
        elif same_bits(array, array[:1]).all():
            say(f"output {number} {name}, alike on {len(array)} devices: {_summary(array[0])}")
        else:
            for device, part in enumerate(array):
                say(f"output {number} {name}, device {device}: {_summary(part)}")
    if shown < len(outputs):
        say(f"{len(outputs) - shown} more outputs: --out DIR writes all, --json prints all")


def outputs_json(outputs: Sequence[Array], names: Sequence[str]) -> list[dict[str, object]]:
    """Returns a record for each output. Numbers that JSON cannot represent (NaN and infinities) are null."""
    return [
        {"name": name, "type": from_numpy(array.dtype).name, "dims": list(array.shape),
         **{what: number if math.isfinite(number) else None for what, number in _range(array).items()}}
        for array, name in zip(outputs, names, strict=True)
    ]


def _range(array: Array) -> dict[str, float]:
    """Returns least, mean and greatest of real numbers."""
    if array.size == 0 or array.dtype.kind == "c":
        return {}
    values = array.astype(np.float64)
    return {"min": float(values.min()), "mean": float(values.mean()), "max": float(values.max())}


def _summary(array: Array) -> str:
    text, found = f"{array.dtype}[{','.join(map(str, array.shape))}]", _range(array)
    shown = [f"{found['min']:.6g}"] if found and array.size == 1 else [f"{k} {v:.6g}" for k, v in found.items()]
    return " ".join((text, *shown))
