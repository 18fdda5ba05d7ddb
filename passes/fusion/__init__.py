"""Fusion: groups of ops that one nest of loops computes become `fusion` instructions."""
