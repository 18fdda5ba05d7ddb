"""What programs cost: collectives and their bytes, trips of loops, the weights of choices."""
