"""Segmentation by atlases: labelled images are registered to an image, and their labels fused."""
