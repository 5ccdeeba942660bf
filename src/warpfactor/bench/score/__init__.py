"""What the results are worth: scores, statistics, tables."""
