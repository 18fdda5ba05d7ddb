"""The search for the cheapest plan of mesh collectives: states, steps, A* and its lower bound."""
