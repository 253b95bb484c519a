#!/usr/bin/env python3
"""What the simulator runs of the code that ships: `make sim-coverage`.

Builds the simulator so that it counts, runs seeds that nobody has tried, and writes a page: for each file of `replica`, `wal`, `store` and `disk` the
share of its lines and regions that ran, and every piece of code that never did, with its text. A region is what the compiler counts: a
branch, an arm, what comes after a `?`. Unit tests are left out. Standard library only; needs the component llvm-tools, which it installs.
"""

import argparse
import collections
import json
import os
import subprocess
import sys
import time
from pathlib import Path

CRATES = ("replica", "wal", "store", "disk")
ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = ("/tests/", "/test_support/", "tests.rs", "mistake.rs", "/examples/", "/benches/")
TEXT_MAX = 100


def main() -> None:
    """Builds, runs, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--from", dest="first", type=int, default=int(time.time()) * 1_000_000)
    parser.add_argument("--page", type=Path, required=True, help="the page to write, Markdown")
    options = parser.parse_args()
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "coverage"
    target.mkdir(parents=True, exist_ok=True)
    program = _build(target)
    raw = target / "sim.profraw"
    command = [program, "--seeds", str(options.seeds), "--from", str(options.first)]
    print(" ".join(map(str, command)), flush=True)
    output = target / "sim.log"
    with output.open("w") as log:
        ended = subprocess.run(command, env=os.environ | {"LLVM_PROFILE_FILE": str(raw)}, stdout=log, cwd=ROOT)
    print(output.read_text().rstrip().rpartition("\n")[2])
    if ended.returncode:
        sys.exit(f"the simulator ended with {ended.returncode}: {output}")
    files = _export(program, raw, target)
    options.page.write_text(_page(files, options))
    print(f"{options.page}: {_total(files)}")


def _build(target: Path) -> Path:
    env = os.environ | {
        "CARGO_TARGET_DIR": str(target), "CARGO_INCREMENTAL": "0", "CARGO_PROFILE_DEV_OPT_LEVEL": "1", "RUSTFLAGS": "-C instrument-coverage",
        # Build scripts count, too.
        "LLVM_PROFILE_FILE": os.devnull,
    }
    cargo = os.environ.get("CARGO", "cargo")
    subprocess.run([cargo, "build", "--locked", "-p", "cairn-sim"], env=env, cwd=ROOT, check=True)
    return target / "debug" / "cairn-sim"


def _tool(name: str) -> str:
    sysroot = Path(subprocess.run(["rustc", "--print", "sysroot"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip())
    found = list(sysroot.glob(f"lib/rustlib/*/bin/{name}"))
    if not found:
        subprocess.run(["rustup", "component", "add", "llvm-tools"], cwd=ROOT, check=True)
        found = list(sysroot.glob(f"lib/rustlib/*/bin/{name}"))
    return str(found[0])


class File:
    """What ran of a file. A piece of code that was compiled more than once, for several types, ran if any of these did."""

    def __init__(self) -> None:
        self.regions: dict[tuple[int, int, int, int], int] = {}

    def add(self, region: list[int]) -> None:
        """Counts a region of one instance."""
        place = (region[0], region[1], region[2], region[3])
        self.regions[place] = self.regions.get(place, 0) + region[4]

    def never(self) -> list[tuple[int, int, int, int]]:
        """Regions that never ran, without those inside of others that did not either."""
        idle = sorted((place for place, count in self.regions.items() if count == 0), key=lambda place: (place[:2], (-place[2], -place[3])))
        outer: list[tuple[int, int, int, int]] = []
        for place in idle:
            if not outer or place[2:] > outer[-1][2:]:
                outer.append(place)
        return outer


def _export(program: Path, raw: Path, target: Path) -> dict[str, File]:
    merged = target / "sim.profdata"
    subprocess.run([_tool("llvm-profdata"), "merge", "-sparse", str(raw), "-o", str(merged)], check=True)
    command = [_tool("llvm-cov"), "export", "-format=text", f"-instr-profile={merged}", str(program)]
    exported = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    files: dict[str, File] = collections.defaultdict(File)
    for function in exported["data"][0]["functions"]:
        names = function["filenames"]
        for region in function["regions"]:
            # Line and column of both ends, the count, the file, the file it was expanded in, the kind (0: code).
            path = os.path.relpath(names[region[5]], ROOT)
            if region[7] == 0 and path.startswith(tuple(f"crates/{crate}/src/" for crate in CRATES)) and not any(part in path for part in LEFT_OUT):
                files[path].add(region)
    return {path: file for path, file in sorted(files.items()) if not _is_test(path, file)}


def _is_test(path: str, file: File) -> bool:
    lines = (ROOT / path).read_text().splitlines()
    tests = next((number for number, line in enumerate(lines, 1) if line.startswith("#[cfg(") and "test" in line and number < len(lines)
                  and lines[number].startswith("mod ") and lines[number].rstrip().endswith("{")), len(lines) + 1)
    file.regions = {place: count for place, count in file.regions.items() if place[0] < tests}
    return not file.regions


def _share(files: list[File]) -> tuple[int, int]:
    ran = sum(count > 0 for file in files for count in file.regions.values())
    return ran, sum(len(file.regions) for file in files)


def _total(files: dict[str, File]) -> str:
    ran, all_regions = _share(list(files.values()))
    return f"{ran:,} of {all_regions:,} regions ran, {ran / all_regions:.1%}"


def _page(files: dict[str, File], options: argparse.Namespace) -> str:
    out = ["# What the simulator runs", "", f"`cairn-sim --seeds {options.seeds} --from {options.first}`: {_total(files)}.", ""]
    out += ["| file | regions | ran | |", "|---|--:|--:|--:|"]
    for crate in CRATES:
        own = {path: file for path, file in files.items() if path.startswith(f"crates/{crate}/")}
        ran, count = _share(list(own.values()))
        if count:
            out.append(f"| **{crate}** | {count:,} | {ran:,} | **{ran / count:.1%}** |")
        for path, file in own.items():
            ran, count = _share([file])
            out.append(f"| {path.removeprefix('crates/')} | {count:,} | {ran:,} | {ran / count:.0%} |")
    out += ["", "## What never ran", ""]
    for path, file in files.items():
        lines = (ROOT / path).read_text().splitlines()
        never = file.never()
        if not never:
            continue
        out += [f"### {path.removeprefix('crates/')}", ""]
        for first, column, last, _ in never:
            text = lines[first - 1][column - 1:].strip()
            text = text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + " ..."
            where = f"{first}" if first == last else f"{first}-{last}"
            out.append(f"- {where}: `` {text} ``")
        out.append("")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    main()
