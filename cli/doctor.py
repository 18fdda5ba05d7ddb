"""Implements `hloom doctor`: lists the parts of an installation, and the needs of those that are missing."""

from __future__ import annotations

import argparse
from functools import partial

from ..driver.installation import installation, installation_record, installation_text
from .messages import answer


def doctor(args: argparse.Namespace) -> int:
    """Prints the findings, or JSON."""
    found = installation()
    return answer(args, partial(installation_record, found), partial(installation_text, found))
