"""A tenant that attacks: its program inside the confinement, links from outside, and what must have stayed as it was."""
