#!/usr/bin/env python3
"""Tests first use: five users with the archive and the wheel, each in an empty folder, at 80
columns.

    tools/journeys/run.py ARCHIVE WHEEL [--keep DIR] [--only NAME]

Each journey is a function of journeys.py. Checks exit codes, output, that no line is wider than the
terminal, and every written page in Chromium. --keep leaves each journey's folder, with
`terminal.txt` and screenshots of its pages, in DIR. The Python that runs this needs h5py, nbclient
and ipykernel (`tools/python_check.sh journeys`). Exit 77: something is missing.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
COLUMNS = 80
# Required contents of an archive, besides the command.
CONTENTS = ["lib/libbuddy.so", "lib/libbuddy_targets.so", "include/buddy.hpp", "include/buddy.f90", "include/buddy.h", "include/buddy/buddy_device.cuh", "share/man/man1/buddy-profile.1",
            "share/zsh/site-functions/_buddy", "share/fish/vendor_completions.d/buddy.fish", "share/doc/buddy/LICENSE-MIT",
            "share/doc/buddy/THIRD-PARTY-NOTICES"]


class Traveller:
    """A user in an empty folder, with the installed command and Python."""

    here = HERE

    def __init__(self, folder, home):
        self.folder, self.home, self.wrong, self.transcript = folder, home, [], []
        folder.mkdir(parents=True)
        path = f"{home}/buddy/bin:{home}/python/bin:{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, "COLUMNS": str(COLUMNS), "LANG": "C.UTF-8"}

    def run(self, line, *expected, code=0, columns=COLUMNS):
        """Runs a line; its output must match every pattern, ignoring spaces, and fit the
        columns."""
        done = subprocess.run(line, shell=True, cwd=self.folder, env=self.environment, text=True, stdin=subprocess.DEVNULL,
                              capture_output=True)
        said = done.stderr + done.stdout
        self.transcript.append(f"$ {line}\n{said}" + (f"(exit code {done.returncode})\n" if done.returncode else ""))
        if done.returncode != code:
            self.wrong.append(f"$ {line}: exit code {done.returncode}, not {code}: {said[-600:]}")
        # Messages are one line each, of any length; output must fit.
        wide = [row for row in done.stdout.splitlines() if len(row) > columns]
        if wide:
            self.wrong.append(f"$ {line}: {len(wide)} lines wider than {columns} columns, the first: {wide[0]}")
        for pattern in expected:
            if not re.search(pattern.replace(" ", r"\s+"), said):
                self.wrong.append(f"$ {line}: nothing matches {pattern!r}")
        return done.stdout

    def make(self, what, *arguments):
        """Makes the data of this kind of user."""
        subprocess.run([sys.executable, HERE / f"{what}.py", *arguments], cwd=self.folder, check=True)

    def bring(self, name):
        """Copies a file from the folder of the journeys."""
        shutil.copy(HERE / name, self.folder)

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def expect(self, holds, what):
        if not holds:
            self.wrong.append(what)


def install(archive, wheel, home):
    """Unpacks the archive and installs the wheel in isolation, as in the README."""
    subprocess.run(["sha256sum", "--check", "--quiet", f"{archive.name}.sha256"], cwd=archive.parent, check=True)
    (home / "buddy").mkdir()
    subprocess.run(["tar", "xzf", archive, "--strip-components=1", "-C", home / "buddy"], check=True)
    subprocess.run([sys.executable, "-m", "venv", home / "python"], check=True)
    subprocess.run([home / "python/bin/pip", "install", "--quiet", "--no-index", "--no-deps", wheel], check=True)
    # The wheel brings the command too; these journeys use the archive's.
    for name in ["buddy/bin/buddy", "python/bin/buddy"]:
        subprocess.run([home / name, "--version"], check=True, stdout=subprocess.DEVNULL)
    complete = "source share/bash-completion/completions/buddy; COMP_WORDS=(buddy prof) COMP_CWORD=1; _buddy buddy prof buddy; echo ${COMPREPLY[@]}"
    done = subprocess.run(["bash", "-c", complete], cwd=home / "buddy", check=True, stdout=subprocess.PIPE, text=True)
    missing = [name for name in CONTENTS if not (home / "buddy" / name).is_file()]
    if done.stdout != "profile\n" or missing:
        sys.exit(f"the archive lacks {missing}; bash completes 'prof' as {done.stdout!r}")


def open_pages(travellers, shots):
    """Opens every written page, at desktop and phone width."""
    pages = [page for traveller in travellers for page in sorted(traveller.folder.rglob("*.html"))]
    command = [HERE.parent / "page_check.py", "--any", *pages, *(["--shots", shots] if shots else [])]
    return subprocess.run(command).returncode


def main():
    sys.path.insert(0, str(HERE))
    from journeys import JOURNEYS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archive", type=pathlib.Path)
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("--keep", type=pathlib.Path, help="folder to keep everything in")
    parser.add_argument("--only", action="append", choices=[journey.__name__ for journey in JOURNEYS])
    asked = parser.parse_args()
    home = pathlib.Path(tempfile.mkdtemp(prefix="buddy-journeys-"))
    try:
        begun = time.monotonic()
        install(asked.archive.resolve(), asked.wheel.resolve(), home)
        print(f"installed in {time.monotonic() - begun:.1f} s")
        travellers = []
        for journey in JOURNEYS:
            if asked.only and journey.__name__ not in asked.only:
                continue
            begun = time.monotonic()
            traveller = Traveller(home / "people" / journey.__name__, home)
            journey(traveller)
            travellers.append(traveller)
            (traveller.folder / "terminal.txt").write_text("\n".join(traveller.transcript))
            print(f"{journey.__doc__} {len(traveller.transcript)} commands, {len(traveller.wrong)} complaints, "
                  f"{time.monotonic() - begun:.1f} s")
            for line in traveller.wrong:
                print(f"  {line}")
        pages = open_pages(travellers, asked.keep and asked.keep / "pages")
        if asked.keep:
            for traveller in travellers:
                shutil.copytree(traveller.folder, asked.keep / traveller.folder.name, dirs_exist_ok=True)
        return 1 if any(traveller.wrong for traveller in travellers) else pages
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    sys.exit(main())
