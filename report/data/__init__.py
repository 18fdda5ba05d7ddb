"""Makes the JSON value of a report."""
