"""Distribution of arrays over devices: digits of device numbers, meshes, shardings (syntax) and tilings (semantics)."""
