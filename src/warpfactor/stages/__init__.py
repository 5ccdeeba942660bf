"""The stages of a registration: linear, then greedy deformable."""
