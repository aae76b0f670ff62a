// Line charts in small multiples, and the Pareto front of capacity and speed.
const WIDTH = 420, HEIGHT = 250, LEFT = 62, RIGHT = 14, TOP = 10, BOTTOM = 42;
// Size of a full-width chart.
const wide = () => innerWidth < 700 ? WIDTH : 1100;
const text = (px, py, anchor, words) => `<text x="${px.toFixed(1)}" y="${py.toFixed(1)}" text-anchor="${anchor}">${escaped(words)}</text>`;
const frame = (title, inner, w = WIDTH, h = HEIGHT, more = "") =>
  `<figure class="plot${w > WIDTH ? " whole" : ""}"><figcaption>${escaped(title)}</figcaption>${more}<svg viewBox="0 0 ${w} ${h}" role="img" aria-label="${escaped(title)}">${inner}</svg></figure>`;
const grid = (y, metric, w = WIDTH) => y.ticks.map((v) =>
  `<line class="grid" x1="${LEFT}" x2="${w - RIGHT}" y1="${y.at(v).toFixed(1)}" y2="${y.at(v).toFixed(1)}"/>${text(LEFT - 6, y.at(v) + 4, "end", write(metric, v, y.step))}`).join("");
const colour = (i) => `k${i % 10}${i >= 10 ? " again" : ""}`;
const settings = (row, without = -1) => axes.map((axis, i) => i === without ? "" : `${axis.name} ${axis.shown[row[i]]}`).filter(Boolean).join(", ");

const mean = (values) => values.every((v) => v > 0)
  ? Math.exp(values.reduce((sum, v) => sum + Math.log(v), 0) / values.length)
  : values.reduce((sum, v) => sum + v, 0) / values.length;

// Groups rows into panels, lines and points; a point is the mean of its rows.
function gather(data, chosen) {
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

// Positions of the x values, and labels where they fit.
function alongX(axis, width) {
  const values = axes[axis]?.shown ?? [""];
  const places = numeric(axis) ? axes[axis].values.map(Number) : values.map((_, i) => i);
  const sorted = [...places].sort((a, b) => a - b);
  const log = !numeric(axis) || isArithmetic(sorted) ? false : isGeometric(sorted) ? true : null;
  const across = scale(places, LEFT + 8, width - RIGHT - 8, log);
  let free = -Infinity;
  const label = (i) => {
    const px = across.at(places[i]), half = values[i].length * (innerWidth < 560 ? 5 : 3.8) + 5;
    if (px - half < free) return "";
    free = px + half;
    return text(px, HEIGHT - BOTTOM + 17, "middle", values[i]);
  };
  const order = places.map((_, i) => i).sort((a, b) => places[a] - places[b]);
  return { values, places, across, labels: order.map(label).join("") };
}

function panel(title, linesOf, y, width, chosen) {
  const { values, places, across, labels } = alongX(chosen.x, width);
  const most = Math.max(...[...linesOf.values()].map((points) => points.size));
  const drawn = [...linesOf].filter(([line]) => !chosen.hidden.has(line)).map(([line, points]) => {
    const sorted = [...points].sort((a, b) => places[a[0]] - places[b[0]]).map(([at, all]) => [at, mean(all), all.length]);
    const path = sorted.map(([at, v]) => `${across.at(places[at]).toFixed(1)},${y.at(v).toFixed(1)}`).join(" ");
    const who = chosen.lines < 0 ? "" : `${axes[chosen.lines].name} ${axes[chosen.lines].shown[line]}, `;
    const marks = sorted.length > 60 ? "" : sorted.map(([at, v, many]) =>
      `<circle cx="${across.at(places[at]).toFixed(1)}" cy="${y.at(v).toFixed(1)}" r="3.5" data-v="${escaped(`${who}${axes[chosen.x]?.name ?? ""} ${values[at]}: ${write(chosen.y, v)}${many > 1 ? ` (mean of ${many})` : ""}`)}"/>`).join("");
    // A value that does not vary along x, such as ideal memory, is a reference line.
    const level = sorted.length === 1 && most > 1 ? `<line class="level" x1="${LEFT}" x2="${width - RIGHT}" y1="${y.at(sorted[0][1]).toFixed(1)}" y2="${y.at(sorted[0][1]).toFixed(1)}"/>` : "";
    return `<g class="${colour(line)}">${level}<polyline points="${path}"/>${marks}</g>`;
  }).join("");
  const label = text((LEFT + width - RIGHT) / 2, HEIGHT - 6, "middle", axes[chosen.x]?.title ?? "");
  return frame(title, grid(y, chosen.y, width) + labels + label + drawn, width);
}

function drawLines(data, chosen, box, legend) {
  const panels = gather(data, chosen);
  const seen = (one) => [...one].filter(([line]) => !chosen.hidden.has(line)).flatMap(([, line]) => [...line.values()].map(mean));
  const all = [...panels.values()].flatMap(seen);
  const used = new Set([...panels.values()].flatMap((one) => [...one.keys()]));
  legend.innerHTML = chosen.lines < 0 ? "" : axes[chosen.lines].shown.map((value, i) => used.has(i)
    ? `<li class="${colour(i)}"><button data-line="${i}" aria-pressed="${!chosen.hidden.has(i)}"><i></i>${escaped(axes[chosen.lines].name)} ${escaped(value)}</button></li>` : "").join("");
  if (!all.length) { box.textContent = "No point that is shown has this figure."; return; }
  const y = scale(withOne(chosen.y, all), HEIGHT - BOTTOM, TOP);
  const width = panels.size === 1 ? wide() : WIDTH;
  const figure = metrics[chosen.y].name;
  const title = (at) => chosen.panels < 0 ? figure : `${figure}, ${axes[chosen.panels].name} ${axes[chosen.panels].shown[at]}`;
  box.innerHTML = [...panels].sort((a, b) => a[0] - b[0]).map(([at, one]) => panel(title(at), one, y, width, chosen)).join("");
}

// The Pareto front per program; speeds are relative within a program.
function frontsOf(data, s, c) {
  const programs = axes.findIndex((axis) => axis.name === "program");
  const fronts = new Map();
  for (const row of data) {
    const at = programs < 0 ? 0 : row[programs];
    (fronts.get(at) ?? fronts.set(at, []).get(at)).push(row);
  }
  for (const [program, all] of fronts) {
    let best = -Infinity;
    fronts.set(program, all.sort((a, b) => c(b) - c(a) || s(b) - s(a)).filter((row) => s(row) > best && ((best = s(row)), true)));
  }
  return { programs, fronts };
}

function drawFront(data, box) {
  const [speed, capacity] = [metricOf("speed"), metricOf("capacity")];
  const [s, c] = [(row) => row[column(speed)], (row) => row[column(capacity)]];
  const both = speed < 0 || capacity < 0 ? [] : data.filter((row) => s(row) !== null && c(row) !== null);
  if (!both.length) { box.textContent = "No point that is shown has both."; return; }
  const { programs, fronts } = frontsOf([...both], s, c);
  const [w, h] = [wide(), 320];
  const across = scale(withOne(capacity, both.map(c)), LEFT + 8, w - RIGHT - 8);
  const y = scale(withOne(speed, both.map(s)), h - BOTTOM, TOP);
  const place = (row) => [across.at(c(row)).toFixed(1), y.at(s(row)).toFixed(1)];
  const points = (at) => [...new Set(both.filter((row) => programs < 0 || row[programs] === at).map((row) => `M${place(row).join(" ")}h0`))].join("");
  const ticks = across.ticks.map((v) => text(across.at(v), h - BOTTOM + 17, "middle", write(capacity, v, across.step))).join("");
  const drawn = [...fronts].map(([program, front]) => {
    const marks = front.map((row) => `<circle cx="${place(row)[0]}" cy="${place(row)[1]}" r="4" data-v="${escaped(`${settings(row)}: speed ${write(speed, s(row))}, capacity ${write(capacity, c(row))}`)}"/>`).join("");
    return `<g class="${colour(program)}"><path class="rest" d="${points(program)}"/><polyline points="${front.map((row) => place(row).join(",")).join(" ")}"/>${marks}</g>`;
  }).join("");
  const names = programs < 0 ? "" : `<ul class="legend">${[...fronts.keys()].map((at) => `<li class="${colour(at)}"><i></i>${escaped(axes[programs].shown[at])}</li>`).join("")}</ul>`;
  const all = [...fronts.values()].flat();
  const same = (a, b) => s(a) === s(b) && c(a) === c(b) && (programs < 0 || a[programs] === b[programs]);
  const label = text((LEFT + w - RIGHT) / 2, h - 6, "middle", "capacity");
  box.innerHTML = frame(`speed (up) against capacity (right), ${all.length} points on a front`, grid(y, speed, w) + ticks + label + drawn, w, h, names)
    + table("on a front", all.slice(0, 50).map((row) => ({ rows: both.filter((other) => same(other, row)) })), [speed, capacity]);
}
