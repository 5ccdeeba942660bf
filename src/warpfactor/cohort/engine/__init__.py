"""The engine: where jobs run. Scheduling is Dask's; it is imported only when an engine is opened."""
