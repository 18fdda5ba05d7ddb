"""Starts a program of the tests on ranks, without what it imports: `python on_ranks.py PROGRAM RANKS CASE [MORE]`."""

from __future__ import annotations

import sys

from hloom.runtime.ranks.launch import launch

if __name__ == "__main__":
    program, ranks, *arguments = sys.argv[1:]
    sys.exit(launch(arguments, int(ranks), [program]))
