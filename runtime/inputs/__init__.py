"""Makes inputs of runs: random numbers in the ranges that the program needs, and arrays from files."""
