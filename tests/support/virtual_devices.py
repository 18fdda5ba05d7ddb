"""Virtual devices of XLA's CPU back end: eight, if asked for before XLA starts, and quick to compile for."""

from __future__ import annotations

import os

_FLAG = "--xla_force_host_platform_device_count"
# The older emitters of element-wise code compile three times as fast, and refuse what they do not know.
_QUICK = (
    ("--xla_backend_optimization_level", "=0"), ("--xla_llvm_disable_expensive_passes", "=true"),
    ("--xla_cpu_use_fusion_emitters", "=false"),
)  # fmt: skip


def eight_devices() -> None:
    """Gives XLA eight CPU devices, unless the environment says how many."""
    if _FLAG not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FLAG}=8".strip()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")


def quick_compilation() -> None:
    """Lets XLA make code soon that need not be fast: programs of tests are small, and run once."""
    given = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = " ".join([given, *(flag + value for flag, value in _QUICK if flag not in given)])
