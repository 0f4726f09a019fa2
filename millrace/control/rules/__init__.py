"""The rules by what they are about. Each takes (state, op, append time, partition) and gives (state, effects, answer)."""
