"""The experiments of Tarlow et al. (2012), section 6, with their data, baselines and report.

Run them with ``python -m reproduction``, or from Python with :func:`reproduction.run.reproduce`.
"""
