"""Rewrites the collectives of per-device programs: changes their kinds, merges them, and moves them out of loops."""
