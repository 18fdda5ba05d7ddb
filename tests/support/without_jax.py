"""Hides JAX, a plugin of pytest: `PYTHONPATH=tests pytest -p support.without_jax`. Tests then skip, none fails."""

import sys
from typing import Any

modules: dict[str, Any] = sys.modules
modules.update(jax=None, jaxlib=None)  # importing a module that is None raises ModuleNotFoundError
