"""Writes the page of a report: one file that asks nothing of any server."""
