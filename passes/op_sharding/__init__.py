"""How one op is divided: decides, and never emits."""
