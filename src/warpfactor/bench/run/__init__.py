"""Running methods on cases, each run in a process of its own; benchmarks can be interrupted and resumed."""
