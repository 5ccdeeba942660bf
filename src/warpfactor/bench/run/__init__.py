"""How: methods, workers, and runs that can be resumed."""
