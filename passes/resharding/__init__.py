"""Resharding: plans of moves from one tiling to another, found by search or as direct exchanges of pieces."""
