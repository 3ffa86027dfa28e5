"""Compiled loops, one module per concern; numba is imported with them, never before."""
