"""Rewrites of collectives in per-device programs: other kinds, fewer of them, outside of loops."""
