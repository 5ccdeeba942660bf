"""Speed benchmark: time and memory of one iteration, of start-up, and of whole registrations."""
