"""Datasets: tables of image pairs, Learn2Reg folders, folders of several kinds of images, and phantoms."""
