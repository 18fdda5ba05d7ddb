"""The search for the cheapest mesh collectives: states, steps, the A* search and its lower bound."""
