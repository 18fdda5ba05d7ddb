"""Programs as graphs: instructions, computations, modules, and the base class of ops with their attributes."""
