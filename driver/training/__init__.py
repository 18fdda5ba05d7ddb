"""Trains: runs a step program again and again on its own results, with checkpoints, metrics and recovery."""
