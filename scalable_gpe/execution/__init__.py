"""Execution of the loops over blocks: threads or a dask cluster, panels, memory plan, progress."""
