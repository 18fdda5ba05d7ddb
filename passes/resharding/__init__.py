"""Resharding: plans of moves from one tiling to another, found by search or by pieces sent directly."""
