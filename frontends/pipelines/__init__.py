"""Pipeline schedules: the order in which stages work on micro-batches, checked and timed."""
