"""Compiles programs to run, and plans them: partitions, schedules, and chooses the backend that computes them."""
