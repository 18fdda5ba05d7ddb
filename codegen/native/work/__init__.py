"""Counts the work of native code in a prepared program, for forecasts."""
