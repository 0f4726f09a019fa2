"""Which token made which: a token that is revoked takes those with it that were made with it."""

from collections.abc import Sequence

from sqlalchemy import Connection, delete, select

from millrace.model.errors import Unauthorised
from millrace.store import tables as t
from millrace.store.engine import insert_new
from millrace.store.tables import grants, token_makers


def note_maker(connection: Connection, digest: str, maker: str) -> None:
    """Refuses a maker that was revoked since its request began: its tokens are already gone."""
    if connection.execute(select(t.tokens.c.digest).where(t.tokens.c.digest == maker)).first() is None:
        raise Unauthorised("Your token was revoked.", remedy="Ask an admin or an operator for another.")
    insert_new(connection, token_makers, [{"digest": digest, "maker": maker}])


def made_with(connection: Connection, digest: str) -> list[str]:
    """The digest, and those of all tokens that were made with it, or with one of these."""
    found, makers = [digest], [digest]
    while makers:
        made = select(token_makers.c.digest).where(token_makers.c.maker.in_(makers))
        makers = list(connection.execute(made).scalars())
        found += makers
    return found


def delete_tokens(connection: Connection, digests: Sequence[str]) -> None:
    for kept in (t.tokens, grants, token_makers):
        connection.execute(delete(kept).where(kept.c.digest.in_(digests)))
