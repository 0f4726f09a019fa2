"""How much a file may swell when it is decoded. A bomb grows past 64 MiB and to over 500 times its size."""

from millrace.model.errors import TooLarge

MAX_RATIO = 500
FREE_BYTES = 64 << 20
# What a row counts for at least: rows may take no bytes at all, and each still costs those who judge it.
ROW_WEIGHT = 8
_MIB = 1 << 20


def refuse_bomb(what: str, verb: str, read: int, given: int) -> None:
    if given > FREE_BYTES and given > MAX_RATIO * read:
        raise TooLarge(
            f"{what} {verb} to more than {FREE_BYTES // _MIB} MiB at over {MAX_RATIO} times its size.",
            remedy="Send it without compression, or as CSV.",
        )
