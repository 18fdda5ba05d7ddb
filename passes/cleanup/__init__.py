"""Clean-up: passes that make a program smaller and leave its meaning alone."""
