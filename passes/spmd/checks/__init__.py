"""Rejects programs that cannot be partitioned, and reports what partitioning costs."""
