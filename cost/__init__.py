"""Cost models: the machine, the traffic of collectives, the collectives of a program, trip counts of loops."""
