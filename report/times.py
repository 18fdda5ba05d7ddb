"""Certified times as text for people."""

from __future__ import annotations

from ..passes.resharding.certificate import Certificate, ProgramCertificate


def times_text(found: Certificate | ProgramCertificate) -> str:
    """Returns the time that plans minimize, on which machine, and how far it is from a lower bound."""
    ratio = f"{found.time_ratio:.2f}" if found.bound_seconds else "-"
    return (f"minimized: time on {found.machine}, {found.seconds * 1e6:.3g} us; lower bound "
            f"{found.bound_seconds * 1e6:.3g} us, ratio {ratio}")  # fmt: skip
