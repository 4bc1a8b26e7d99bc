"""What a sweep's job says at its start: which it is, and how long the rest will take."""

from rlmem.analysis.show.status import read_status
from rlmem.config.sweep_place import Place
from rlmem.errors import UserError
from rlmem.units import readable_seconds


def job_line(place: Place) -> str:
    """job 3 of 100, about 12 min left: memory=per seed=2; the first one names the folder too."""
    try:
        left = read_status(place.sweep).seconds_left
    except (UserError, OSError):
        left = None
    rest = f", about {_roughly(left)} left" if left else ""
    folder = f"sweep: {place.sweep}\n" if place.first else ""
    return f"{folder}{place.name}{rest}: {' '.join(place.overrides)}"


def _roughly(seconds: float) -> str:
    """Minutes above a minute: a guess has no seconds.

    >>> _roughly(725), _roughly(41.3), _roughly(8000)
    ('12 min', '41 s', '2 h 13 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    said = readable_seconds(seconds)
    return said if "min" not in said or "h" in said else f"{round(seconds / 60)} min"
