"""What the runs measured, and the medians over pairs."""

from dataclasses import dataclass, field
from statistics import median

from load import Sample
from rows import Row


@dataclass(frozen=True)
class Spread:
    """A median with the smallest and the largest value."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: list[float]) -> "Spread | None":
        """None when there is nothing."""
        return Spread(median(values), min(values), max(values)) if values else None


@dataclass
class Results:
    """Samples by row, pair and server, and single values by name, pair and server."""

    about: dict = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)
    samples: dict[str, dict[str, dict[int, Sample]]] = field(default_factory=dict)
    values: dict[str, dict[str, dict[int, float]]] = field(default_factory=dict)
    rejected: list[str] = field(default_factory=list)

    def add(self, row: Row, pair: int, server: str, sample: Sample) -> None:
        """A run that counts."""
        self.rows[row.name] = row
        self.samples.setdefault(row.name, {}).setdefault(server, {})[pair] = sample

    def add_value(self, name: str, pair: int, server: str, value: float) -> None:
        """A measurement that is not a load."""
        self.values.setdefault(name, {}).setdefault(server, {})[pair] = value

    def reject(self, row: Row, pair: int, server: str, why: str) -> None:
        """A run that does not count."""
        self.rejected.append(f"{row.title or row.name}, pair {pair + 1}, {server}: {why}")

    def of(self, row: str, server: str, what: str) -> Spread | None:
        """One measure of a row for one server, over its pairs."""
        found = [getattr(s, what) for s in self.samples.get(row, {}).get(server, {}).values()]
        return Spread.of([value for value in found if value is not None])

    def ratio(self, row: str, what: str = "rate") -> Spread | None:
        """Cairn over etcd, pair by pair."""
        both = self.samples.get(row, {})
        return _ratio(
            {p: getattr(s, what) for p, s in both.get("cairn", {}).items()},
            {p: getattr(s, what) for p, s in both.get("etcd", {}).items()},
        )

    def value(self, name: str, server: str) -> Spread | None:
        """A single value over its pairs."""
        return Spread.of(list(self.values.get(name, {}).get(server, {}).values()))

    def value_ratio(self, name: str) -> Spread | None:
        """Cairn over etcd, pair by pair."""
        both = self.values.get(name, {})
        return _ratio(both.get("cairn", {}), both.get("etcd", {}))

    def as_dict(self) -> dict:
        """For the JSON file: everything measured, nothing derived but the ratios."""
        return {
            "about": self.about,
            "rows": {
                name: {
                    "title": row.title,
                    "goal": {
                        "ratio_min": row.ratio_min,
                        "cpu_share_max": row.cpu_share_max,
                        "p99_share_max": row.p99_share_max,
                    },
                    "ratio": vars(spread) if (spread := self.ratio(name)) else None,
                    "cpu_ratio": vars(spread) if (spread := self.ratio(name, "cpu_us")) else None,
                    "p99_ratio": vars(spread) if (spread := self.ratio(name, "p99_us")) else None,
                    "samples": {
                        server: {pair: sample.as_dict() for pair, sample in pairs.items()}
                        for server, pairs in self.samples[name].items()
                    },
                }
                for name, row in self.rows.items()
            },
            "values": self.values,
            "rejected": self.rejected,
        }


def _ratio(ours: dict[int, float], theirs: dict[int, float]) -> Spread | None:
    return Spread.of([ours[p] / theirs[p] for p in ours if ours[p] is not None and theirs.get(p)])
