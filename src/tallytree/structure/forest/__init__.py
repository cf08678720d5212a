"""Edges between variables: which groups fit them, and in which order clusters are contracted."""
