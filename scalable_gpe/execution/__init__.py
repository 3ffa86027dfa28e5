"""Who runs the loops over blocks: threads or a dask cluster, panels, memory, progress."""
