"""Evaluation of runs: scores, statistics, tables and plots."""
