"""The two images on their way through a registration: prepared, masked, brought to a level."""
