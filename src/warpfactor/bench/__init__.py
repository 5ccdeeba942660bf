"""Benchmarks: datasets, methods and peers, runs that can be resumed, scores, statistics, tables and figures."""
