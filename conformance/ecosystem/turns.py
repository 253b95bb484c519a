"""Whose turn it is in `make test`: a suite of the short ones each day."""

import time

# Quick ones, of registries that CI installs from: each takes less than a minute of processor time once it is prepared. Not among them: `etcd3`, which
# writes to one of three members and reads from another, serializable, so that it fails on etcd too when the machine is busy; `aetcd`, which also runs on
# three members; `etcd-sdk-python`, which took a minute and a half.
SHORT = ("tooz", "etcd3gw", "go-kit")
DAY_S = 24 * 60 * 60


class TurnRefused(Exception):
    """TURN is not a number."""


def turn(asked: str, seconds: float) -> int:
    """The turn that was asked for, else the day of a time in UTC, as a number that grows by one each day."""
    if not asked:
        return int(seconds // DAY_S)
    try:
        return int(asked)
    except ValueError:
        raise TurnRefused(f"TURN must be a number, not `{asked}`") from None


def whose(number: int) -> str:
    """The name of the suite. As many turns in a row as there are suites have each once."""
    return SHORT[number % len(SHORT)]


def today(asked: str) -> str:
    """The name of the suite, and a line on standard output that says how it was chosen and how to choose it again."""
    number = turn(asked, time.time())
    name = whose(number)
    print(f"turn {number}, {'as asked for' if asked else 'by the day'}: {name}, of {', '.join(SHORT)} (TURN={number} runs it again)", flush=True)
    return name
