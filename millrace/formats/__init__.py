"""Uploads into row-aligned pieces while their bytes arrive: bytes in, self-contained pieces out."""
