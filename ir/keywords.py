"""The words of HLO text that name something only behind a `%`, besides element types."""

KEYWORDS = frozenset((
    "true", "false", "inf", "HloModule", "ENTRY", "ROOT", "maximal", "replicated", "manual", "last_tile_dim_replicate",
    "shard_as", "shard_like", "unknown", "unreduced", "nan",
))  # fmt: skip
