"""Suites from Debian's source packages: Patroni's scenarios, run by behave."""

import os
import shutil
import tarfile
from pathlib import Path

from outcomes import Outcomes, of_behave
from place import Place
from suite import Suite, SuiteFailed, command

VERSION = "4.0.7"
# Of the source as its authors released it, which Debian 13 has.
SHA256 = "2d53ecc208c99afff180954adb6f0f891e56da0fcd4e1ab84912daab5cf39a7e"
NEEDS = [
    "behave==1.2.6",
    "click==8.1.8",
    "coverage==7.6.1",
    "cryptography==44.0.2",
    "prettytable==3.16.0",
    "psutil==7.0.0",
    "psycopg2-binary==2.9.10",
    "python-dateutil==2.9.0.post0",
    "python-etcd==0.4.5",
    "PyYAML==6.0.2",
    "setuptools<81",
    "urllib3==2.4.0",
    "ydiff==1.3",
]
# etcd 3.6 removed the flag for version 2 of the API, which the scenarios give to the `etcd` that they start. Cairn passes over it.
GENUINE = """#!/bin/sh
for word; do
    shift
    [ "$word" = --enable-v2=true ] || set -- "$@" "$word"
done
exec "{}" "$@"
"""
FEATURE_S_MAX = 1200


def _postgresql() -> Path:
    """The programs of the newest PostgreSQL of Debian on this machine."""
    versions = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if not versions:
        raise SuiteFailed("no PostgreSQL in /usr/lib/postgresql: install Debian's package `postgresql`")
    return max(versions, key=lambda path: int(path.parent.name))


def _prepare(folder: Path) -> None:
    _postgresql()
    mirror = command(folder, "apt-get", "indextargets", "--format=$(SITE)", "Created-By: Packages", "Origin: Debian").split()
    if not mirror:
        raise SuiteFailed("apt-get knows no mirror of Debian: run `apt-get update`")
    archive = folder / "source.tar.gz"
    url = f"{mirror[0].rstrip('/')}/pool/main/p/patroni/patroni_{VERSION}.orig.tar.gz"
    command(folder, "/usr/lib/apt/apt-helper", "download-file", url, archive, f"SHA256:{SHA256}")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    (folder / f"patroni-{VERSION}").rename(folder / "source")
    command(folder, "python3", "-m", "venv", folder / "venv")
    command(folder, folder / "venv/bin/python", "-m", "pip", "-q", "--disable-pip-version-check", "install", *NEEDS)


def _run(place: Place) -> Outcomes:
    # The scenarios keep databases and what they print beside their source, and wait by the clock: in memory a busy disk does not fail them.
    memory = place.scratch / "memory"
    memory.mkdir()
    command(memory, "mount", "-t", "tmpfs", "tmpfs", memory)
    source = memory / "source"
    shutil.copytree(place.prepared / "source", source)
    programs = place.scratch / "bin"
    programs.mkdir()
    if place.server == "etcd":
        (programs / "etcd").write_text(GENUINE.format(place.programs / "etcd"))
        (programs / "etcd").chmod(0o755)
    environment = {
        "PATH": f"{programs}:{_postgresql()}:{os.environ['PATH']}",
        "DCS": "etcd3",
        # Tells the scenarios that they run in somebody's CI: they wait five times as long for what they expect.
        "BUILD_NUMBER": "1",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "TMPDIR": str(memory),
    }
    # PostgreSQL refuses to run as root. In this namespace the same user has the number of PostgreSQL's.
    other = ["unshare", "--user", "--map-user=postgres", "--map-group=postgres", "--"]
    behave = [*other, place.prepared / "venv/bin/python", "-m", "behave", "--no-color", "--format=json"]
    outcomes: Outcomes = {}
    for feature in sorted((source / "features").glob("*.feature")):
        report = place.scratch / f"{feature.stem}.json"
        words = [*behave, f"--outfile={report}", "--format=plain", feature]
        place.run(source, *words, environment=environment, seconds_max=FEATURE_S_MAX)
        outcomes |= of_behave(report) if report.exists() else {}
        shutil.copytree(source / "features/output", place.scratch / "logs" / feature.stem, ignore=shutil.ignore_patterns("*.fifo"))
    return outcomes


DEBIAN = [
    Suite("patroni", f"patroni {VERSION} of Debian", f"{VERSION} {NEEDS}", "starts the `etcd` in PATH; localhost:2379, by JSON", _prepare, _run)
]
