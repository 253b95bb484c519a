"""The genuine programs, built once into the folder that the Go tests build them into."""

import fcntl
import hashlib
import os
from pathlib import Path

from suite import command

MODULE = Path(__file__).resolve().parents[1]
PACKAGES = {"etcd": "./etcd", "etcdctl": "go.etcd.io/etcd/etcdctl/v3"}


def genuine(name: str) -> Path:
    """The path of a program. The folder, its name and the lock are those of `Tool` in harness/tools.go: tests in Go that begin at the same time wait
    for this build, or this one for theirs."""
    root = Path(os.environ.get("CONFORMANCE_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cairn-conformance")
    tag = hashlib.sha256(command(MODULE, "go", "env", "GOVERSION").encode())
    for file in ("go.mod", "go.sum"):
        tag.update((MODULE / file).read_bytes())
    path = root / tag.hexdigest()[:16] / name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(f"{path}.lock", "a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            command(MODULE, "go", "build", "-o", f"{path}.new", PACKAGES[name])
            os.replace(f"{path}.new", path)
    return path
