"""The ops, by family. Importing this package registers them all."""
