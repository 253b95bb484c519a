"""Suites in Rust, from crates.io, run by the test programs that Cargo builds."""

import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from outcomes import Outcomes, of_cargo
from place import Place
from suite import Suite, SuiteFailed, command


def crate(name: str, version: str, finds: str, run: Callable[[Place, Callable[..., Outcomes]], Outcomes]) -> Suite:
    """A suite of the crate `name`. `run` starts what the tests need and calls the function that it gets, with the name of a test program
    and words for it."""

    def prepare(folder: Path) -> None:
        # Cargo has no command that fetches one crate: a package that needs it and nothing else does.
        asks = folder / "asks"
        (asks / "src").mkdir(parents=True)
        (asks / "src/lib.rs").touch()
        (asks / "Cargo.toml").write_text(f'[package]\nname = "asks"\nedition = "2021"\n[dependencies]\n{name} = "={version}"\n')
        packages = json.loads(command(asks, "cargo", "metadata", "--format-version=1", "--quiet"))["packages"]
        source = next(Path(package["manifest_path"]).parent for package in packages if package["name"] == name)
        shutil.copytree(source, folder / "source")
        lines = command(
            folder / "source", "cargo", "test", "--tests", "--no-run", "--locked", "--quiet", "--message-format=json", "--target-dir", folder / "target"
        ).splitlines()
        built = [json.loads(line) for line in lines if line.startswith('{"reason":"compiler-artifact"')]
        (folder / "bin").mkdir()
        for artifact in built:
            if artifact["executable"] and "test" in artifact["target"]["kind"]:
                (folder / "bin" / artifact["target"]["name"]).symlink_to(artifact["executable"])

    def run_all(place: Place) -> Outcomes:
        def program(test: str, *words: str) -> Outcomes:
            binary = place.prepared / "bin" / test
            if not binary.exists():
                raise SuiteFailed(f"`{name}` {version} has no test program `{test}`")
            return of_cargo(place.run(place.prepared / "source", binary, *words), test)

        return run(place, program)

    return Suite(name, f"{name} {version} of crates.io", version, finds, prepare, run_all)


_TTL = "--auth-token-ttl=2"


def _etcd_client(place: Place, program: Callable[..., Outcomes]) -> Outcomes:
    """Its three kinds of servers: the Justfile in the crate says what each is given."""
    member = place.member(_TTL)
    place.ctl("user", "add", "root", "--new-user-password=rootpwd")
    place.ctl("user", "grant-role", "root", "root")
    outcomes = program("client") | program("namespace")
    place.end(member)

    small = place.member(_TTL, "--max-request-bytes=10240", name="small")
    outcomes |= program("client", "test_get_stream", "--ignored")
    place.end(small)

    names = {f"node{number}": f"127.0.0.{number}" for number in (1, 2, 3, 4)}
    place.hosts(names)

    def node(name: str, state: str) -> tuple[str, str, str, tuple[str, ...]]:
        listen = f"http://{names[name]}"
        flags = (_TTL, f"--listen-client-urls={listen}:2379", f"--listen-peer-urls={listen}:2380", f"--initial-cluster-state={state}")
        return name, f"http://{name}:2379", f"http://{name}:2380", flags

    def cluster(size: int) -> str:
        return ",".join(f"node{number}=http://node{number}:2380" for number in range(1, size + 1))

    place.members([node(f"node{number}", "new") for number in (1, 2, 3)], cluster(3))
    # A member is not added before the others have been connected for five seconds.
    time.sleep(10)

    def join() -> None:
        for _ in range(120):
            if "http://node4:2380" in place.ctl("member", "list"):
                place.members([node("node4", "existing")], cluster(4))
                return
            time.sleep(1)

    joins = threading.Thread(target=join, daemon=True)
    joins.start()
    return outcomes | program("client", "test_cluster", "--ignored")


CRATES = [
    crate(
        "etcd-client",
        "0.21.1",
        "localhost:2379, with `--auth-token-ttl=2` and a user; once with `--max-request-bytes=10240`; once three members and one that joins",
        _etcd_client,
    )
]
