"""Recipes: everything that decides how two images are registered, as data."""
