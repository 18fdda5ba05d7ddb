"""Solves scheduling problems in numbers, without programs: exact search, greedy rules, lower bounds."""
