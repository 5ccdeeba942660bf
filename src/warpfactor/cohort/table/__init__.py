"""What a cohort consists of: rows from a table, images with a template or a BIDS dataset, and their checks."""
