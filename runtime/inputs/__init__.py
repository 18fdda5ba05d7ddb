"""Inputs: random numbers that mean something to the program, and arrays from files."""
