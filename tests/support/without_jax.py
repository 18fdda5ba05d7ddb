"""Hides JAX from the tests, a plugin of pytest: `PYTHONPATH=tests pytest -p support.without_jax`. They skip, none fails."""

import sys

sys.modules.update(dict.fromkeys(("jax", "jaxlib")))  # importing a module that is None raises ModuleNotFoundError
