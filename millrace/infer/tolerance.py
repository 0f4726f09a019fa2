"""How many cells of a column may contradict the type that all others have."""

_HANDFUL = 5
_HANDFUL_SHARE, _MANY_SHARE = 10, 100


def tolerated(cells: int) -> int:
    """One of a hundred cells; in small columns up to five, if they are at most a tenth."""
    return max(cells // _MANY_SHARE, min(_HANDFUL, cells // _HANDFUL_SHARE))
