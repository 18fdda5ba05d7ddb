"""Jobs of MPI ranks: starting them, and ending the wait of all when one fails."""
