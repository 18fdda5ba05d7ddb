"""The index spaces of ops: sharding rules, their texts, and what an index of a factor reads."""
