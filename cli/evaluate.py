"""Implements `hloom eval`, which runs the program unpartitioned."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..driver.assumptions import remark_callbacks
from ..driver.backend import Backend
from ..ir.diagnostics import Diagnostics
from ..ir.tools.names import result_names
from ..ir.tools.unknown_values import require_values
from ..report.progress import working
from ..report.terminal import say
from ..runtime.allocator import keep_freed_memory
from ..runtime.evaluator import evaluate, reference_grid
from ..runtime.inputs.inputs import inputs_for_module
from ..runtime.outputs import check_outputs, outputs_record, outputs_text, save_outputs
from ..runtime.plan.call_graph import live_in
from .exit_codes import EXIT_OK
from .messages import print_json, tell_found
from .reading import read_program


def evaluate_command(args: argparse.Namespace) -> int:
    """Evaluates the program and writes or summarises its results."""
    keep_freed_memory()
    module = read_program(args)
    reference_grid(module)  # rejects programs before making inputs for them
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
    names = result_names(module)
    if args.out is not None:
        save_outputs(Path(args.out), outputs, names)
    if args.json:
        print_json({"program": module.name, "backend": backend.acting, "outputs": outputs_record(outputs, names)})
        return EXIT_OK
    for line in outputs_text(outputs, names, short=sys.stdout.isatty()):
        say(line)
    return EXIT_OK
