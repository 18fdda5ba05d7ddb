"""Tells how much of a large machine does useful work when parts of it fail."""
