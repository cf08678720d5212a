"""Static structure: nested families of groups and the binary trees that inference runs on."""
