"""What people read: tables of shardings and collectives, causes, pictures, budgets."""
