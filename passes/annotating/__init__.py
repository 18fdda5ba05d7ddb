"""Shardings from outside the program: strategies, other meshes."""
