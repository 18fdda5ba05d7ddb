"""Compiles modules to plans, flat steps over numbered buffers, and interprets them."""
