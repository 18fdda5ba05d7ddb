"""Answers questions about programs, each in one place: which values a compiler fuses, and where devices agree."""
