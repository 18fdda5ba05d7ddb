"""What programs cost: the machine, what collectives move, the collectives of a program, trips of loops."""
