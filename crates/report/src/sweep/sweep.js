// The selection, the tables derived from it, and downloads.
const find = (id, what) => document.getElementById(id).querySelector(what);
const longest = axes.map((axis, i) => [axis.values.length, i]).sort((a, b) => b[0] - a[0]).map(([, i]) => i);
const alongFirst = longest.find(numeric) ?? longest[0] ?? -1;
const others = axes.map((_, i) => i).filter((i) => i !== alongFirst);
const few = others.filter((i) => axes[i].values.length <= 10);
const linesFirst = others.find((i) => axes[i].name === "mode") ?? few.at(-1) ?? others.at(-1) ?? -1;
// The metric, the axes of x, lines and panels, the value or all of each axis, and hidden lines.
const chosen = {
  y: 0, x: alongFirst, lines: linesFirst, panels: others.find((i) => i !== linesFirst && axes[i].values.length <= 24) ?? -1,
  only: axes.map(() => -1), hidden: new Set(),
};

// The selection is kept in the URL, so that it can be shared and survives a reload.
function remember() {
  const { y, x, lines, panels, only } = chosen;
  location.replace(`#${[y, x, lines, panels, ...only].join(",")}`);
}
function recall() {
  const numbers = location.hash.slice(1).split(",").map(Number);
  const limits = [metrics.length, axes.length, axes.length, axes.length, ...axes.map((axis) => axis.values.length)];
  if (numbers.length !== limits.length || !numbers.every((n, i) => Number.isInteger(n) && n >= (i < 2 ? 0 : -1) && n < limits[i])) return;
  [chosen.y, chosen.x, chosen.lines, chosen.panels, ...chosen.only] = numbers;
}

function select(label, options, value, change) {
  const element = document.createElement("label");
  element.textContent = label;
  const list = document.createElement("select");
  for (const [text, at] of options) list.add(new Option(text, at, false, at === value));
  list.addEventListener("change", () => { change(Number(list.value)); remember(); draw(); });
  element.append(list);
  return element;
}

function controls() {
  const named = axes.map((axis, i) => [axis.name, i]);
  find("lines", ".controls.shape").replaceChildren(
    select("figure", metrics.map((metric, i) => [metric.name, i]), chosen.y, (v) => { chosen.y = v; }),
    select("along x", named, chosen.x, (v) => { chosen.x = v; }),
    select("a line for each", [["nothing", -1], ...named], chosen.lines, (v) => { chosen.lines = v; chosen.hidden.clear(); }),
    select("a panel for each", [["nothing", -1], ...named], chosen.panels, (v) => { chosen.panels = v; }),
  );
  find("lines", ".controls.only").replaceChildren("only", ...axes.map((axis, i) =>
    select(axis.title, [["all", -1], ...axis.shown.map((v, at) => [v, at])], chosen.only[i], (v) => { chosen.only[i] = v; })));
}

const shown = () => rows.filter((row) => chosen.only.every((value, i) => value < 0 || row[i] === value));

// Sorted rows; rows with equal metrics are merged, so that settings without effect do not fill the table.
function merged(sorted, figures, most) {
  const groups = new Map();
  for (const row of sorted) {
    const key = figures.map((i) => row[column(i)]).join();
    const group = groups.get(key) ?? (groups.size < most ? groups.set(key, { rows: [] }).get(key) : undefined);
    if (!group) break;
    group.rows.push(row);
  }
  return [...groups.values()];
}
function values(axis, all) {
  const places = [...new Set(all.map((row) => row[axis]))].sort((a, b) => a - b);
  if (places.length === axes[axis].values.length && places.length > 1) return "any";
  return places.length > 4 ? `${places.length} values` : places.map((at) => axes[axis].shown[at]).join(", ");
}
function table(title, groups, figures, first = null) {
  const heads = (first ? `<th>${escaped(first)}</th>` : "") + axes.map((axis) => `<th>${escaped(axis.title)}</th>`).join("") + figures.map((i) => `<th class="n">${escaped(metrics[i].name)}</th>`).join("");
  const figure = (row, i) => `<td class="n">${row[column(i)] === null ? "-" : write(i, row[column(i)])}</td>`;
  const body = groups.map(({ what, rows }) => `<tr>${first ? `<td>${escaped(what)}</td>` : ""}${axes.map((_, i) =>
    `<td>${escaped(values(i, rows))}</td>`).join("")}${figures.map((i) => figure(rows[0], i)).join("")}</tr>`).join("");
  return `<div><h3>${escaped(title)}</h3><div class="scroll"><table><thead><tr>${heads}</tr></thead><tbody>${body}</tbody></table></div></div>`;
}

// For each program: the fastest point, the largest capacity, and the largest capacity at almost full speed.
const NEXT_TO_NO = 0.98;
function drawShort(data) {
  const [speed, capacity] = [metricOf("speed"), metricOf("capacity")];
  const [s, c] = [(row) => row[column(speed)], (row) => row[column(capacity)]];
  const programs = axes.findIndex((axis) => axis.name === "program");
  const groups = [];
  if (speed < 0 || capacity < 0) return;
  for (const at of programs < 0 ? [0] : axes[programs].values.keys()) {
    const own = data.filter((row) => (programs < 0 || row[programs] === at) && s(row) !== null);
    if (!own.length) continue;
    const top = own.reduce((a, b) => s(b) > s(a) ? b : a);
    const ties = (by) => { const best = [...own].sort(by)[0]; return own.filter((row) => s(row) === s(best) && c(row) === c(best)); };
    groups.push({ what: "fastest", rows: ties((a, b) => s(b) - s(a) || c(b) - c(a)) });
    if (own.every((row) => c(row) === null)) continue;
    groups.push({ what: "most capacity", rows: ties((a, b) => c(b) - c(a) || s(b) - s(a)) });
    const near = (row) => s(row) >= NEXT_TO_NO * s(top) ? c(row) ?? 0 : 0;
    groups.push({ what: "most capacity within 2% of the fastest", rows: ties((a, b) => near(b) - near(a) || s(b) - s(a)) });
  }
  find("short", ".tables").innerHTML = table("", groups, [speed, capacity], "point");
}

// Effect of one setting on the metric, all others equal.
function drawEffects(data) {
  const y = column(chosen.y);
  const effect = (axis) => {
    const same = new Map();
    for (const row of data) {
      if (row[y] === null) continue;
      const key = axes.map((_, i) => i === axis ? "" : row[i]).join();
      (same.get(key) ?? same.set(key, []).get(key)).push(row[y]);
    }
    const spans = [...same.values()].filter((all) => all.length > 1).map((all) => [Math.min(...all), Math.max(...all)]);
    const ratios = spans.filter(([least]) => least > 0).map(([least, most]) => most / least);
    return ratios.length ? { axis, by: mean(ratios), most: Math.max(...ratios) } : null;
  };
  const found = axes.map((_, i) => i).filter((i) => axes[i].name !== "program").map(effect).filter(Boolean).sort((a, b) => b.by - a.by);
  const percent = (ratio) => `${Number(((ratio - 1) * 100).toPrecision(2))}%`;
  const widest = Math.max(...found.map(({ most }) => most - 1), 1e-9);
  const bar = ({ axis, by, most }) => `<li data-v="${escaped(`${axes[axis].name}: ${percent(by)} on average, ${percent(most)} at most`)}"><b>${escaped(axes[axis].name)}</b>`
    + `<span class="track"><i class="far" style="width:${(100 * (most - 1) / widest).toFixed(1)}%"></i><i class="near" style="width:${(100 * (by - 1) / widest).toFixed(1)}%"></i></span><em>${percent(by)}, at most ${percent(most)}</em></li>`;
  find("effects", ".bars").innerHTML = found.length ? found.map(bar).join("") : `<li>No setting alone changes ${escaped(metrics[chosen.y].name)}.</li>`;
  find("effects", "h3").textContent = `${metrics[chosen.y].name}: largest over least`;
}

function drawBest(data) {
  const y = chosen.y, sign = metrics[y].better === false ? 1 : -1;
  const sorted = data.filter((row) => row[column(y)] !== null).sort((a, b) => sign * (a[column(y)] - b[column(y)]));
  const figures = [...new Set([y, metricOf("speed"), metricOf("capacity")])].filter((i) => i >= 0);
  const [first, last] = metrics[y].better === null ? ["most", "least"] : ["best", "worst"];
  find("best", ".tables").innerHTML = table(`${first} ${metrics[y].name}`, merged(sorted, figures, 10), figures)
    + table(`${last} ${metrics[y].name}`, merged(sorted.reverse(), figures, 10), figures);
}

function draw() {
  const data = shown();
  drawShort(data);
  drawLines(data, chosen, find("lines", ".multiples"), find("lines", ".legend"));
  drawEffects(data);
  drawFront(data, find("front", ".plots"));
  drawBest(data);
}

function download(file, type, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = file;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
const names = [...axes.map((axis) => axis.name), ...metrics.map((metric) => metric.name)];
const cells = (row) => row.map((value, i) => i < axes.length ? axes[i].values[value] : value);
const quoted = (value) => value === null ? "" : /[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : String(value);
find("data", "#csv").addEventListener("click", () => download(`${name}.csv`, "text/csv",
  [names, ...rows.map(cells)].map((row) => row.map(quoted).join(",")).join("\n") + "\n"));
find("data", "#jsonl").addEventListener("click", () => download(`${name}.jsonl`, "application/jsonl",
  rows.map((row) => JSON.stringify(Object.fromEntries(cells(row).map((value, i) => [names[i], value])))).join("\n") + "\n"));
find("lines", ".legend").addEventListener("click", (event) => {
  const line = Number(event.target.closest("button")?.dataset.line ?? -1);
  if (line < 0) return;
  if (!chosen.hidden.delete(line)) chosen.hidden.add(line);
  draw();
});

if (rows.length) {
  const first = settings(rows[0], axes.findIndex((axis) => axis.name === "program"));
  for (const place of document.querySelectorAll(".baseline")) place.textContent = first || "the only point";
  recall();
  controls();
  draw();
}
