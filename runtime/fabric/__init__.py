"""Moves data between devices: fabrics, the reference meaning of collectives, and tiles of global arrays."""
