"""The report: a table for the terminal and a Markdown block with the same cells."""

import os
import sys
from dataclasses import dataclass

from results import Results, Spread

GOOD, BAD, PLAIN = "good", "bad", ""
_COLOURS = {GOOD: "\x1b[32m", BAD: "\x1b[31m", "head": "\x1b[1m", "dim": "\x1b[2m"}


@dataclass(frozen=True)
class Cell:
    """A text with what it says about a goal."""

    text: str
    mood: str = PLAIN


@dataclass(frozen=True)
class Table:
    """A table: the first column is text, the others are numbers."""

    title: str
    columns: list[str]
    lines: list[list[Cell]]


def tables(results: Results) -> list[Table]:
    """All tables that have at least one line."""
    found = [_loads(results), _offers(results), _processor(results), _store(results)]
    found += [_one_client(results, row) for row in BASES]
    return [table for table in found if table.lines]


def _loads(results: Results) -> Table:
    lines = []
    for name, row in results.rows.items():
        if row.p99_share_max is not None:
            continue
        ratio = results.ratio(name)
        lines.append(
            [
                Cell(row.title),
                Cell(_rate(results.of(name, "etcd", "rate"))),
                Cell(_rate(results.of(name, "cairn", "rate"))),
                _against(ratio, row.ratio_min, lambda r, goal: r >= goal, _times),
                Cell(f"{ratio.low:,.2f} - {ratio.high:,.2f}" if ratio else ""),
                Cell(f"≥ {row.ratio_min:g}x" if row.ratio_min else ""),
            ]
        )
    return Table("Requests per second", ["load", "etcd", "cairn", "ratio", "spread", "goal"], lines)


def _offers(results: Results) -> Table:
    lines = []
    for name, row in results.rows.items():
        share = results.ratio(name, "p99_us")
        if share is None:
            continue
        lines.append(
            [
                Cell(row.title),
                Cell(_rate(results.of(name, "etcd", "rate"))),
                Cell(_rate(results.of(name, "cairn", "rate"))),
                Cell(_number(results.of(name, "etcd", "p99_us"), 0)),
                Cell(_number(results.of(name, "cairn", "p99_us"), 0)),
                _against(share, row.p99_share_max, lambda r, goal: r <= goal, _percent),
                Cell(f"{share.low:.0%} - {share.high:.0%}"),
                Cell(f"≤ {row.p99_share_max:.0%}"),
            ]
        )
    columns = ["offered load", "etcd/s", "cairn/s", "etcd p99 µs", "cairn p99 µs", "share", "spread", "goal"]
    return Table("99th percentile of the latency under the same offered load", columns, lines)


def _processor(results: Results) -> Table:
    lines = []
    for name, row in results.rows.items():
        share = results.ratio(name, "cpu_us")
        lines.append(
            [
                Cell(row.title),
                Cell(_number(results.of(name, "etcd", "cpu_us"))),
                Cell(_number(results.of(name, "cairn", "cpu_us"))),
                _against(share, row.cpu_share_max, lambda r, goal: r <= goal, _percent),
                Cell(f"≤ {row.cpu_share_max:.0%}" if row.cpu_share_max else ""),
                Cell(_number(results.of(name, "etcd", "switches"), 2)),
                Cell(_number(results.of(name, "cairn", "switches"), 2)),
                Cell(_percent(results.of(name, "etcd", "idle_share"))),
                Cell(_percent(results.of(name, "cairn", "idle_share"))),
                Cell(_number(results.of(name, "cairn", "client_cpu_us"))),
            ]
        )
    columns = ["load", "etcd µs", "cairn µs", "share", "goal", "etcd sw", "cairn sw", "etcd idle", "cairn idle", "client µs"]
    return Table("Server CPU and context switches per request, idle share of the machine", columns, lines)


def _store(results: Results) -> Table:
    keys = results.about.get("keys", 0)
    lines = []
    for name, title, digits, goal in (
        ("restart_s", f"restart with {keys:,} keys, s", 2, lambda ours, theirs: ours <= 1.0),
        ("killed_restart_s", f"the same after SIGKILL, {keys:,} keys, s", 2, None),
        ("memory_mb", f"memory with {keys:,} keys, MB", 0, lambda ours, theirs: ours < theirs),
        ("memory_after_list_mb", "memory after one list of all, MB", 0, None),
        ("memory_settled_mb", f"memory {results.about.get('settle', 0):g} s after that, MB", 0, None),
        ("mapped_mb", "mapped file pages beside it, MB", 0, None),
    ):
        etcd, cairn = results.value(name, "etcd"), results.value(name, "cairn")
        if etcd is None and cairn is None:
            continue
        ratio = results.value_ratio(name)
        mood = PLAIN
        if goal and etcd and cairn:
            mood = GOOD if goal(cairn.median, etcd.median) else BAD
        ranges = " / ".join(f"{s.low:,.{digits}f} - {s.high:,.{digits}f}" for s in (etcd, cairn) if s)
        ours = Cell(_number(cairn, digits), mood)
        lines.append([Cell(title), Cell(_number(etcd, digits)), ours, Cell(_times(ratio)), Cell(ranges)])
    return Table("The full store", ["", "etcd", "cairn", "ratio", "spread (etcd / cairn)"], lines)


@dataclass(frozen=True)
class Base:
    """What the machine itself costs a put of one client: so many round trips over loopback, and one write with fdatasync while
    `writers` processes do that at once. The names are those of the values measured."""

    title: str
    writers: int
    trips: int

    @property
    def round_trip(self) -> str:
        """The time of one round trip."""
        return f"round_trip_us_{self.writers}"

    @property
    def fdatasync(self) -> str:
        """The time of one write with fdatasync."""
        return f"fdatasync_us_{self.writers}"


BASES = {
    "put-one-client": Base("One client: what a put costs, µs", writers=1, trips=1),
    # To the leader and back, and from there to a follower and back. The leader and the followers write at the same time.
    "put-3-one-client": Base("One client, three members: what a put costs, µs", writers=3, trips=2),
}


def _one_client(results: Results, row: str) -> Table:
    base = BASES[row]
    trip, sync = results.value(base.round_trip, "machine"), results.value(base.fdatasync, "machine")
    if not trip or not sync:
        return Table("", [], [])
    trips = "loopback round trip, same bytes (median)" + (f", {base.trips} times" if base.trips > 1 else "")
    syncs = "write + fdatasync (median)" + (f", {base.writers} processes at once" if base.writers > 1 else "")
    base_us = base.trips * trip.median + sync.median
    lines = [
        [Cell(trips), Cell(f"{base.trips * trip.median:.1f}"), Cell("")],
        [Cell(syncs), Cell(f"{sync.median:.1f}"), Cell("")],
        [Cell("sum: the base"), Cell(f"{base_us:.1f}"), Cell("1.00x")],
    ]
    for server in ("etcd", "cairn"):
        rate = results.of(row, server, "rate")
        if rate:
            put_us = 1e6 / rate.median
            lines.append([Cell(server), Cell(f"{put_us:.1f}"), Cell(f"{put_us / base_us:.2f}x")])
    return Table(base.title, ["", "µs", "of the base"], lines)


def terminal(results: Results) -> None:
    """Prints the report; colours only where they can be seen."""
    colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ

    def paint(text: str, mood: str) -> str:
        return f"{_COLOURS[mood]}{text}\x1b[0m" if colours and mood else text

    print()
    for table in tables(results):
        rows = [[Cell(column, "head") for column in table.columns], *table.lines]
        widths = [max(len(row[i].text) for row in rows) for i in range(len(table.columns))]
        print(paint(table.title, "head"))
        for number, row in enumerate(rows):
            cells = [
                paint(cell.text.ljust(width) if i == 0 else cell.text.rjust(width), cell.mood)
                for i, (cell, width) in enumerate(zip(row, widths))
            ]
            print("  " + "  ".join(cells).rstrip())
            if number == 0:
                print(paint("  " + "─" * (sum(widths) + 2 * (len(widths) - 1)), "dim"))
        print()
    print(paint(_footer(results), "dim"))
    for rejected in results.rejected:
        print(paint(f"did not count: {rejected}", BAD))


def markdown(results: Results) -> str:
    """The block for docs/performance.md."""
    out = []
    for table in tables(results):
        out.append(f"**{table.title}**\n")
        out.append("| " + " | ".join(table.columns) + " |")
        out.append("|---|" + "--:|" * (len(table.columns) - 1))
        for line in table.lines:
            marked = (f"**{c.text}** (missed)" if c.mood == BAD else c.text for c in line)
            out.append("| " + " | ".join(marked) + " |")
        out.append("")
    out.append(_footer(results))
    out.extend(f"- did not count: {rejected}" for rejected in results.rejected)
    return "\n".join(out) + "\n"


def _footer(results: Results) -> str:
    about = results.about
    return (
        f"{about['when']}; {about['cpu']}, {about['memory']}, {about['kernel']}; {about['etcd']} and {about['cairn']}; "
        f"{about['idle_before']:.0%} idle before the first run; medians of {about['pairs']} interleaved pairs, "
        f"{about['seconds']:g} s each: `{about['command']}`"
    )


def _against(spread: Spread | None, goal: float | None, reached, written) -> Cell:
    if spread is None or goal is None:
        return Cell(written(spread))
    return Cell(written(spread), GOOD if reached(spread.median, goal) else BAD)


def _rate(spread: Spread | None) -> str:
    if spread is None:
        return ""
    return f"{spread.median:,.0f}" if spread.median >= 1000 else f"{spread.median:.1f}"


def _number(spread: Spread | None, digits: int = 1) -> str:
    return f"{spread.median:,.{digits}f}" if spread else ""


def _times(spread: Spread | None) -> str:
    return f"{spread.median:,.2f}x" if spread else ""


def _percent(spread: Spread | None) -> str:
    return f"{spread.median:.0%}" if spread else ""
