"""What a suite is, and the commands that suites are made of."""

import hashlib
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from outcomes import Outcomes
from place import Place


class SuiteFailed(Exception):
    """A suite could not be fetched, built or started; that says nothing about a server."""


@dataclass(frozen=True)
class Suite:
    """Somebody else's tests. `prepare` fetches and builds them in a folder, with the network of this machine; `run` runs them on one server in a
    network that has nothing but loopback. What is prepared is kept until `recipe` changes, which is all that it depends on."""

    name: str
    package: str
    recipe: str
    finds: str
    prepare: Callable[[Path], None]
    run: Callable[[Place], Outcomes]

    @property
    def folder(self) -> str:
        """The name of the folder that it is prepared in."""
        return f"{self.name}-{hashlib.sha256(self.recipe.encode()).hexdigest()[:8]}"


def command(folder: Path, *line: str | Path, environment: Mapping[str, str] | None = None) -> str:
    """Runs a command that must succeed; its output."""
    done = subprocess.run(
        [str(word) for word in line],
        cwd=folder,
        env=os.environ | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    if done.returncode != 0:
        raise SuiteFailed(f"`{' '.join(str(word) for word in line)}`: exit {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout
