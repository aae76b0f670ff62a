"""Reads known vulnerabilities of crates from a copy of RustSec's advisory database
(`crates/NAME/RUSTSEC-*.md`).

The copy is $BUDDY_ADVISORIES or cargo-audit's; otherwise it is cloned, if there is a network.
"""

import os
import re
import subprocess
import tomllib

SOURCE = "https://github.com/RustSec/advisory-db"


def find(root):
    """Returns the folder of a copy; None if there is none and it cannot be cloned."""
    own = os.path.join(root, "target", "advisory-db")
    places = [os.environ.get("BUDDY_ADVISORIES"), os.path.expanduser("~/.cargo/advisory-db"), own]
    for place in places:
        if place and os.path.isdir(os.path.join(place, "crates")):
            return place
    try:
        done = subprocess.run(["git", "clone", "--quiet", "--depth=1", SOURCE, own], capture_output=True, timeout=60,
                              env={**os.environ, "GIT_TERMINAL_PROMPT": "0"})
    except (OSError, subprocess.TimeoutExpired):
        return None
    return own if done.returncode == 0 else None


def number(version):
    """Returns a version as comparable numbers; a pre-release is before its version."""
    plain, _, pre = version.split("+")[0].partition("-")
    parts = [int(part) for part in plain.split(".")]
    return tuple(parts + [0] * (3 - len(parts))), (1, ()) if not pre else (0, tuple(re.split(r"[.-]", pre)))


def caret(low):
    """Returns the first version that `^low` excludes."""
    parts = [int(part) for part in low.split("-")[0].split(".")]
    at = next((i for i, part in enumerate(parts) if part), len(parts) - 1)
    return ".".join(str(part) for part in [*parts[:at], parts[at] + 1])


def meets(version, requirement):
    """Returns whether a version meets all terms of a requirement, such as `>= 1.2, < 2`."""
    have = number(version)
    for term in requirement.split(","):
        sign, low = re.fullmatch(r"\s*(>=|<=|>|<|=|\^|~)?\s*v?([0-9][0-9A-Za-z.+-]*)\s*", term).groups()
        want = number(low)
        if sign == "~":
            parts = low.split(".")
            end = ".".join([*parts[:min(1, len(parts) - 1)], str(int(parts[min(1, len(parts) - 1)]) + 1)])
            good = want <= have < number(end)
        else:
            good = {">=": have >= want, "<=": have <= want, ">": have > want, "<": have < want, "=": have == want,
                    "^": want <= have < number(caret(low)), None: want <= have < number(caret(low))}[sign]
        if not good:
            return False
    return True


def read(path):
    """Parses the TOML block at the start of an advisory."""
    with open(path, encoding="utf-8") as file:
        return tomllib.loads(re.search(r"```toml\n(.*?)```", file.read(), re.S).group(1))


def concerning(folder, packages):
    """Returns the advisories for these packages: `(name, version, id, title, is_vulnerability)`."""
    for package in packages:
        place = os.path.join(folder, "crates", package["name"])
        for name in sorted(os.listdir(place)) if os.path.isdir(place) else []:
            if not name.endswith(".md"):
                continue
            text = read(os.path.join(place, name))
            head, versions = text["advisory"], text.get("versions", {})
            safe = versions.get("patched", []) + versions.get("unaffected", [])
            if head.get("withdrawn") or any(meets(package["version"], one) for one in safe):
                continue
            # Informational notes, such as unmaintained crates, are reported but do not fail the
            # check.
            yield package["name"], package["version"], head["id"], head.get("informational", "weakness"), "informational" not in head
