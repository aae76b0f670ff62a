#!/usr/bin/env python3
"""Checks dependencies: licences, duplicate versions, known vulnerabilities; and writes their
notices.

    tools/supply_check.py                  # check, as CI does
    tools/supply_check.py --notices FILE   # write the licences of all linked dependencies

Needs only cargo. Advisories are from RustSec's database, found by `tools/advisories.py`; without a
copy and a network the script reports that they were not checked.
"""

import argparse
import json
import os
import re
import subprocess
import sys

import advisories

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Licences that require only their notice.
ALLOWED = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "Unicode-3.0", "Unlicense", "Zlib",
}
# Crates that are built in two versions; each needs a reason here.
TWICE = {
    "hashbrown": "indexmap and the codecs of zip",
    "syn": "derive macros of two generations; build time only",
}
# Advisories that do not concern us, with the reason.
EXCUSED = {
    "RUSTSEC-2026-0253": "the keys of hdf5-reader's caches are numbers, and dropping one cannot panic",
}


def metadata():
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def is_allowed(expression):
    """Returns whether an SPDX expression can be met with the allowed licences: any of an OR, all of
    an AND."""
    text = expression.replace("/", " OR ").replace(" or ", " OR ").strip()
    if text.startswith("(") and text.endswith(")") and text.count("(") == 1:
        text = text[1:-1]
    parts = re.split(r"\s+AND\s+(?![^(]*\))", text)
    if len(parts) > 1:
        return all(is_allowed(part) for part in parts)
    return any(part.strip(" ()") in ALLOWED for part in re.split(r"\s+OR\s+", text))


def linked(found):
    """Returns the packages linked into the products, without tests and build scripts."""
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    own = set(found["workspace_members"])
    seen, queue = set(), list(own)
    while queue:
        node = queue.pop()
        if node in seen:
            continue
        seen.add(node)
        for dependency in nodes[node]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                queue.append(dependency["pkg"])
    packages = [package for package in found["packages"] if package["id"] in seen - own]
    return sorted(packages, key=lambda package: (package["name"], package["version"]))


def licence_texts(package):
    """Returns the licence texts of a package."""
    folder = os.path.dirname(package["manifest_path"])
    names = [name for name in sorted(os.listdir(folder)) if re.match(r"(?i)(licen[sc]e|copying|notice|unlicense)", name)]
    for name in names:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                yield file.read().strip()


def write_notices(packages, path):
    """Writes every text once, under the packages that it belongs to."""
    by_text = {}
    for package in packages:
        texts = list(licence_texts(package)) or [f"Licence: {package['license']} (the package has no text of it)."]
        for text in texts:
            by_text.setdefault(text, []).append(f"{package['name']} {package['version']} ({package['license']})")
    with open(path, "w", encoding="utf-8") as file:
        file.write("Software of others that Buddy links, and its licences.\n")
        for text, names in by_text.items():
            file.write(f"\n{'=' * 100}\n" + "\n".join(names) + f"\n{'-' * 100}\n{text}\n")
    print(f"{len(packages)} packages, {len(by_text)} texts in {path}")


def weaknesses(packages):
    """Returns messages about known vulnerabilities, and the unexcused ones."""
    folder = advisories.find(ROOT)
    if not folder:
        return ["advisories NOT CHECKED: no copy of the database, and it cannot be cloned"], []
    found = list(advisories.concerning(folder, packages))
    line = "{} {}: {} ({})".format
    told = [f"{line(*one[:4])}: {EXCUSED.get(one[2], 'informational')}" for one in found if one[2] in EXCUSED or not one[4]]
    wrong = [line(*one[:4]) for one in found if one[4] and one[2] not in EXCUSED]
    return [f"advisories checked: {len(found)} concern linked crates or tests", *told], wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--notices", metavar="FILE", help="write the licences of all linked dependencies")
    asked = parser.parse_args()
    found = metadata()
    packages = [package for package in found["packages"] if package["id"] not in found["workspace_members"]]
    if asked.notices:
        write_notices(linked(found), asked.notices)
        return 0
    wrong = [f"{p['name']} {p['version']}: licence {p['license']!r} is not allowed"
             for p in packages if not p["license"] or not is_allowed(p["license"])]
    names = [package["name"] for package in packages]
    twice = {name for name in names if names.count(name) > 1}
    wrong += [f"{name}: {names.count(name)} versions are built; unify them, or add a reason in tools/supply_check.py"
              for name in sorted(twice - set(TWICE))]
    wrong += [f"{p['name']}: from {p['source']}, not from the registry" for p in packages
              if not (p["source"] or "").startswith("registry+")]
    told, weak = weaknesses(packages)
    wrong += weak
    print(*told, *wrong, sep="\n")
    print(f"{len(packages)} packages, {len(wrong)} complaints")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
