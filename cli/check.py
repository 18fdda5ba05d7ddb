"""Implements `hloom run --check`: compares the partitioned run with the unpartitioned program, for one or several
seeds.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ..driver.devices import Devices
from ..ir.diagnostics import CompileError
from ..ir.graph.module import Module
from ..runtime.check.check import CheckVerdict, WideRun, judge, wide_program
from ..runtime.check.errors import LargestError
from ..runtime.check.reference import Reference
from ..runtime.evaluator import UnpartitionedProgram
from ..runtime.inputs.inputs import KINDS
from ..runtime.ranks.failed import RankFailed

Array = np.ndarray[Any, Any]


def verify_options(args: argparse.Namespace) -> None:
    """Raises argparse.ArgumentTypeError for options of a check that have no effect."""
    if not args.check:
        given = {"--tolerance": args.tolerance is not None, "--allow-nan": args.allow_nan, "--seeds": args.seeds > 1}
        for option in (option for option, is_given in given.items() if is_given):
            raise argparse.ArgumentTypeError(f"{option} needs --check")
    if args.seeds > 1 and (args.inputs in KINDS[1:] or Path(args.inputs).exists()):
        raise argparse.ArgumentTypeError(f"--seeds {args.seeds}: --inputs {args.inputs} are the same for each seed")


def check(
    args: argparse.Namespace, program: UnpartitionedProgram | None, local: Module, inputs: list[Array],
    outputs: list[Array] | None, devices: Devices,
) -> CheckVerdict | None:  # fmt: skip
    """Judges the results of a partitioned run. Returns None on all processes but the first, which has the unpartitioned
    program.
    """
    reference = Reference(program, inputs) if program is not None else None
    wide = wide_program(reference, local) if reference is not None else None
    if devices.share(wide is not None):
        wide = wide or WideRun.of(local, inputs)
    in_f64, problem = _run_wide(wide, devices)
    if reference is None or outputs is None:
        return None
    if problem:
        reference.give_up(problem)
    count = local.num_partitions * local.replica_count
    return judge(reference, outputs, in_f64, count, args.tolerance, args.allow_nan)


def verdict_json(verdict: CheckVerdict) -> dict[str, Any]:
    """Returns a verdict as a record. Infinite errors, which JSON cannot represent, are null."""

    def worst(found: LargestError | None) -> dict[str, Any] | None:
        return found and {**asdict(found), "error": found.error if math.isfinite(found.error) else None}

    errors = {name: worst(getattr(verdict, name)) for name in ("in_f64", "own", "one_device")}
    return {"passed": verdict.passed, **asdict(verdict), **errors}


def _run_wide(wide: WideRun | None, devices: Devices) -> tuple[list[Array] | None, str]:
    if wide is None:
        return None, ""
    try:
        return devices.run(wide.program, wide.inputs, poison=True), ""
    except CompileError as error:
        return None, error.diagnostics[0].message
    except RankFailed as error:
        if not error.reported:
            raise
        return None, error.message  # that rank continues as this one does
