"""Rejects what cannot be partitioned; reports what partitioning costs."""
