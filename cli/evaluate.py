"""`hloom eval`: run a program as it stands on one device. Also the inputs and the summary of outputs of `hloom run`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..ir.diagnostics import fail
from ..ir.module import Module, Stage
from ..runtime.evaluator import evaluate
from ..runtime.inputs import inputs_for_module
from ..runtime.outputs import check_outputs, save_outputs
from .common import EXIT_OK, read_program

Array = np.ndarray[Any, Any]


def evaluate_command(args: argparse.Namespace) -> int:
    """Evaluates the program and writes or summarises what it returns."""
    module = read_program(args)
    if module.stage not in (Stage.GLOBAL, Stage.SHARDED):
        fail("the program is the part of one of several devices", help="`hloom run` runs it on all of them")
    if args.out is not None:
        check_outputs(Path(args.out))
    outputs = evaluate(module, inputs_for(args, module, args.seed))
    if args.out is not None:
        save_outputs(Path(args.out), outputs)
    print_outputs(outputs)
    return EXIT_OK


def inputs_for(args: argparse.Namespace, module: Module, seed: int) -> list[Array]:
    """What `--inputs` asks for: whole arrays for the parameters of a program. Raises CompileError."""
    return inputs_for_module(module, args.inputs, seed)


def print_outputs(outputs: Sequence[Array]) -> None:
    """One line for each output: type, dimensions, range."""
    for number, array in enumerate(outputs):
        print(f"output {number}: {_summary(array)}")


def _summary(array: Array) -> str:
    text = f"{array.dtype}[{','.join(map(str, array.shape))}]"
    if array.size == 0 or array.dtype.kind == "c":
        return text
    values = array.astype(np.float64)
    if array.size == 1:
        return f"{text} {values.reshape(-1)[0]:.6g}"
    return f"{text} min {values.min():.6g} mean {values.mean():.6g} max {values.max():.6g}"
