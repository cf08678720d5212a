"""Nested families of groups and the binary trees that count inference runs on."""
