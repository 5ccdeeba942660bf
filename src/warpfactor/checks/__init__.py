"""What is checked of inputs and of results."""
