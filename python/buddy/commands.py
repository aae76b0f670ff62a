"""``buddy profile`` and ``buddy simulate`` as functions with the options of the subcommands."""

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
    """Output of a subcommand: its record, its page and its text."""

    def __init__(self, text: str, page: str, printed: str):
        super().__init__(text)
        self._page, self._printed = page, printed

    def to_html(self) -> str:
        """Returns the page, one file that needs no network."""
        return self._page

    def __str__(self) -> str:
        return self._printed


@dataclasses.dataclass(frozen=True)
class AllocationTarget:
    """Codec and target of one allocation."""

    name: str
    bytes: int
    codec: str
    target: str | None
    """Target; None if page ranges differ."""


class Profile(CommandRecord):
    """Result of ``profile``."""

    def __init__(self, text: str, page: str, printed: str, targets: str):
        super().__init__(text, page, printed)
        self.targets_toml = targets
        """The targets file, which ``simulate`` and the GPU runtime read."""

    @property
    def optimistic_ratio(self) -> float | None:
        """Ratio with each entry at the best of the paper's eight sizes; None if all entries are
        zero."""
        return self.data["optimistic_ratio"]

    @property
    def ratio(self) -> float:
        """Data bytes per device byte with the chosen targets."""
        chosen = [one for one in self.data["policies"] if (one["policy"], one["codec"]) == (self.data["policy"], self.data["codec"])]
        return chosen[0]["ratio"]

    @property
    def targets(self) -> list[AllocationTarget]:
        """Codec and target of each allocation."""
        rows = self.data["targets"]["allocation"]
        return [AllocationTarget(row["name"], row["bytes"], row["codec"], row.get("target")) for row in rows]


class Simulation(CommandRecord):
    """Result of ``simulate``: one run, or the runs of a sweep."""

    @property
    def runs(self) -> list[dict[str, Any]]:
        """Report of each run in the order of the sweep: ``cycles``, ``dram``, ``buddy`` and
        others."""
        return [one["report"] for one in self.data["runs"]] if "runs" in self.data else [self.data]

    @property
    def cycles(self) -> list[int]:
        """Cycles of each run."""
        return [run["cycles"] for run in self.runs]


def profile(run: str | os.PathLike[str], **options: Any) -> Profile:
    """Chooses targets for the allocations of a program from a run: a folder of snapshots, or a
    record.

    Options are those of ``buddy profile``: ``threshold=0.1``, ``policy="page"``, ``codec="auto"``,
    ``device_memory="12GiB"``, ``spec="h200"``, ``link="pcie5"``, ``verify=True``.
    """
    with tempfile.TemporaryDirectory() as folder:
        return Profile(*_run("profile", os.fspath(run), options, folder, ["json", "html"]), _read(folder, "targets"))


def simulate(what: str, *, targets: str | Profile | None = None, **options: Any) -> Simulation:
    """Simulates a workload, a network, a trace or a generated program on a modelled GPU.

    Options are those of ``buddy simulate``: ``spec="h200"``, ``mode="buddy"``, ``link="150"``,
    ``scale="16MB"``, ``sweep=["mode=ideal,buddy", "link=50,150"]``. ``targets`` is a ratio, the
    path of a targets file, or a ``Profile``.
    """
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(targets, Profile):
            (pathlib.Path(folder) / "given.toml").write_text(targets.targets_toml)
            targets = str(pathlib.Path(folder) / "given.toml")
        return Simulation(*_run("simulate", what, {"targets": targets, **options}, folder, ["json", "html"]))


def _run(subcommand: str, what: str, options: dict[str, Any], folder: str, files: list[str]) -> tuple[str, ...]:
    """Runs a subcommand in its own process; returns the files it wrote and its output."""
    outputs = files + (["targets"] if subcommand == "profile" else [])
    given = [*_flags(options), *(word for name in outputs for word in (f"--{name}", f"{folder}/{name}"))]
    done = subprocess.run([sys.executable, "-m", "buddy", subcommand, what, *given], capture_output=True, text=True)
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
