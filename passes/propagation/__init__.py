"""Sharding propagation, and the passes that prepare it."""
