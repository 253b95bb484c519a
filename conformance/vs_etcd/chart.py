"""Draws the figure of the README from the comparison's JSON: CPU of the server per request, Cairn beside etcd.

    python3 conformance/vs_etcd/chart.py vs-etcd.json docs/cpu-per-request.svg
"""

import json
import sys
from pathlib import Path
from statistics import median

WIDTH, LEFT, RIGHT, TOP, LINE = 760, 190, 110, 56, 58
ETCD, CAIRN, TEXT, FAINT = "#9aa5b1", "#2563eb", "#1f2933", "#616e7c"


def draw(results: dict) -> str:
    """An SVG with two bars for each load that both servers ran under 100 connections."""
    rows = []
    for name in ("read-serializable", "read-linearizable", "put", "put-keys"):
        row = results["rows"].get(name)
        if row and row["ratio"]:
            cpu = {server: median(s["cpu_us"] for s in pairs.values()) for server, pairs in row["samples"].items()}
            rows.append((row["title"], cpu["etcd"], cpu["cairn"], row["ratio"]["median"]))
    height = TOP + LINE * len(rows) + 34
    longest = max(etcd for _, etcd, _, _ in rows)
    scale = (WIDTH - LEFT - RIGHT) / longest
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="system-ui, sans-serif" font-size="14" fill="{TEXT}">',
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        f'<text x="20" y="30" font-size="16" font-weight="600">Server CPU per request, one member (less is better)</text>',
    ]
    for number, (title, etcd, cairn, ratio) in enumerate(rows):
        y = TOP + LINE * number
        parts.append(f'<text x="{LEFT - 14}" y="{y + 20}" text-anchor="end">{title}</text>')
        parts.append(f'<text x="{LEFT - 14}" y="{y + 38}" text-anchor="end" font-size="12" fill="{FAINT}">{ratio:.1f}x the requests/s</text>')
        for offset, colour, value, who in ((4, ETCD, etcd, "etcd"), (25, CAIRN, cairn, "Cairn")):
            width = max(2.0, value * scale)
            parts.append(f'<rect x="{LEFT}" y="{y + offset}" width="{width:.1f}" height="18" rx="3" fill="{colour}"/>')
            label = f"{who} {value:.1f} µs"
            parts.append(f'<text x="{LEFT + width + 8:.1f}" y="{y + offset + 14}" font-size="12">{label}</text>')
    about = results["about"]
    etcd_version = about.get("etcd_version", "3.7.3")
    note = f"etcd {etcd_version} and Cairn in turn on one machine, 100 connections x 10 streams, 8 B keys, 256 B values; medians"
    parts.append(f'<text x="20" y="{height - 14}" font-size="12" fill="{FAINT}">{note}</text></svg>')
    return "\n".join(parts) + "\n"


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    source, target = map(Path, sys.argv[1:])
    target.write_text(draw(json.loads(source.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
