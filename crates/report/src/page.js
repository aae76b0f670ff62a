"use strict";

// A click on a column header sorts the rows: numbers by data-key, texts by their text.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.querySelectorAll("thead tr:last-child th")];
  const body = table.tBodies[0];
  const key = (row, i) => {
    const cell = row.cells[i];
    return cell.dataset.key === undefined ? cell.textContent : Number(cell.dataset.key);
  };
  heads.forEach((head, i) => head.querySelector("button").addEventListener("click", () => {
    const numbers = body.rows.length > 0 && typeof key(body.rows[0], i) === "number";
    const first = numbers ? "descending" : "ascending";
    const other = numbers ? "ascending" : "descending";
    const order = head.getAttribute("aria-sort") === first ? other : first;
    const sign = order === "ascending" ? 1 : -1;
    heads.forEach((h) => h.setAttribute("aria-sort", h === head ? order : "none"));
    const compare = (a, b) => numbers ? key(a, i) - key(b, i) : key(a, i).localeCompare(key(b, i), "en", { numeric: true });
    body.append(...[...body.rows].sort((a, b) => sign * compare(a, b)));
  }));
}

// Heat maps: one pixel per entry, drawn when scrolled into view, in the page's colours.
const CLASSES = ["zero, 0 B", "8 B", "1 sector, 32 B", "2 sectors, 64 B", "3 sectors, 96 B", "raw, 128 B"];
const colours = () => {
  const style = getComputedStyle(document.documentElement);
  return CLASSES.map((_, i) => {
    const hex = style.getPropertyValue(`--c${i}`).trim();
    return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  });
};

function draw(canvas) {
  const rows = canvas.dataset.rows.split(",");
  const context = canvas.getContext("2d");
  const image = context.createImageData(64, canvas.height);
  const palette = colours();
  rows.forEach((row, y) => {
    for (let x = 0; x < row.length; x++) {
      image.data.set([...palette[row.charCodeAt(x) - 48], 255], (y * 64 + x) * 4);
    }
  });
  context.putImageData(image, 0, 0);
}

function read(canvas, event) {
  const rows = canvas.dataset.rows.split(",");
  const box = canvas.getBoundingClientRect();
  const at = (place, size, n) => Math.min(n - 1, Math.max(0, Math.floor(place / size * n)));
  const y = at(event.clientY - box.top, box.height, rows.length);
  const x = at(event.clientX - box.left, box.width, 64);
  const page = Math.floor(Number(canvas.dataset.pages) * y / rows.length);
  const found = CLASSES[rows[y].charCodeAt(x) - 48];
  return found === undefined ? "past the end" : `page ${page.toLocaleString("en")}, entry ${x}: ${found}`;
}

const canvases = [...document.querySelectorAll(".heat canvas")];
const drawn = new Set();
const observer = new IntersectionObserver((seen) => {
  for (const { target, isIntersecting } of seen) {
    if (isIntersecting && !drawn.has(target)) {
      drawn.add(target);
      draw(target);
    }
  }
}, { rootMargin: "400px" });
for (const canvas of canvases) {
  const readout = canvas.parentElement.querySelector(".readout");
  canvas.addEventListener("pointermove", (event) => { readout.textContent = read(canvas, event); });
  canvas.addEventListener("pointerleave", () => { readout.textContent = readout.dataset.rest; });
  observer.observe(canvas);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach(draw));

// The threshold slider: recomputes targets from the histograms, like `buddy profile` with policy allocation-16x.
// Data per choice of codecs: allocation, candidate codec, its parameter bytes and its entries by class in each snapshot.
// A target fits the classes up to its own.
const TARGETS = [
  { name: "16x", bytes: 8, holds: 2 }, { name: "4x", bytes: 32, holds: 3 }, { name: "2x", bytes: 64, holds: 4 },
  { name: "4/3x", bytes: 96, holds: 5 }, { name: "1x", bytes: 128, holds: 6 },
];
const total = (numbers) => numbers.reduce((sum, n) => sum + n, 0);
const over = (classes, target) => total(classes.slice(target.holds));
const worst = (snapshots, target) =>
  Math.max(0, ...snapshots.map((classes) => over(classes, target) / Math.max(1, total(classes))));

function choose(snapshots, threshold) {
  if (snapshots.every((classes) => total(classes) === 0)) return TARGETS[4];
  const zeros = snapshots.every((classes) => total(classes) === 0 || classes[0] / total(classes) > 0.5);
  return TARGETS.slice(zeros ? 0 : 1).find((target) => worst(snapshots, target) <= threshold) ?? TARGETS[4];
}

// The codec with the least device memory, then the fewest overflowing entries, then the fewest stored bytes.
const STORED = [0, 8, 32, 64, 96, 128];
function best(codecs, threshold) {
  const offers = codecs.map(([parameters, snapshots]) => {
    const target = choose(snapshots, threshold);
    const entries = Math.max(0, ...snapshots.map(total));
    const stored = total(snapshots.map((classes) => total(classes.map((n, i) => n * STORED[i]))));
    const cost = [entries * target.bytes + parameters, total(snapshots.map((one) => over(one, target))), stored + parameters * snapshots.length];
    return { snapshots, entries, target, parameters, cost };
  });
  const less = (a, b) => a.cost[0] - b.cost[0] || a.cost[1] - b.cost[1] || a.cost[2] - b.cost[2];
  return offers.reduce((a, b) => less(b, a) < 0 ? b : a);
}

function assign(allocations, threshold) {
  const chosen = allocations.map((codecs) => best(codecs, threshold));
  const device = () => total(chosen.map((one) => one.entries * one.target.bytes + one.parameters));
  const all = 128 * total(chosen.map((one) => one.entries));
  const sixteen = chosen.filter((one) => one.target === TARGETS[0]);
  const share = (one) => worst(one.snapshots, TARGETS[0]);
  sixteen.sort((a, b) => share(b) - share(a) || a.entries - b.entries);
  for (const one of sixteen) {
    if (all <= 4 * device()) break;
    one.target = TARGETS[1];
  }
  // An allocation without entries in a snapshot is not live there.
  const snapshots = chosen[0]?.snapshots.length ?? 0;
  const each = (value) => Array.from({ length: snapshots }, (_, s) => total(chosen.map((one) => value(one, total(one.snapshots[s]), s))));
  const [alive, used] = [each((_, entries) => entries * 128), each((one, entries) => entries && one.entries * one.target.bytes + one.parameters)];
  const shares = each((one, _, s) => over(one.snapshots[s], one.target) * 128).map((n, s) => n / Math.max(1, alive[s]));
  const counts = [...TARGETS].reverse().map((target) => chosen.filter((one) => one.target === target).length);
  return { ratio: Math.max(1, ...alive) / Math.max(1, ...used), mean: total(shares) / Math.max(1, snapshots), worst: Math.max(0, ...shares), counts };
}

for (const box of document.querySelectorAll(".slider")) {
  const data = JSON.parse(box.querySelector("script").textContent);
  const input = box.querySelector("input");
  const update = () => {
    box.querySelector("output").textContent = `${input.value}%`;
    const percent = (share) => share === 0 ? "-" : share < 5e-5 ? "<0.01%" : `${(share * 100).toFixed(2)}%`;
    const rows = Object.entries(data).map(([codec, allocations]) => {
      const found = assign(allocations, Number(input.value) / 100);
      const cells = [codec, `${found.ratio.toFixed(2)}x`, percent(found.mean), percent(found.worst), found.counts.join(", ")];
      const row = document.createElement("tr");
      cells.forEach((text, i) => {
        const cell = row.insertCell();
        cell.textContent = text;
        if (i > 0 && i < 4) cell.className = "n";
      });
      return row;
    });
    box.querySelector("tbody").replaceChildren(...rows);
    stack();
  };
  input.addEventListener("input", update);
  update();
}
