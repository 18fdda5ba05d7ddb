"""Emits instructions on tiles: moves, exchanges, halos, and ops."""
