"""Exact inference for overlapping count factors, by a frontier of counts."""
