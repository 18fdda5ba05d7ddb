"""Implements `hloom doctor`: lists the parts of an installation, and the needs of those that are missing."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ..driver.installation import environment, installation
from ..report.columns import columns
from ..report.terminal import say
from .exit_codes import EXIT_OK
from .messages import print_json


def doctor(args: argparse.Namespace) -> int:
    """Prints the findings, or JSON."""
    found = installation()
    if args.json:
        print_json({"findings": [asdict(f) for f in found], "environment": dict(environment())})
        return EXIT_OK
    say(columns([(f.name, "ok" if f.ok else "missing", f.found) for f in found], (False, False, False)))
    for name, value in environment():
        say(f"{name}={value}")
    for finding in found:
        if not finding.ok:
            say(f"  help: {finding.name}: {finding.help}")
    return EXIT_OK
