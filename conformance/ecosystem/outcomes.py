"""What the tests of a run came to, read from what their runners print, and how two runs differ."""

import json
import re
import xml.etree.ElementTree as xml
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"

Outcomes = dict[str, str]
"""The outcome of each test by its name."""

_GO = re.compile(r"--- (PASS|FAIL|SKIP): (\S+) \(")
_CARGO = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. (?:(ignored)\b.*|(?:.*\b)?(ok|FAILED)\s*)$", re.MULTILINE)
_WORDS = {"PASS": PASSED, "FAIL": FAILED, "SKIP": SKIPPED, "ok": PASSED, "FAILED": FAILED, "ignored": SKIPPED}
_BEHAVE = {"passed": PASSED, "skipped": SKIPPED}


def of_go(output: str, package: str) -> Outcomes:
    """Tests and subtests of a Go test binary that ran with `-test.v`."""
    return {f"{package}: {name}": _WORDS[word] for word, name in _GO.findall(output)}


def of_cargo(output: str, binary: str) -> Outcomes:
    """Tests of one test binary of Cargo."""
    return {f"{binary}: {name}": _WORDS[ignored or word] for name, ignored, word in _CARGO.findall(output)}


def of_junit(path: Path) -> Outcomes:
    """Tests of a report in JUnit's XML. Some runners report a test and its teardown apart: the worse one counts."""
    outcomes: Outcomes = {}
    for case in xml.parse(path).iter("testcase"):
        name = f"{case.get('classname')}: {case.get('name')}"
        outcome = PASSED
        if case.find("failure") is not None or case.find("error") is not None:
            outcome = FAILED
        elif case.find("skipped") is not None:
            outcome = SKIPPED
        if outcomes.get(name) != FAILED:
            outcomes[name] = outcome
    return outcomes


def of_behave(path: Path) -> Outcomes:
    """Scenarios of a report of behave in JSON, and each feature as a whole, which fails with what runs after its scenarios too. A report that
    does not end has nothing."""
    outcomes: Outcomes = {}
    try:
        features = json.loads(path.read_text())
    except ValueError:
        return {}
    for feature in features:
        name = feature["name"]
        outcomes[name] = _BEHAVE.get(feature["status"], FAILED)
        scenarios = (element for element in feature.get("elements", []) if element["type"] == "scenario")
        outcomes |= {f"{name}: {scenario['name']}": _BEHAVE.get(scenario["status"], FAILED) for scenario in scenarios}
    return outcomes


@dataclass(frozen=True)
class Comparison:
    """The same suite against the genuine server and against Cairn."""

    etcd: Outcomes
    cairn: Outcomes

    @property
    def lost(self) -> list[str]:
        """Tests that pass on the genuine server and not on Cairn, one that did not run there among them."""
        return sorted(name for name, outcome in self.etcd.items() if outcome == PASSED and self.cairn.get(name) != PASSED)

    @property
    def gained(self) -> list[str]:
        """Tests that pass on Cairn only."""
        return sorted(name for name, outcome in self.cairn.items() if outcome == PASSED and self.etcd.get(name) != PASSED)

    def proves(self, passes_min: int) -> bool:
        """Whether so many tests passed on one of the two: a suite that could not run says nothing. Where etcd is the one that is late on a
        busy machine, Cairn's own passes are enough."""
        return any(list(outcomes.values()).count(PASSED) >= passes_min for outcomes in (self.etcd, self.cairn))


def counts(outcomes: Outcomes) -> str:
    """A run in a few words: `73 passed, 2 failed`."""
    found = Counter(outcomes.values())
    return ", ".join(f"{found[word]} {word}" for word in (PASSED, FAILED, SKIPPED) if found[word]) or "none"
