"""Finds the sharding of a program that costs least on a machine."""
