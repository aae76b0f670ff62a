"""``buddy profile`` and ``buddy simulate`` as functions: every option of the command is one of theirs."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

from .record import Record


class CommandRecord(Record):
    """What a verb of the command wrote: its record, its page, and what it printed."""

    def __init__(self, text: str, page: str, printed: str):
        super().__init__(text)
        self._page, self._printed = page, printed

    def to_html(self) -> str:
        """The verb's page; one file that needs no network."""
        return self._page

    def __str__(self) -> str:
        return self._printed


@dataclasses.dataclass(frozen=True)
class AllocationTarget:
    """What one allocation gets."""

    name: str
    bytes: int
    codec: str
    target: str | None
    """Its target; None if ranges of its pages differ."""


class Profile(CommandRecord):
    """What ``profile`` found of a run."""

    def __init__(self, text: str, page: str, printed: str, targets: str):
        super().__init__(text, page, printed)
        self.targets_toml = targets
        """The file of targets, which ``simulate``, the memory and the GPU runtime read."""

    @property
    def optimistic_ratio(self) -> float | None:
        """Each entry at the best of the paper's eight sizes, over the run; None if all are zeros."""
        return self.data["optimistic_ratio"]

    @property
    def ratio(self) -> float:
        """Bytes of data for each byte of device memory with the chosen targets."""
        chosen = [one for one in self.data["policies"] if (one["policy"], one["codec"]) == (self.data["policy"], self.data["codec"])]
        return chosen[0]["ratio"]

    @property
    def targets(self) -> list[AllocationTarget]:
        """Codec and target of every allocation."""
        rows = self.data["targets"]["allocation"]
        return [AllocationTarget(row["name"], row["bytes"], row["codec"], row.get("target")) for row in rows]


class Simulation(CommandRecord):
    """What ``simulate`` found: one run, or those of a sweep."""

    @property
    def runs(self) -> list[dict[str, Any]]:
        """The report of each run, in the order of the sweep: ``cycles``, ``dram``, ``buddy`` and the rest."""
        return [one["report"] for one in self.data["runs"]] if "runs" in self.data else [self.data]

    @property
    def cycles(self) -> list[int]:
        """Of each run."""
        return [run["cycles"] for run in self.runs]


def profile(run: str | os.PathLike[str], **options: Any) -> Profile:
    """Chooses targets for every allocation of a program from a run: a folder of snapshots, or the record of one.

    Options are those of ``buddy profile``: ``threshold=0.1``, ``policy="page"``, ``codec="auto"``, ``device_memory="12GiB"``,
    ``spec="h200"``, ``link="pcie5"``, ``verify=True``.
    """
    with tempfile.TemporaryDirectory() as folder:
        return Profile(*_run("profile", os.fspath(run), options, folder, ["json", "html"]), _read(folder, "targets"))


def simulate(what: str, *, targets: str | Profile | None = None, **options: Any) -> Simulation:
    """Time and traffic of a workload, a network, a trace or a generated program on a modelled GPU.

    Options are those of ``buddy simulate``: ``spec="h200"``, ``mode="buddy"``, ``link="150"``, ``scale="16MB"``,
    ``sweep=["mode=ideal,buddy", "link=50,150"]``. ``targets`` is a ratio, the path of a file of targets, or a ``Profile``.
    """
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(targets, Profile):
            (pathlib.Path(folder) / "given.toml").write_text(targets.targets_toml)
            targets = str(pathlib.Path(folder) / "given.toml")
        return Simulation(*_run("simulate", what, {"targets": targets, **options}, folder, ["json", "html"]))


def _run(verb: str, what: str, options: dict[str, Any], folder: str, files: list[str]) -> tuple[str, ...]:
    """Runs a verb in a process of its own; what it wrote and printed."""
    outputs = files + (["targets"] if verb == "profile" else [])
    given = [*_flags(options), *(word for name in outputs for word in (f"--{name}", f"{folder}/{name}"))]
    done = subprocess.run([sys.executable, "-m", "buddy", verb, what, *given], capture_output=True, text=True)
    if done.returncode:
        raise (ValueError if done.returncode == 2 else RuntimeError)(done.stderr.strip())
    return *(_read(folder, name) for name in files), done.stdout


def _flags(options: dict[str, Any]) -> list[str]:
    words = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            values = value if isinstance(value, (list, tuple)) else [value]
            words += [word for one in values for word in (flag, str(one))]
    return words


def _read(folder: str, name: str) -> str:
    return (pathlib.Path(folder) / name).read_text(encoding="utf-8")
