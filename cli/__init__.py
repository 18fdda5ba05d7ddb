"""The commands of the command line: what each does once its arguments are read."""
