"""Cuts uploads while their bytes arrive: bytes in, pieces of whole rows out. Each piece can be read on its own."""
