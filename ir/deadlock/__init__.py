"""Finds where the devices of a per-device program may wait for each other for ever."""
