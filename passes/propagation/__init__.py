"""Sharding propagation: from a few annotations to a sharding for every value."""
