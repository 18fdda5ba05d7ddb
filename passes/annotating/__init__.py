"""Annotations from outside: strategies, and meshes of other sizes."""
