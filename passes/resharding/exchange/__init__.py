"""Exchanges: resharding by sending the missing pieces directly."""
