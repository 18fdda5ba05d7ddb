"""How one op is divided among devices. Decides, never emits."""
