"""Starts jobs of MPI ranks, and ends the wait of all ranks when one fails."""
