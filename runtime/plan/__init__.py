"""Plans: a module compiled to flat steps over numbered buffers, and the interpreter that runs them."""
