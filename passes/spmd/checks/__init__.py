"""Rejects programs that cannot be partitioned, and reports the costs of partitioning."""
