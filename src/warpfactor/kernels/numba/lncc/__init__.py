"""Local correlation on the CPU, tile by tile."""
