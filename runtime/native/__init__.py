"""Runs instructions by native kernels."""
