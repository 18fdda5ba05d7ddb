"""Defines the exit codes of the command line; `__main__` describes them, and errors of other parts have their own."""

EXIT_OK = 0
EXIT_CHECK_FAILED = 1
EXIT_USAGE = 2
EXIT_UNPROVED = 3
EXIT_TESTED = 4
EXIT_BAD_INPUT = 65  # as the next three, of sysexits.h
EXIT_INTERNAL = 70
EXIT_MEMORY = 71
EXIT_OUTPUT = 74
EXIT_INTERRUPTED = 130
