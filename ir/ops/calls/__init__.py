"""Custom-calls by target: LAPACK's routines, Householder products, sparse products and those of users."""
