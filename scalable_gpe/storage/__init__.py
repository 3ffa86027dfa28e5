"""Storage of results: arrays in memory or in a zarr store, commits, locks, scratch."""
