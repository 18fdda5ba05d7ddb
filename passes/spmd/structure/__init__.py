"""Structure: parameters, tuples, control flow, manual regions and effects."""
