"""Pieces sent directly: which devices receive what, and in how many rounds."""
