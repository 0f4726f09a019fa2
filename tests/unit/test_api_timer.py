"""Jobs of the server that are done again and again."""

from threading import Event

from millrace.api.jobs.timer import repeat


def test_each_job_is_repeated_at_its_own_pace_until_the_platform_stops() -> None:
    done: list[str] = []
    stopping = Event()

    def often() -> None:
        done.append("often")
        if len(done) == 3:
            stopping.set()

    repeat({often: 0.001, lambda: done.append("seldom"): 3600.0}, stopping)
    assert done == ["often"] * 3
