"""Inference on trees: choice of method, executors, certificates.

Every executor answers the same question. Variables are independent with log-odds ``nu`` (in [-inf, inf]), log-tables
``log f_k`` are packed in the order of the tree's sets, and the result is a :class:`~tallytree.engine.answer.Answer`.
"""
