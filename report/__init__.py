"""Reports for people: tables of shardings and collectives, causes, pictures, budgets."""
