"""Custom-calls by target: LAPACK's routines, Householder products, sparse products and user-defined ones."""

from . import custom_call as custom_call
