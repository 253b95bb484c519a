"""Finds or builds the programs of the benchmark."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Tools:
    """Paths of the two servers and of the generators: ours (`bench`) and etcd's (`benchmark`)."""

    etcd: Path
    cairn: Path
    bench: Path
    benchmark: Path


def target_dir() -> Path:
    """Cargo's target directory; what the benchmark builds and writes goes below it."""
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()


def find() -> Tools:
    """ETCD_BIN, CAIRN_BIN, BENCH_BIN and BENCHMARK_BIN name binaries; what is not named is built."""
    if shutil.which("h2load") is None:
        sys.exit("h2load is missing: install nghttp2-client")
    cache = target_dir() / "bench"
    cache.mkdir(parents=True, exist_ok=True)
    return Tools(
        etcd=_named("ETCD_BIN") or _go(cache, "./etcd"),
        cairn=_named("CAIRN_BIN") or _cargo("cairn"),
        bench=_named("BENCH_BIN") or _cargo("cairn-bench"),
        benchmark=_named("BENCHMARK_BIN") or _go(cache, "go.etcd.io/etcd/v3/tools/benchmark", "benchmark"),
    )


def etcd() -> Path:
    """The genuine server alone."""
    cache = target_dir() / "bench"
    cache.mkdir(parents=True, exist_ok=True)
    return _named("ETCD_BIN") or _go(cache, "./etcd")


def cairn() -> Path:
    """Cairn alone, which is also the generator of `bench`."""
    return _named("CAIRN_BIN") or _cargo("cairn")


def certificate(directory: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key: of P-256, so that neither server is slowed down by RSA."""
    cert, key = directory / "server.crt", directory / "server.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


def _named(variable: str) -> Path | None:
    value = os.environ.get(variable)
    if not value:
        return None
    path = Path(value).resolve()
    if not os.access(path, os.X_OK):
        sys.exit(f"{variable}={value} is not an executable file")
    return path


def _go(cache: Path, package: str, module: str = "") -> Path:
    binary = cache / Path(package).name
    _build(["go", "build", "-o", str(binary), package], ROOT / "conformance" / module)
    return binary


def _cargo(package: str) -> Path:
    command = ["cargo", "build", "--release", "--package", package, "--message-format", "json-render-diagnostics"]
    for line in _build(command, ROOT).splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == package:
            return Path(message["executable"])
    sys.exit(f"cargo built no binary named {package}")


def _build(command: list[str], directory: Path) -> str:
    done = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed")
    return done.stdout
