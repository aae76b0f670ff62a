#!/usr/bin/env python3
"""Finds sentences that break the rules of STYLE.md: private idioms, long lines, riddles for test names.

    tools/language_check.py [FILE...]     all tracked files by default; exits with 1 if it finds something

The patterns and the exceptions stand in tools/language_marks.txt. Lines inside code fences, tables and lines that are
a single link may be long, and so may drawings.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MARKS = ROOT / "tools/language_marks.txt"
WIDTH = 110
COMMENT = {
    ".rs": re.compile(r"^\s*(//[/!]?)\s?(.*)"),
    ".cu": re.compile(r"^\s*(//[/!]?)\s?(.*)"),
    ".py": re.compile(r'^\s*(#|"""|\'\'\')\s?(.*)'),
    ".sh": re.compile(r"^\s*(#)\s?(.*)"),
}
COMMENT[".cuh"] = COMMENT[".h"] = COMMENT[".cpp"] = COMMENT[".cu"]
WIDE = re.compile(r"://|^\s*\||[─│►]")
TEST_NAME = re.compile(r"\b(?:fn|def) (?:test_)?what_\w*")


def read_marks():
    """The patterns of a sentence's beginning, those of any place in a comment, and the exceptions."""
    sections = {"begins": [], "holds": [], "except": []}
    section = None
    for line in MARKS.read_text().splitlines():
        if line.startswith("["):
            section = sections[line.strip("[]")]
        elif line and not line.startswith("#"):
            section.append(line)
    begins = re.compile(r"(?:%s)\b" % "|".join(sections["begins"]))
    holds = re.compile(r"\b(?:%s)\b" % "|".join(sections["holds"]), re.IGNORECASE)
    return begins, holds, set(sections["except"])


def check_comments(path, lines, begins, holds):
    """Yields (line number, message) for the comments of a source file."""
    pattern, inside, code = COMMENT[path.suffix or ".sh"], False, False
    for number, line in enumerate(lines, 1):
        found = pattern.match(line)
        if TEST_NAME.search(line):
            yield number, "a test is named for its promise, not what_..."
        if not found:
            inside = code = False
            continue
        mark, text = found.groups()
        code ^= text.lstrip().startswith("```")
        # Only the first line of a comment begins a sentence for certain.
        if not inside and begins.match(text):
            yield number, "a comment begins with its subject or a verb"
        if holds.search(text):
            yield number, f"idiom: {holds.search(text).group()!r}"
        if len(line) > WIDTH and not code and not WIDE.search(text):
            yield number, f"{len(line)} characters in a line of comment; at most {WIDTH}"
        inside = mark not in ('"""', "'''")


def check_markdown(path, lines, holds):
    """Yields (line number, message) for a page. Lab notes may tell when a thing was measured."""
    code = False
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            code = not code
            continue
        if code or line.startswith("|"):
            continue
        if len(line) > WIDTH and not re.fullmatch(r"\s*[-*]?\s*!?\[.*\]\(.*\)[.,;]?", line):
            yield number, f"{len(line)} characters in a line; at most {WIDTH}"
        if "docs/notes" not in str(path) and holds.search(line):
            yield number, f"idiom: {holds.search(line).group()!r}"


def main():
    begins, holds, exceptions = read_marks()
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    names = sys.argv[1:] or [name for name in listed if name]
    findings = 0
    for name in names:
        path = pathlib.Path(name)
        is_source = path.suffix in COMMENT or name == ".ci/run"
        if not is_source and path.suffix != ".md":
            continue
        lines = (ROOT / path).read_text(errors="replace").splitlines()
        check = check_markdown(path, lines, holds) if path.suffix == ".md" else check_comments(path, lines, begins, holds)
        for number, message in check:
            if f"{name}: {lines[number - 1].strip()}" in exceptions:
                continue
            print(f"{name}:{number}: {message}\n    {lines[number - 1].strip()[:160]}")
            findings += 1
    print(f"{findings} findings; exceptions are listed in {MARKS.relative_to(ROOT)}" if findings else "no findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
