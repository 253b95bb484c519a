#!/usr/bin/env python3
"""A store with very many keys: how fast it is filled, what memory it takes, and how soon it is back after a restart.

A member is filled at full speed in ten parts, each under a prefix of its own, by 1,000 clients on 100 connections; the keys of a part do not come in order. The rate of each part is compared with
that of the same puts to 10,000 keys. Then keys are counted and paged through, and the member is restarted: once it was asked to end, once it was killed under 5,000 puts a second, once under as many as 1,000 clients can put. `make bench-large` runs this; it
needs an idle machine, and for 100 million keys 40 GB of disk and a quarter of an hour. etcd is paged through beside it, with `--etcd-keys`.
"""

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import accounting
import client
import proto
import tools
from server import Server
from tails import Load, LoadFailed, look_at_machine

KEY_BYTES = 16
PARTS = "abcdefghij"
FEW_KEYS, FEW_PUTS = 10_000, 2_000_000
PAGE_KEYS, PAGES = 500, 200
LOADED_S = 5.0
"""How long a member takes puts before it is killed."""
ALL = b"\0"
DISK_BYTES_PER_KEY = 420
"""With both logs and what a rewrite needs; 320 of it are the record."""


def main() -> None:
    """Fills, measures, restarts, and prints the table."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    idle = look_at_machine()
    binary = tools.cairn()
    with tempfile.TemporaryDirectory(prefix="large-", dir=options.work) as work:
        free, needed = _free_bytes(Path(work)), options.keys * DISK_BYTES_PER_KEY
        if free < needed:
            sys.exit(f"{options.keys:,} keys need about {needed / 1e9:.0f} GB of disk; there are {free / 1e9:.0f}")
        cairn = Server("cairn", binary, Path(work), options.port, quota_bytes=2 * needed)
        etcd = Server("etcd", tools.etcd(), Path(work), options.port + 2) if options.etcd_keys else None
        found: dict[str, str] = {}
        try:
            _measure(cairn, binary, options, found)
            cairn.stop()
            if etcd:
                etcd.start(fresh=True)
                _say(f"etcd: {options.etcd_keys:,} keys")
                Load(binary, etcd, _puts(PARTS[0], options.etcd_keys)).result()
                found[f"a page of {PAGE_KEYS} keys of {options.etcd_keys:,}, etcd (median, most)"] = _paged(etcd)
        finally:
            # Before the servers are stopped, which may fail.
            print("| what | |\n|---|--:|")
            for what, figure in found.items():
                print(f"| {what} | {figure} |", flush=True)
            for server in (cairn, etcd):
                if server:
                    server.stop()
    if options.out:
        about = accounting.machine() | {"idle_before": idle, "keys": options.keys}
        options.out.write_text(json.dumps({"about": about, "found": found}, indent=1) + "\n")


def _measure(cairn: Server, binary: Path, options, found: dict[str, str]) -> None:
    cairn.start(fresh=True)
    _say(f"{FEW_PUTS:,} puts to {FEW_KEYS:,} keys")
    few = Load(binary, cairn, ["--total", str(FEW_PUTS), "--key-space-size", str(FEW_KEYS), f"--key-size={KEY_BYTES}"]).result()
    found[f"puts to {FEW_KEYS:,} keys"] = f"{few['rate']:,.0f}/s"
    cairn.stop()
    cairn.start(fresh=True)
    empty_mb, rates = cairn.memory().own_mb, []
    for part in PARTS:
        result = Load(binary, cairn, _puts(part, options.keys // len(PARTS))).result()
        rates.append(result["rate"])
        _say(f"part {part}: {rates[-1]:,.0f}/s, slowest {result['latency_us']['max'] / 1000:.0f} ms, {cairn.memory().own_mb:,.0f} MB")
    keys = options.keys // len(PARTS) * len(PARTS)
    found[f"filling {keys:,} keys: the mean, and the slowest tenth"] = (
        f"{statistics.harmonic_mean(rates):,.0f}/s, {min(rates):,.0f}/s ({min(rates) / few['rate']:.0%} of the first row)"
    )
    full_mb = cairn.memory().own_mb
    per_key = (full_mb - empty_mb) * 1e6 / keys
    found["memory (RssAnon + RssShmem)"] = f"{full_mb:,.0f} MB, {per_key:.1f} B a key, {per_key - KEY_BYTES - 1:.1f} of it beside the key"
    with client.Client(cairn.port, timeout_s=120) as one:
        count = dict(proto.fields(one.range(ALL, ALL, count_only=True))).get(4, 0)
        if count != keys:
            raise LoadFailed(f"there are {count:,} keys of {keys:,}: puts were refused")
        found["counting all keys, counting half of them (median of 20)"] = ", ".join(
            f"{_median_us(lambda start=start: one.range(start, ALL, count_only=True)):,.0f} us" for start in (ALL, PARTS[5].encode())
        )
    found[f"a page of {PAGE_KEYS} keys (median, most)"] = _paged(cairn)
    _say("restart, asked to end")
    cairn.stop()
    found["from the start to the first linearizable read, after it was asked to end"] = f"{cairn.start():.1f} s"
    found["memory then"] = f"{cairn.memory().own_mb:,.0f} MB"
    for title, pace in (("under 5,000 puts a second", ["--rate", "5000"]), ("at full load", [])):
        load = Load(binary, cairn, [*pace, "--duration", "600s", "--key-space-size", str(FEW_KEYS), f"--key-size={KEY_BYTES}"])
        time.sleep(LOADED_S)
        _say(f"restart, killed {title}")
        cairn.kill()
        seconds = cairn.start()
        load.end()
        load.result()
        found[f"the same after SIGKILL {title}"] = f"{seconds:.1f} s"


def _puts(prefix: str, keys: int) -> list[str]:
    return ["--total", str(keys), "--key-space-size", str(keys), f"--key-size={KEY_BYTES}", f"--prefix={prefix}"]


def _paged(server: Server) -> str:
    """Pages from the first key on, each from behind the last key of the one before."""
    took, key = [], ALL
    with client.Client(server.port, timeout_s=120) as one:
        for _ in range(PAGES):
            began = time.monotonic()
            answer = one.range(key, ALL, limit=PAGE_KEYS)
            took.append((time.monotonic() - began) * 1e6)
            pairs = [content for field, content in proto.fields(answer) if field == 2]
            key = dict(proto.fields(pairs[-1]))[1] + b"\0"
    return f"{statistics.median(took):,.0f} us, {max(took):,.0f} us"


def _median_us(act) -> float:
    took = []
    for _ in range(20):
        began = time.monotonic()
        act()
        took.append((time.monotonic() - began) * 1e6)
    return statistics.median(took)


def _free_bytes(path: Path) -> int:
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=100_000_000, help="keys of 16 bytes and a prefix, with values of 256")
    parser.add_argument("--etcd-keys", type=int, default=1_000_000, help="keys of etcd's store that is paged through beside; 0: none")
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORTS", "18800").split("-")[0]))
    parser.add_argument("--work", type=Path, default=None, help="where the data directories go")
    parser.add_argument("--out", type=Path, default=None, help="a file for the figures as JSON")
    return parser.parse_args()


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
