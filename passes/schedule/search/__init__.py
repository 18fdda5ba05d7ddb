"""Problems of scheduling as numbers, without programs: exact search, greedy rules, lower bounds."""
