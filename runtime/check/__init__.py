"""Checks whether a partitioned program computes the same numbers as the unpartitioned one: see `check`."""
