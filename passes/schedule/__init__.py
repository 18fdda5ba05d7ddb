"""Schedules the collectives of a per-device program: combines them in buckets, orders them, and respects a memory
limit.
"""
