"""Where the work runs: rows, blocks, store, compiled loops, checks of the input."""
