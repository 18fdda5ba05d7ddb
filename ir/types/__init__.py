"""Values and their types: element types, shapes, literals and their text."""
