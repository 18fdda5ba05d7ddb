"""Schedules: the collectives of a per-device program bucketed, ordered and kept within a limit of memory."""
