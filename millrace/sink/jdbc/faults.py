"""How far a failure of a MySQL-like database reaches: an exception in; ROW, TABLE or SINK out."""

import pymysql.err as driver

from millrace.model.errors import Invalid, MillraceError
from millrace.model.sinks import Fault, SinkFailed

# Out of range, cut, wrong moment, wrong text, null, too long, too large a row or packet, wrong JSON, a broken constraint.
ROW_CODES = frozenset({1048, 1062, 1118, 1153, 1264, 1265, 1292, 1301, 1366, 1367, 1406, 1411, 1690, 3140, 4025})
# Rights on a database, a table or a column; names that are not there, or too many or too much for the server.
TABLE_CODES = frozenset(
    {1044, 1049, 1050, 1054, 1060, 1064, 1071, 1075, 1091, 1101, 1103, 1113, 1117, 1142, 1143, 1146}
)


class JdbcFailed(Exception):
    """What a JDBC driver raised: the vendor's code, the SQLSTATE, and its words."""

    def __init__(self, code: int, state: str, message: str) -> None:
        super().__init__(code, f"{message} (SQLSTATE {state})")
        self.code = code
        self.state = state


def fault_of(error: BaseException) -> Fault:
    if isinstance(error, SinkFailed):
        return error.fault
    if isinstance(error, Invalid):
        return Fault.SINK if error.code == "private_target" else Fault.ROW
    if isinstance(error, MillraceError | OSError):
        return Fault.SINK
    if isinstance(error, JdbcFailed):
        return _by_code(error.code) or _by_state(error.state)
    if isinstance(error, driver.MySQLError):
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        return _by_code(code) or _by_class(error)
    return Fault.TABLE


def _by_code(code: int) -> Fault | None:
    if code in ROW_CODES:
        return Fault.ROW
    return Fault.TABLE if code in TABLE_CODES else None


def _by_class(error: driver.MySQLError) -> Fault:
    match error:
        case driver.DataError() | driver.IntegrityError():
            return Fault.ROW
        case driver.ProgrammingError() | driver.NotSupportedError():
            return Fault.TABLE
    return Fault.SINK


def _by_state(state: str) -> Fault:
    """The first two characters of a SQLSTATE are its class, the same for every vendor."""
    match state[:2]:
        case "22" | "23" | "21" | "44":
            return Fault.ROW
        case "42" | "0A" | "3D" | "3F" | "07":
            return Fault.TABLE
    return Fault.SINK
