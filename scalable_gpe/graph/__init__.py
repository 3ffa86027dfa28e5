"""From rows to neighbours: duplicates, search, symmetrising, recall."""
