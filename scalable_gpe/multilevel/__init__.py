"""Solutions of (I - cA) X = B by two levels: rows, and aggregates of neighbouring rows."""
