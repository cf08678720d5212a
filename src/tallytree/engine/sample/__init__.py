"""Exact joint samples of count problems."""
