"use strict";
(() => {
  const { name, axes, metrics, rows } = JSON.parse(document.getElementById("sweep").textContent);
  const find = (id, what) => document.getElementById(id).querySelector(what);
  const column = (metric) => axes.length + metric;
  const metricOf = (wanted) => metrics.findIndex((metric) => metric.name === wanted);
  const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

  // Numbers as people read them, in the unit of their figure.
  const plain = (value) => Math.abs(value) >= 1e6 ? value.toExponential(3) : String(Number(value.toPrecision(4)));
  const write = (metric, value) => ({
    ratio: () => `${value.toFixed(2)}x`,
    percent: () => `${plain(value * 100)}%`,
    count: () => Math.round(value).toLocaleString("en").replaceAll(",", "\u202f"),
  }[metrics[metric].unit] ?? (() => plain(value)))();

  // What the reader chose: the figure, the axes of x, lines and panels, and a value or all for each axis.
  const longest = axes.map((axis, i) => [axis.values.length, i]).sort((a, b) => b[0] - a[0]).map(([, i]) => i);
  const numeric = (axis) => axis >= 0 && axes[axis].values.every((value) => value !== "" && Number.isFinite(Number(value)));
  const x = longest.find(numeric) ?? longest[0] ?? -1;
  const others = axes.map((_, i) => i).filter((i) => i !== x);
  const lines = others.find((i) => axes[i].name === "mode") ?? others.at(-1) ?? -1;
  const chosen = { y: 0, x, lines, panels: others.find((i) => i !== lines && axes[i].values.length <= 24) ?? -1, only: axes.map(() => -1) };

  function select(label, options, value, change) {
    const element = document.createElement("label");
    element.textContent = label;
    const list = document.createElement("select");
    for (const [text, at] of options) list.add(new Option(text, at, false, at === value));
    list.addEventListener("change", () => { change(Number(list.value)); draw(); });
    element.append(list);
    return element;
  }

  function controls() {
    const named = axes.map((axis, i) => [axis.name, i]);
    const box = find("lines", ".controls");
    box.replaceChildren(
      select("figure", metrics.map((metric, i) => [metric.name, i]), chosen.y, (v) => { chosen.y = v; }),
      select("along x", named, chosen.x, (v) => { chosen.x = v; }),
      select("a line for each", [["nothing", -1], ...named], chosen.lines, (v) => { chosen.lines = v; }),
      select("a panel for each", [["nothing", -1], ...named], chosen.panels, (v) => { chosen.panels = v; }),
      ...axes.map((axis, i) => select(axis.name, [["all", -1], ...axis.values.map((v, at) => [v, at])], chosen.only[i], (v) => { chosen.only[i] = v; })),
    );
  }

  const shown = () => rows.filter((row) => chosen.only.every((value, i) => value < 0 || row[i] === value));
  const mean = (values) => values.every((v) => v > 0)
    ? Math.exp(values.reduce((sum, v) => sum + Math.log(v), 0) / values.length)
    : values.reduce((sum, v) => sum + v, 0) / values.length;

  // Panels of lines of points: each the mean of the rows that share it.
  function gather(data) {
    const panels = new Map();
    for (const row of data) {
      const value = row[column(chosen.y)];
      if (value === null) continue;
      const at = [chosen.panels, chosen.lines, chosen.x].map((axis) => axis < 0 ? 0 : row[axis]);
      const panel = panels.get(at[0]) ?? panels.set(at[0], new Map()).get(at[0]);
      const line = panel.get(at[1]) ?? panel.set(at[1], new Map()).get(at[1]);
      (line.get(at[2]) ?? line.set(at[2], []).get(at[2])).push(value);
    }
    return panels;
  }

  // Of a chart that has the page to itself.
  const wide = () => innerWidth < 700 ? WIDTH : 1100;
  const WIDTH = 420, HEIGHT = 250, LEFT = 62, RIGHT = 14, TOP = 10, BOTTOM = 42;
  function scale(values, from, to) {
    const least = values.reduce((a, b) => Math.min(a, b)), most = values.reduce((a, b) => Math.max(a, b));
    const log = least > 0 && most / least > 20;
    const f = log ? Math.log : (v) => v;
    const pad = log ? 0 : (most - least || Math.abs(most) || 1) * 0.05;
    const [a, b] = [f(least - pad), f(most + pad)];
    const at = (v) => b === a ? (from + to) / 2 : from + (f(v) - a) / (b - a) * (to - from);
    const ticks = [...Array(5)].map((_, i) => log ? Math.exp(a + (b - a) * i / 4) : least - pad + (most - least + 2 * pad) * i / 4);
    return { at, ticks };
  }
  const text = (px, py, anchor, words) => `<text x="${px.toFixed(1)}" y="${py.toFixed(1)}" text-anchor="${anchor}">${escaped(words)}</text>`;
  const frame = (title, inner, w = WIDTH, h = HEIGHT) =>
    `<figure class="plot"><figcaption>${escaped(title)}</figcaption><svg viewBox="0 0 ${w} ${h}" role="img" aria-label="${escaped(title)}">${inner}</svg></figure>`;
  const grid = (y, metric, w = WIDTH) => y.ticks.map((v) =>
    `<line class="grid" x1="${LEFT}" x2="${w - RIGHT}" y1="${y.at(v).toFixed(1)}" y2="${y.at(v).toFixed(1)}"/>${text(LEFT - 6, y.at(v) + 4, "end", write(metric, v))}`).join("");
  const colour = (i) => `k${i % 10}${i >= 10 ? " again" : ""}`;

  function panel(title, linesOf, y, width) {
    const values = axes[chosen.x]?.values ?? [""];
    const numbers = numeric(chosen.x);
    const places = numbers ? values.map(Number) : values.map((_, i) => i);
    const across = scale(places, LEFT + 8, width - RIGHT - 8);
    const few = Math.ceil(values.length / (width > 600 ? 14 : 7));
    const labels = values.map((value, i) => i % few ? "" : text(across.at(places[i]), HEIGHT - BOTTOM + 17, "middle", value)).join("");
    const drawn = [...linesOf].map(([line, points]) => {
      const sorted = [...points].sort((a, b) => places[a[0]] - places[b[0]]).map(([at, all]) => [at, mean(all), all.length]);
      const path = sorted.map(([at, v]) => `${across.at(places[at]).toFixed(1)},${y.at(v).toFixed(1)}`).join(" ");
      const who = chosen.lines < 0 ? "" : `${axes[chosen.lines].name} ${axes[chosen.lines].values[line]}, `;
      const marks = sorted.length > 60 ? "" : sorted.map(([at, v, many]) =>
        `<circle cx="${across.at(places[at]).toFixed(1)}" cy="${y.at(v).toFixed(1)}" r="3.5" data-v="${escaped(`${who}${axes[chosen.x]?.name ?? ""} ${values[at]}: ${write(chosen.y, v)}${many > 1 ? ` (mean of ${many})` : ""}`)}"/>`).join("");
      return `<g class="${colour(line)}"><polyline points="${path}"/>${marks}</g>`;
    }).join("");
    const label = text((LEFT + width - RIGHT) / 2, HEIGHT - 6, "middle", axes[chosen.x]?.name ?? "");
    return frame(title, grid(y, chosen.y, width) + labels + label + drawn, width);
  }

  function drawLines(data) {
    const panels = gather(data);
    const all = [...panels.values()].flatMap((one) => [...one.values()].flatMap((line) => [...line.values()].map(mean)));
    const box = find("lines", ".multiples");
    if (!all.length) { box.textContent = "No point has this figure."; return; }
    const y = scale(all, HEIGHT - BOTTOM, TOP);
    const width = panels.size === 1 ? wide() : WIDTH;
    const title = (at) => chosen.panels < 0 ? metrics[chosen.y].name : `${axes[chosen.panels].name} ${axes[chosen.panels].values[at]}`;
    box.innerHTML = [...panels].sort((a, b) => a[0] - b[0]).map(([at, one]) => panel(title(at), one, y, width)).join("");
    const used = new Set([...panels.values()].flatMap((one) => [...one.keys()]));
    find("lines", ".legend").innerHTML = chosen.lines < 0 ? "" : axes[chosen.lines].values.map((value, i) => used.has(i)
      ? `<li class="${colour(i)}"><i></i>${escaped(axes[chosen.lines].name)} ${escaped(value)}</li>` : "").join("");
  }

  const settings = (row) => axes.map((axis, i) => `${axis.name} ${axis.values[row[i]]}`).join(", ");

  function drawFront(data) {
    const [speed, capacity] = [metricOf("speed"), metricOf("capacity")];
    const both = data.filter((row) => row[column(speed)] !== null && row[column(capacity)] !== null);
    const box = find("front", ".plots");
    if (!both.length) { box.textContent = "No point has both."; return; }
    const [s, c] = [(row) => row[column(speed)], (row) => row[column(capacity)]];
    // Speeds are relative to a point of the same program, so each program has a front of its own.
    const programs = axes.findIndex((axis) => axis.name === "program");
    const fronts = Map.groupBy(both, (row) => programs < 0 ? 0 : row[programs]);
    for (const [program, rows] of fronts) {
      let best = -Infinity;
      const sorted = rows.sort((a, b) => c(b) - c(a) || s(b) - s(a));
      fronts.set(program, sorted.filter((row) => s(row) > best && ((best = s(row)), true)));
    }
    const [w, h] = [wide(), 320];
    const across = scale(both.map(c), LEFT + 8, w - RIGHT - 8);
    const y = scale(both.map(s), h - BOTTOM, TOP);
    const place = (row) => [across.at(c(row)).toFixed(1), y.at(s(row)).toFixed(1)];
    const rest = [...new Set(both.map((row) => `M${place(row).join(" ")}h0`))].join("");
    const ticks = across.ticks.map((v) => text(across.at(v), h - BOTTOM + 17, "middle", write(capacity, v))).join("");
    const drawn = [...fronts].map(([program, front]) => {
      const marks = front.map((row) => `<circle cx="${place(row)[0]}" cy="${place(row)[1]}" r="4" data-v="${escaped(`${settings(row)}: speed ${write(speed, s(row))}, capacity ${write(capacity, c(row))}`)}"/>`).join("");
      return `<g class="${colour(program)}"><polyline points="${front.map((row) => place(row).join(",")).join(" ")}"/>${marks}</g>`;
    }).join("");
    const names = programs < 0 ? "" : `<ul class="legend">${[...fronts.keys()].map((at) => `<li class="${colour(at)}"><i></i>${escaped(axes[programs].values[at])}</li>`).join("")}</ul>`;
    const label = text((LEFT + w - RIGHT) / 2, h - 6, "middle", "capacity");
    const all = [...fronts.values()].flat();
    box.innerHTML = frame(`speed against capacity, ${all.length} points on a front`, grid(y, speed, w) + ticks + label + `<path class="rest" d="${rest}"/>${drawn}`, w, h)
      .replace('class="plot"', 'class="plot whole"').replace("</figcaption>", `</figcaption>${names}`) + table("on a front", all.slice(0, 50), [speed, capacity]);
  }

  function table(title, data, figures) {
    const heads = axes.map((axis) => `<th>${escaped(axis.name)}</th>`).join("") + figures.map((i) => `<th class="n">${escaped(metrics[i].name)}</th>`).join("");
    const body = data.map((row) => `<tr>${axes.map((axis, i) => `<td>${escaped(axis.values[row[i]])}</td>`).join("")}${figures.map((i) =>
      `<td class="n">${row[column(i)] === null ? "-" : write(i, row[column(i)])}</td>`).join("")}</tr>`).join("");
    return `<div><h3>${escaped(title)}</h3><div class="scroll"><table><thead><tr>${heads}</tr></thead><tbody>${body}</tbody></table></div></div>`;
  }

  function drawBest(data) {
    const y = chosen.y;
    const sign = metrics[y].better === false ? 1 : -1;
    const sorted = data.filter((row) => row[column(y)] !== null).sort((a, b) => sign * (a[column(y)] - b[column(y)]));
    const figures = [...new Set([y, metricOf("speed"), metricOf("capacity")])].filter((i) => i >= 0);
    const [first, last] = metrics[y].better === null ? ["most", "least"] : ["best", "worst"];
    find("best", ".plots").innerHTML = table(`${first} ${metrics[y].name}`, sorted.slice(0, 10), figures)
      + table(`${last} ${metrics[y].name}`, sorted.slice(-10).reverse(), figures);
  }

  function draw() {
    const data = shown();
    drawLines(data);
    drawFront(data);
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

  controls();
  draw();
})();
