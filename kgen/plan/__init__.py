"""How a group runs: roles, program axes, tiles and loops."""
