"""Relates the values of a partitioned program to those of the original, by one run of both over the field."""
