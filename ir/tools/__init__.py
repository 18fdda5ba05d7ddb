"""Tools that read programs or edit them without knowing any pass: printer, verifier, patterns, differences."""
