"""Fabrics: who moves data between devices, what collectives mean, and tiles of global arrays."""
