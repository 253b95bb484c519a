"""Suites in Python, from the source distributions of PyPI, run by pytest."""

import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

from outcomes import Outcomes, of_junit
from place import Place
from suite import Suite, SuiteFailed, command


def pypi(
    name: str, version: str, finds: str, needs: Sequence[str], tests: Sequence[str], run: Callable[[Place, Callable[..., Outcomes]], Outcomes]
) -> Suite:
    """A suite of the source distribution `name`; `needs` is what pip installs beside it. `run` starts what the tests need and calls the
    function that it gets, with the words before pytest, and an environment."""

    def prepare(folder: Path) -> None:
        command(folder, "python3", "-m", "venv", folder / "venv")
        pip = [folder / "venv/bin/python", "-m", "pip", "-q", "--disable-pip-version-check"]
        command(folder, *pip, "download", "--no-deps", "--no-binary", ":all:", "-d", folder, f"{name}=={version}")
        archive = next(folder.glob("*.tar.gz"), None)
        if archive is None:
            raise SuiteFailed(f"`{name}` {version} has no source distribution")
        with tarfile.open(archive) as opened:
            opened.extractall(folder / "source", filter="data")
        command(folder, *pip, "install", archive, *needs)
        (folder / "bin").mkdir()
        for program in ("python", "pytest", "pifpaf"):
            if (folder / "venv/bin" / program).exists():
                (folder / "bin" / program).symlink_to(folder / "venv/bin" / program)

    def run_all(place: Place) -> Outcomes:
        report = place.scratch / "report.xml"

        def pytest(*before: str, environment: dict[str, str] | None = None) -> Outcomes:
            source = next((place.prepared / "source").iterdir())
            words = [*before, "pytest", "-v", "-p", "no:cacheprovider", f"--junitxml={report}", *tests]
            place.run(source, *words, environment={"PYTHONDONTWRITEBYTECODE": "1"} | (environment or {}))
            return of_junit(report) if report.exists() else {}

        return run(place, pytest)

    return Suite(name, f"{name} {version} of PyPI", f"{version} {needs}", finds, prepare, run_all)


def _on_pifpaf(prefix: str, environment: dict[str, str] | None = None) -> Callable[[Place, Callable[..., Outcomes]], Outcomes]:
    """Three members that `pifpaf` starts, as in the suite's own instructions; it names the variables of its environment after `prefix`."""

    def run(place: Place, pytest: Callable[..., Outcomes]) -> Outcomes:
        return pytest("pifpaf", "-e", prefix, "run", "etcd", "--cluster", "--", environment=environment)

    return run


def _on_one_member(environment: dict[str, str]) -> Callable[[Place, Callable[..., Outcomes]], Outcomes]:
    def run(place: Place, pytest: Callable[..., Outcomes]) -> Outcomes:
        place.member()
        return pytest(environment=environment)

    return run


def _with_etcdctl(path: str, run: Callable[[Place, Callable[..., Outcomes]], Outcomes]) -> Callable[[Place, Callable[..., Outcomes]], Outcomes]:
    """`run`, with `etcdctl` at the path where the tests call it. They set ETCDCTL_API, and `etcdctl` warns of that variable in the output that they
    parse; so the script there unsets it."""

    def run_with(place: Place, pytest: Callable[..., Outcomes]) -> Outcomes:
        place.script(path, 'unset ETCDCTL_API\nexec etcdctl "$@"')
        return run(place, pytest)

    return run_with


PYPI = [
    pypi(
        "etcd3",
        "0.12.0",
        "`pifpaf` of PyPI starts three members of the `etcd` in PATH; localhost:2379",
        # What it ships was generated for protobuf 3, its locks call tenacity as version 6 wants it, and its tests are older than a check of
        # hypothesis that refuses them.
        ["protobuf==3.20.3", "tenacity==6.3.1", "hypothesis==5.30.0", "mock==5.1.0", "pytest==8.3.5", "pifpaf==3.4.0", "setuptools<81"],
        ["tests"],
        # The newest version that its tests tell apart.
        _on_pifpaf("PYTHON", {"TEST_ETCD_VERSION": "v3.4.0"}),
    ),
    pypi(
        "etcd3gw",
        "2.7.0",
        "localhost:2379, by JSON",
        ["oslotest==5.0.0", "pytest==8.3.5", "urllib3==2.4.0"],
        ["etcd3gw/tests"],
        _on_one_member({}),
    ),
    pypi(
        "tooz",
        "9.1.0",
        "TOOZ_TEST_URL, by JSON (its driver `etcd3gw`)",
        ["etcd3gw==2.7.0", "ddt==1.7.2", "fixtures==4.2.5", "testtools==2.7.2", "pytest==8.3.5", "sysv_ipc==1.1.0", "pymemcache==4.0.0", "redis==5.2.1"],
        ["tooz/tests/test_coordination.py", "tooz/tests/test_partitioner.py", "tooz/tests/drivers/test_etcd3gw.py"],
        _on_one_member({"TOOZ_TEST_URL": "etcd3+http://localhost:2379"}),
    ),
    pypi(
        "aetcd",
        "1.0.0",
        "`pifpaf` of PyPI, as `etcd3`",
        ["pytest-asyncio==1.3.0", "pytest-cov==7.1.0", "pytest-mock==3.15.1", "pytest==9.0.3", "pifpaf==3.4.0", "setuptools<81"],
        ["tests", "--with-cluster"],
        _on_pifpaf("TEST"),
    ),
    pypi(
        "etcd-sdk-python",
        "0.0.7",
        "localhost:2379",
        ["protobuf==5.29.6", "tenacity==9.0.0", "hypothesis==6.100.0", "mock==5.1.0", "pytest==8.3.5"],
        ["tests"],
        # Not on `pifpaf`: a test that wants to stop two of its three members stops all, and waits without end.
        _with_etcdctl("/tmp/etcd-download-test/etcdctl", _on_one_member({})),
    ),
]
