#!/usr/bin/env python3
"""Runs other people's suites against the genuine etcd and against Cairn, and compares them test by test.

    ecosystem.py [NAME...]      the suites of these names, all if none is given
    ecosystem.py --turn         the short suite whose turn it is: by the day, or by the number TURN
    ecosystem.py --list         their names

CAIRN_BIN is the server, CAIRN_CACHE_DIR where packages are kept. Needs root, for networks. See README.md."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from genuine import PACKAGES, genuine
from outcomes import Comparison, Outcomes, counts
from place import Place
from suite import Suite, SuiteFailed
from suites import SUITES
from turns import TurnRefused, today

HERE = Path(__file__).resolve().parent
SERVERS = ("etcd", "cairn")
# How many tests passed on etcd when a suite was taken in, as docs/ecosystem.md has it: with fewer, something is missing here.
PASSES_MIN = {
    "etcd3": 80, "etcd3gw": 39, "tooz": 82, "aetcd": 92, "etcd-sdk-python": 79, "etcd-client": 29, "coredns": 39, "vitess": 4, "cilium": 159, "go-kit": 9,
    "dapr": 107, "patroni": 75,
}
# A network, processes and mounts of its own, which all end when the first process does.
APART = ["unshare", "--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]
# The first process there is a shell, which takes up daemons when they end: to who waits for one, one that nobody takes up is still there.
FIRST = 'ip link set lo up && "$@"; exit $?'


def cache() -> Path:
    root = os.environ.get("CAIRN_CACHE_DIR") or Path.home() / ".cache" / "cairn-conformance"
    return Path(root) / "ecosystem"


def programs() -> dict[str, Path]:
    """A folder for each server, with it as `etcd` and the genuine etcdctl."""
    cairn = Path(os.environ.get("CAIRN_BIN") or HERE.parents[1] / "target/dist/cairn").resolve()
    if not cairn.exists():
        raise SuiteFailed(f"no server to test: `{cairn}` (run `make build`, or set CAIRN_BIN)")
    built = {name: genuine(name) for name in PACKAGES}
    folders = {}
    for server, binary in zip(SERVERS, (built["etcd"], cairn)):
        folders[server] = cache() / "programs" / f"for-{server}"
        folders[server].mkdir(parents=True, exist_ok=True)
        _link(folders[server] / "etcd", binary)
        _link(folders[server] / "etcdctl", built["etcdctl"])
    return folders


def _link(link: Path, target: Path) -> None:
    """Replaces a link in one step: a run of another suite may use it."""
    new = link.with_name(f"{link.name}.{os.getpid()}")
    new.symlink_to(target)
    new.replace(link)


def prepared(suite: Suite) -> Path:
    """The folder of the suite, filled if no earlier run has done it."""
    folder = cache() / suite.folder
    done = folder / "done"
    if not done.exists():
        print(f"{suite.name}: fetching and building {suite.package}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        suite.prepare(folder)
        done.touch()
    return folder


def runs(suite: Suite) -> Path:
    """What the last runs of a suite printed, and the logs of the servers."""
    return cache() / "runs" / suite.name


def run(suite: Suite, server: str, folders: dict[str, Path]) -> Outcomes:
    """One run, in a place of its own."""
    scratch = runs(suite) / server
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    result = runs(suite) / f"{server}.json"
    result.unlink(missing_ok=True)
    inside = [sys.executable, str(HERE / "ecosystem.py"), "--inside", suite.name, server, str(folders[server]), str(prepared(suite)), str(scratch), str(result)]
    began = time.monotonic()
    done = subprocess.run([*APART, "sh", "-c", FIRST, "sh", *inside], stdin=subprocess.DEVNULL)
    if done.returncode != 0 or not result.exists():
        raise SuiteFailed(f"the run on {server} ended with {done.returncode}")
    outcomes = json.loads(result.read_text())
    print(f"{suite.name}: {server}: {counts(outcomes)} ({time.monotonic() - began:.0f} s)", flush=True)
    return outcomes


def inside(name: str, server: str, *paths: str) -> None:
    """The run itself."""
    folder, built, scratch, result = map(Path, paths)
    suite = next(suite for suite in SUITES if suite.name == name)
    outcomes = suite.run(Place(server, folder, built, scratch))
    result.write_text(json.dumps(outcomes))


def judge(suite: Suite, comparison: Comparison) -> bool:
    """Says what differs; whether Cairn passes what the genuine server does."""
    for name in comparison.lost:
        print(f"{suite.name}: passes on etcd, not on cairn: {name} ({comparison.cairn.get(name, 'did not run')})")
    for name in comparison.gained:
        print(f"{suite.name}: passes on cairn only: {name}")
    is_whole = comparison.proves(PASSES_MIN[suite.name])
    if not is_whole:
        print(f"{suite.name}: {counts(comparison.etcd)} on etcd and {counts(comparison.cairn)} on cairn; on one of them {PASSES_MIN[suite.name]} should pass")
    good = is_whole and not comparison.lost
    if not good:
        print(f"{suite.name}: what it printed, and the servers' logs: {runs(suite)}")
    return good


def passes(suite: Suite, folders: dict[str, Path]) -> bool:
    """Runs a suite on both servers. One that could not be fetched, built or run has not passed."""
    try:
        return judge(suite, Comparison(*(run(suite, server, folders) for server in SERVERS)))
    except SuiteFailed as error:
        print(f"{suite.name}: {error}")
        return False


def passes_once(suite: Suite, folders: dict[str, Path], tries: int) -> bool:
    """Whether one of the tries passes. What a failed one left is kept apart from the next one."""
    for number in range(1, tries):
        if passes(suite, folders):
            return True
        keep(suite, number)
    return passes(suite, folders)


def keep(suite: Suite, number: int) -> None:
    """Puts what the runs of a failed try left where no later run overwrites it but another failed one."""
    kept = runs(suite).with_name(f"{suite.name}-failed-{number}")
    shutil.rmtree(kept, ignore_errors=True)
    if runs(suite).exists():
        runs(suite).rename(kept)
        print(f"{suite.name}: what try {number} left is kept in {kept}", flush=True)


def unproved() -> int:
    """What this machine cannot run fails in CI. Elsewhere it is told of in the file UNPROVED, which `make test` prints at its end
    (harness/unproved.go)."""
    print("other people's suites need root, for networks of their own: not run", file=sys.stderr)
    if path := os.environ.get("UNPROVED"):
        with open(path, "a") as lines:
            lines.write("ecosystem: needs root\n")
    return 1 if os.environ.get("CI") else 0


def main(names: list[str]) -> int:
    if names == ["--list"]:
        print(*(suite.name for suite in SUITES), sep="\n")
        return 0
    tries = 1
    if names == ["--turn"]:
        # Others' tests judge by the clock, and `make test` computes beside them.
        tries = 2
        try:
            names = [today(os.environ.get("TURN", ""))]
        except TurnRefused as error:
            print(error, file=sys.stderr)
            return 2
        if os.geteuid() != 0:
            return unproved()
    unknown = set(names) - {suite.name for suite in SUITES}
    if unknown:
        print(f"no such suite: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    folders = programs()
    wanted = [suite for suite in SUITES if not names or suite.name in names]
    failed = [suite.name for suite in wanted if not passes_once(suite, folders, tries)]
    print(f"suites: {len(wanted) - len(failed)} passed, {len(failed)} failed{': ' + ', '.join(failed) if failed else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(*sys.argv[2:])
    else:
        sys.exit(main(sys.argv[1:]))
