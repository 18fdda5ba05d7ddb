"""Passes on programs: pipelines, the functions for embedders, and a folder for each kind of pass."""
