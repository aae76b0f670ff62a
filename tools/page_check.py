#!/usr/bin/env python3
"""Opens pages in headless Chromium and checks them as a reader would see them.

    tools/page_check.py out/index.html [--shots DIR]          the page of `buddy reproduce`
    tools/page_check.py --any PAGE... [--shots DIR]           pages of other verbs

Fails if a page logs an error or warning, loads anything from outside, is wider than the window, has
a figure without a mark, a control without effect, a table cut off on a phone, or a box cut off in
print. Checks wide, phone-sized and printed pages, light and dark. --shots saves screenshots. Needs
Chromium (or $CHROMIUM) and the standard library only. Exit 77: no Chromium.
"""

import argparse
import base64
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

NAMES = ["chromium", "chromium-browser", "google-chrome", "chrome"]

# Contents of each figure: marks of charts, drawn heat maps, rows of tables.
FIGURES = """
[...document.querySelectorAll("main > section[id]")].map((section) => ({
  id: section.id,
  marks: section.querySelectorAll("svg [data-v]").length,
  plots: section.querySelectorAll("figure.plot").length,
  empty: [...section.querySelectorAll("figure.plot")].filter((plot) => !plot.querySelector("svg [data-v]")).length,
  maps: section.querySelectorAll(".heat canvas").length,
  blank: [...section.querySelectorAll(".heat canvas")].filter((canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return !data.some((byte) => byte !== 0);
  }).length,
  rows: section.querySelectorAll("tbody tr").length,
  missing: section.querySelector(".missing")?.textContent ?? "",
}))
"""

# A click on a legend name toggles its series.
LEGEND = """
(() => {
  const button = document.querySelector("#fig7 .legend button, .plot .legend button");
  const mark = button.closest(".plot").querySelector(`svg [data-s="${button.dataset.s}"]`);
  const shown = () => getComputedStyle(mark).display !== "none";
  const seen = [shown()];
  button.click(); seen.push(shown());
  button.click(); seen.push(shown());
  return seen.join();
})()
"""

# Hovering over a mark shows its value.
TIP = """
(() => {
  const mark = document.querySelector("svg [data-v]");
  mark.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
  const tip = document.querySelector(".tip");
  return !tip.hidden && tip.textContent === mark.dataset.v;
})()
"""

# A heat map opens and zooms.
ZOOM = """
(() => {
  const canvas = document.querySelector(".heat canvas");
  if (!canvas) return "none";
  canvas.click();
  const box = document.querySelector("dialog.zoom");
  const large = box.querySelector("canvas");
  const before = large.getBoundingClientRect().width;
  [...box.querySelectorAll("button")].find((button) => button.textContent === "+").click();
  const after = large.getBoundingClientRect().width;
  [...box.querySelectorAll("button")].find((button) => button.textContent === "close").click();
  return after > before ? "zooms" : `${before} to ${after}`;
})()
"""

SORT = """
(() => {
  const table = document.querySelector("#summary table");
  const first = () => table.tBodies[0].rows[0].cells[0].textContent;
  const head = table.querySelectorAll("thead th button")[1];
  head.click(); const one = first();
  head.click(); const two = first();
  return table.tBodies[0].rows.length < 2 || one !== two;
})()
"""

# Names of the files that the two kinds of buttons save: the page's data, and a table with a line
# per row.
SAVE = """
(() => {
  const saved = [];
  const click = HTMLAnchorElement.prototype.click;
  HTMLAnchorElement.prototype.click = function () { saved.push(this.download); };
  document.getElementById("save").click();
  document.querySelector(".scroll + .save button").click();
  HTMLAnchorElement.prototype.click = click;
  const table = document.querySelector(".scroll > table.sortable");
  const lines = csv(table).trim().split("\\n").length;
  const whole = JSON.parse(document.getElementById("record").textContent).length > 0;
  return [...saved.map((name) => name.split(".").pop()), whole, lines === table.querySelectorAll("tbody tr, tfoot tr").length + 1].join();
})()
"""

# Tables wider than their box: none on a phone, and no box is cut off in print.
CUT = """[...document.querySelectorAll(".scroll")].filter((box) => box.scrollWidth > box.clientWidth + 1).length"""
PAPER = """[...document.querySelectorAll(".scroll, .wide")].filter((box) => {
  const style = getComputedStyle(box);
  return style.overflowX !== "visible" || style.maxHeight !== "none";
}).length"""


class Browser:
    """A Chromium process and a DevTools connection to its only page."""

    def __init__(self, program):
        self.home = tempfile.mkdtemp()
        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
             "--disable-dev-shm-usage", "--remote-debugging-port=0", "--remote-allow-origins=*", f"--user-data-dir={self.home}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.next, self.events = 0, []
        self.stream = self.connect()

    def connect(self):
        port_file = pathlib.Path(self.home, "DevToolsActivePort")
        for _ in range(1200):
            if port_file.exists() and port_file.read_text().count("\n"):
                break
            if self.process.poll() is not None:
                raise EOFError(f"Chromium ended with {self.process.returncode} before it answered")
            time.sleep(0.1)
        port = int(port_file.read_text().split("\n")[0])
        pages = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=120))
        path = next(page for page in pages if page["type"] == "page")["webSocketDebuggerUrl"].split(str(port), 1)[1]
        stream = socket.create_connection(("127.0.0.1", port), timeout=120)
        key = base64.b64encode(os.urandom(16)).decode()
        stream.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                       f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += stream.recv(1)
        return stream

    def send(self, text):
        data, mask = text.encode(), os.urandom(4)
        length = len(data)
        size = bytes([0x80 | length]) if length < 126 else b"\xfe" + struct.pack(">H", length) if length < 65536 \
            else b"\xff" + struct.pack(">Q", length)
        self.stream.sendall(b"\x81" + size + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(data)))

    def read(self, count):
        data = b""
        while len(data) < count:
            more = self.stream.recv(count - len(data))
            if not more:
                raise EOFError("Chromium closed the connection")
            data += more
        return data

    def message(self):
        text, last = b"", False
        while not last:
            first, length = self.read(2)
            last, length = first & 0x80, length & 0x7f
            if length == 126:
                length = struct.unpack(">H", self.read(2))[0]
            elif length == 127:
                length = struct.unpack(">Q", self.read(8))[0]
            text += self.read(length)
        return json.loads(text)

    def call(self, method, **parameters):
        self.next += 1
        self.send(json.dumps({"id": self.next, "method": method, "params": parameters}))
        while True:
            message = self.message()
            if message.get("id") == self.next:
                return message.get("result", {})
            self.events.append(message)

    def wait(self, event):
        while not any(message.get("method") == event for message in self.events):
            self.events.append(self.message())

    def evaluate(self, script):
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.home, ignore_errors=True)


def complaints(events):
    """Returns the page's log entries and its requests to other hosts."""
    found = []
    for event in events:
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            found.append(f"exception: {parameters['exceptionDetails']}")
        if method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            found.append(f"console {parameters['type']}: {parameters['args']}")
        if method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            found.append(f"log: {parameters['entry']['text']}")
        if method == "Network.requestWillBeSent" and not parameters["request"]["url"].startswith(("file:", "data:")):
            found.append(f"asks for {parameters['request']['url']}")
    return found


def visit(browser, page, width, dark):
    """Opens a page at a width and scrolls through it."""
    browser.events.clear()
    for domain in ["Page", "Runtime", "Log", "Network"]:
        browser.call(f"{domain}.enable")
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.call("Emulation.setEmulatedMedia", features=[scheme])
    browser.call("Page.navigate", url=page.resolve().as_uri())
    browser.wait("Page.loadEventFired")
    # Heat maps are drawn when scrolled into view, which the page learns at the end of a frame.
    browser.evaluate("""(async () => { const frame = () => new Promise(requestAnimationFrame);
        for (let y = 0; y < document.body.scrollHeight; y += 700) {
        scrollTo(0, y); await frame(); await frame(); } scrollTo(0, 0); })()""")


def overflow(browser, width):
    """Returns the horizontal overflow of the window, if any."""
    over = browser.evaluate("document.documentElement.scrollWidth") - width
    return [f"the page is {over} pixels wider than the window"] if over > 1 else []


def check_any(browser, page, width, shots):
    """Returns the errors of an arbitrary page."""
    visit(browser, page, width, False)
    wrong = overflow(browser, width)
    if not browser.evaluate("document.body.innerText.trim().length"):
        wrong.append("the page is empty")
    if shots:
        shots.mkdir(parents=True, exist_ok=True)
        size = browser.evaluate("({ width: innerWidth, height: document.documentElement.scrollHeight })")
        name = f"{page.parent.name}-{page.stem}-{width}.png"
        picture = browser.call("Page.captureScreenshot", clip={"x": 0, "y": 0, "scale": 1, **size}, captureBeyondViewport=True)
        (shots / name).write_bytes(base64.b64decode(picture["data"]))
    return wrong + complaints(browser.events)


def check(browser, page, width, dark, shots):
    """Returns the errors of the page of `buddy reproduce`."""
    visit(browser, page, width, dark)
    figures = browser.evaluate(FIGURES)
    wrong = []
    for figure in figures:
        if figure["plots"] and figure["empty"] and not figure["missing"]:
            wrong.append(f"{figure['id']}: {figure['empty']} of {figure['plots']} plots have no mark")
        if figure["blank"]:
            wrong.append(f"{figure['id']}: {figure['blank']} of {figure['maps']} heat maps are blank")
        if figure["id"].startswith(("fig", "table")) and not (figure["marks"] or figure["maps"] or figure["rows"]):
            if not figure["missing"]:
                wrong.append(f"{figure['id']}: nothing is shown")
    if not any(figure["marks"] for figure in figures):
        wrong.append("no figure has a mark")
    for name, script, right in [("legend", LEGEND, "true,false,true"), ("tip", TIP, True), ("zoom", ZOOM, "zooms"), ("sort", SORT, True),
                                ("save", SAVE, "json,csv,true,true")]:
        found = browser.evaluate(script)
        if found != right and not (name == "zoom" and found == "none"):
            wrong.append(f"control {name}: {found}")
    wrong += overflow(browser, width)
    cut = browser.evaluate(CUT) if width < 600 else 0
    if cut:
        wrong.append(f"{cut} tables are wider than their box")
    wrong += on_paper(browser, dark)
    if shots:
        shoot(browser, shots, width, dark)
    return wrong + complaints(browser.events), figures


def on_paper(browser, dark):
    """Returns boxes that would be cut off in print."""
    features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.call("Emulation.setEmulatedMedia", media="print", features=features)
    boxes = browser.evaluate(PAPER)
    browser.call("Emulation.setEmulatedMedia", media="", features=features)
    return [f"on paper, {boxes} boxes would be cut off"] if boxes else []


def shoot(browser, shots, width, dark):
    """Saves a screenshot of every section."""
    shots.mkdir(parents=True, exist_ok=True)
    browser.evaluate("document.querySelector('.tip').hidden = true")
    boxes = browser.evaluate("""[...document.querySelectorAll("main > section")].map((section, i) => {
        const box = section.getBoundingClientRect();
        return { id: section.id || `section${i}`, x: 0, y: box.top + scrollY, width: innerWidth, height: box.height + 20 }; })""")
    for box in boxes:
        name = f"{width}{'-dark' if dark else ''}-{box.pop('id')}.png"
        clip = {**box, "scale": 1}
        picture = browser.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True).get("data")
        if picture:
            (shots / name).write_bytes(base64.b64decode(picture))


def look(browser, page, shots):
    """Checks the page of `buddy reproduce` in every mode; returns whether it passes."""
    well = True
    for width, dark in [(1280, False), (1280, True), (400, False)]:
        wrong, figures = check(browser, page, width, dark, shots)
        marks = sum(figure["marks"] for figure in figures)
        maps = sum(figure["maps"] for figure in figures)
        print(f"{width} pixels, {'dark' if dark else 'light'}: {len(figures)} sections, {marks} marks, {maps} heat maps, "
              f"{len(wrong)} complaints")
        for line in wrong:
            print(f"  {line}")
        well &= not wrong
    return well


def look_any(browser, page, shots):
    """Checks a page of another verb; returns whether it passes."""
    wrong = [f"{width} pixels: {line}" for width in [1400, 400] for line in check_any(browser, page, width, shots)]
    print(f"{page.name}: {len(wrong)} complaints")
    for line in wrong:
        print(f"  {line}")
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pages", type=pathlib.Path, nargs="+")
    parser.add_argument("--any", action="store_true", help="pages of any verb, not that of `buddy reproduce`")
    parser.add_argument("--shots", type=pathlib.Path, help="folder for screenshots")
    arguments = parser.parse_args()
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if not program:
        print("NOT RUN: no Chromium found; the page was not opened")
        return 77
    browser = Browser(program)
    try:
        looks = [(look_any if arguments.any else look)(browser, page, arguments.shots) for page in arguments.pages]
        return 0 if all(looks) else 1
    finally:
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
