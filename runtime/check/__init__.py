"""Whether a partitioned program gives the numbers of the unpartitioned one: see `check`."""
