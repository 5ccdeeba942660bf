"""`register`, its inputs, its result, and the folder that a result is saved to."""
