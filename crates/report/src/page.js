"use strict";

// A click on a column's head sorts the rows below it: numbers by their data-key, texts by themselves.
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

// Heat maps: one pixel per entry, drawn when they come into view, in the page's own colours.
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
