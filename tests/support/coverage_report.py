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
    total = combined.report(file=text)
    combined.xml_report(outfile="build/coverage/coverage.xml")
    return f"{text.getvalue()}\ncovered: {total:.1f} %"
