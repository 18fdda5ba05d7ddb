"""Schedules the collectives of a per-device program: combines them, orders them, and respects a memory limit."""
