"""Index spaces of ops: sharding rules, their textual syntax, and the operand elements that each index reads."""
