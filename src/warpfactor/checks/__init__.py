"""Checks of inputs and of results: each gives a code, a level and the facts behind it; sentences are made in show/."""
