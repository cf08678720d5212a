"""Probability models that count."""
