"""Virtual devices of XLA's CPU back end: eight, if asked for before XLA starts."""

from __future__ import annotations

import os

_FLAG = "--xla_force_host_platform_device_count"


def eight_devices() -> None:
    """Gives XLA eight CPU devices, unless the environment says how many."""
    if _FLAG not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FLAG}=8".strip()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
