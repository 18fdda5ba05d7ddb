"""How arrays lie on devices: digits of device numbers, meshes, shardings as written and tilings as meant."""
