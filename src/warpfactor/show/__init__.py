"""What people look at: planes, notebooks, plots and reports."""
