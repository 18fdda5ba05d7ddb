"""Implements `hloom eval`, which runs the program unpartitioned; shares summaries of outputs with `hloom run`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..driver.assumptions import remark_callbacks
from ..driver.backend import Backend
from ..ir.diagnostics import Diagnostics
from ..ir.tools.names import result_names
from ..ir.tools.unknown_values import require_values
from ..ir.types.literal import Array
from ..report.progress import working
from ..report.terminal import say
from ..runtime.allocator import keep_freed_memory
from ..runtime.evaluator import evaluate, reference_grid
from ..runtime.inputs.inputs import inputs_for_module
from ..runtime.outputs import check_outputs, outputs_record, outputs_text, save_outputs
from ..runtime.plan.call_graph import live_in
from .exit_codes import EXIT_OK
from .messages import print_json, tell_found

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
    tell_found(args, diagnostics.found)
    if args.out is not None:
        check_outputs(Path(args.out))
    with working("running on one device"):
        inputs = inputs_for_module(module, args.inputs, args.seed)
        outputs = evaluate(backend.prepared(module), inputs, backend.kernels())
    if args.out is not None:
        save_outputs(Path(args.out), outputs, result_names(module))
    if args.json:
        results = outputs_record(outputs, result_names(module))
        print_json({"program": module.name, "backend": backend.name, "outputs": results})
    else:
        print_outputs(outputs, result_names(module))
    return EXIT_OK


def print_outputs(outputs: Sequence[Array], names: Sequence[str], per_device: Sequence[int] = ()) -> None:
    """Prints the lines of `outputs_text`, of many outputs only those of the first on a terminal."""
    shown = _SHOWN if sys.stdout.isatty() and len(outputs) > _MANY else len(outputs)
    for line in outputs_text(outputs[:shown], names, per_device):
        say(line)
    if shown < len(outputs):
        say(f"{len(outputs) - shown} more outputs: --out DIR writes all, --json prints all")
