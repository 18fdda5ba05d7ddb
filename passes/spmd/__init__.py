"""SPMD partitioning: `partition` is the pass, `local_forms` are the ops that need more than themselves on tiles."""
