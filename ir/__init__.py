"""What a program is: types, instructions, computations, modules, ops. Imports nothing else of Hloom."""
