"""Count problems without edges: passes over binary trees, closed forms, characteristic functions."""
