"""Computes instructions by native kernels."""
