"""Proves that a partitioned program computes what the original does, by running both over a finite field."""
