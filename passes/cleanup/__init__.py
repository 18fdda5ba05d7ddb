"""Rewrites that know nothing of devices, on the whole program."""
