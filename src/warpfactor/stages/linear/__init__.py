"""Translation, rigid, similarity and affine registration."""
