"""Time and memory of an iteration and of a whole run."""
