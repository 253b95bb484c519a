"""Suites in Go, from the modules as the proxy has them, run by the test programs that Go builds."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from outcomes import Outcomes, of_go
from place import Place
from suite import Suite, SuiteFailed, command

CALLERS = Path(__file__).resolve().parent / "testdata"


@dataclass(frozen=True)
class Tests:
    """The tests of one package of a module: those that `only` matches, all if it is empty, without those that `skip` matches. Where a module has
    them as a library, `caller` is the file in `testdata` that calls them, and `package` a new one that is made of it."""

    package: str
    tags: str = ""
    only: str = ""
    skip: str = ""
    caller: str = ""
    minutes_max: int = 10


def go(
    name: str,
    module: str,
    version: str,
    finds: str,
    tests: Sequence[Tests],
    start: Callable[[Place], object] = lambda place: place.member(),
    programs: Sequence[str] = (),
    environment: dict[str, str] | None = None,
) -> Suite:
    """A suite of a module. `start` starts what the tests need; `programs` are packages that they call."""

    called = [each for each in tests if each.caller]

    def program(package: str) -> str:
        return package.replace("/", "-") + ".test"

    def prepare(folder: Path) -> None:
        found = json.loads(command(folder, "go", "mod", "download", "-json", f"{module}@{version}", environment={"GOWORK": "off"}))
        if "Dir" not in found:
            raise SuiteFailed(f"`{module}` {version}: {found.get('Error')}")
        # A copy, since some tests write beside themselves, and those of the module cache are everybody's.
        source = folder / "source"
        shutil.copytree(found["Dir"], source, symlinks=True)
        command(folder, "chmod", "-R", "u+w", source)
        (folder / "bin").mkdir()
        for each in called:
            (source / each.package).mkdir()
            shutil.copy(CALLERS / each.caller, source / each.package)
        for each in {each.package: each for each in tests}.values():
            command(source, "go", "test", "-c", "-vet=off", f"-tags={each.tags}", "-o", folder / "bin" / program(each.package), f"./{each.package}")
        for package in programs:
            command(source, "go", "build", "-o", folder / "bin" / Path(package).name, f"./{package}")

    def run(place: Place) -> Outcomes:
        start(place)
        outcomes: Outcomes = {}
        for each in tests:
            words = ["-test.v", f"-test.timeout={each.minutes_max}m", f"-test.run={each.only}"]
            words += [f"-test.skip={each.skip}"] if each.skip else []
            output = place.run(
                place.prepared / "source" / each.package,
                place.prepared / "bin" / program(each.package),
                *words,
                environment=environment,
                seconds_max=each.minutes_max * 60 + 30,
            )
            outcomes |= of_go(output, each.package)
        return outcomes

    recipe = f"{version} {[(each.package, each.tags) for each in tests]} {programs}"
    recipe += "".join((CALLERS / each.caller).read_text() for each in called)
    return Suite(name, f"{module} {version}", recipe, finds, prepare, run)


GO = [
    go(
        "coredns",
        "github.com/coredns/coredns",
        "v1.15.0",
        "localhost:2379",
        [Tests("plugin/etcd", "etcd"), Tests("test", "etcd", "Etcd")],
    ),
    go(
        "vitess",
        "vitess.io/vitess",
        "v0.24.4",
        "starts the `etcd` in PATH, also with TLS",
        # A test that fails there panics, and would take the others with it.
        [Tests("go/vt/topo/etcd2topo", skip="TestEtcd2Topo$"), Tests("go/vt/topo/etcd2topo", only="TestEtcd2Topo$")],
        start=lambda place: None,
        programs=["go/cmd/vtctldclient"],
    ),
    go(
        "cilium",
        "github.com/cilium/cilium",
        "v1.20.2",
        "127.0.0.1:4002",
        [Tests("pkg/kvstore"), Tests("pkg/kvstore/store"), Tests("pkg/kvstore/allocator"), Tests("pkg/identity/cache"), Tests("pkg/clustermesh")],
        start=lambda place: place.member(client="http://127.0.0.1:4002"),
        environment={"INTEGRATION_TESTS": "true"},
    ),
    go(
        "go-kit",
        "github.com/go-kit/kit",
        "v0.13.0",
        "ETCD_ADDR",
        [Tests("sd/etcdv3", "flaky_integration")],
        environment={"ETCD_ADDR": "http://127.0.0.1:2379"},
    ),
    go(
        "dapr",
        "github.com/dapr/components-contrib",
        "v1.18.0",
        "localhost:12379",
        [Tests("tests/conformance/etcd", caller="dapr_state_test.go")],
        start=lambda place: place.member(client="http://localhost:12379"),
    ),
]
