"""Instructions on tiles: the emitter, moves, exchanges, halos, and ops on tiles."""
