"""The moves of resharding plans, and the location of the tiles that they move."""
