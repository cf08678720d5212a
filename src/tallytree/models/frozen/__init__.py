"""Parts of a frozen distribution, one question each; `frozen_distribution.py` puts them together."""
