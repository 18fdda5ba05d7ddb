"""Parameters, tuples, control flow, manual regions and effects."""
