"""`register`, what it takes, what it returns, and the folder a result is saved to."""
