"""Shapes, frames, images and transforms: objects only, no files."""
