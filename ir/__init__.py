"""The intermediate representation: types, shardings, instructions, modules, ops. Imports no other part."""
