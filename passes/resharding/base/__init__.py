"""The moves of plans, and where the tiles are that they move."""
