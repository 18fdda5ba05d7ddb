"""Compiles programs to run: partitions, schedules, and chooses the backend that computes them (`compile`)."""
