"""The coverage report of a run under `coverage run`, child processes included, for the end of pytest's output."""

import io

import coverage


def current_report() -> str | None:
    """None when nobody measures."""
    measuring = coverage.Coverage.current()
    if measuring is None:
        return None
    measuring.stop()
    measuring.save()
    combined = coverage.Coverage()
    combined.combine()
    text = io.StringIO()
    try:
        total = combined.report(file=text)
    except coverage.CoverageException as unreadable:
        return f"no report: {unreadable}"
    return f"{text.getvalue()}\ncovered: {total:.1f} %"
