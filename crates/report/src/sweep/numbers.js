// Formatting of numbers and settings, and scales with round ticks.
const { name, axes, metrics, rows } = JSON.parse(document.getElementById("sweep").textContent);
const column = (metric) => axes.length + metric;
const metricOf = (wanted) => metrics.findIndex((metric) => metric.name === wanted);
const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
const numeric = (axis) => axis >= 0 && axes[axis].values.every((value) => value !== "" && Number.isFinite(Number(value)));

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
const inBytes = (axis) => /(^|[._])bytes$|^metadata$/.test(axis.name);
function bytes(value) {
  let unit = 0;
  for (; value >= 1024 && value % 1024 === 0 && unit < 4; unit++) value /= 1024;
  return `${value} ${UNITS[unit]}`;
}
// Formats an axis value, and an axis name with its unit if the values are bare numbers.
for (const [i, axis] of axes.entries()) {
  axis.shown = inBytes(axis) && numeric(i) ? axis.values.map((value) => bytes(Number(value))) : axis.values;
  axis.title = axis.name === "link" && numeric(i) ? "link, GB/s" : axis.name;
}

const SECONDS = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
const compact = (value) => value.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 4 });
const plain = (value) => Math.abs(value) >= 1e6 ? compact(value) : String(Number(value.toPrecision(4)));
function seconds(value) {
  const [size, unit] = SECONDS.find(([size]) => value >= size) ?? SECONDS.at(-1);
  return `${plain(value / size)} ${unit}`;
}
// Two or more significant digits; ticks get as many as distinguish them.
function write(metric, value, step = 0) {
  const digits = (least, by = 1) => step > 0 ? Math.max(0, Math.ceil(-Math.log10(step * by) - 1e-9) + (String(step).includes("25") ? 1 : 0)) : least;
  const { unit, name } = metrics[metric];
  if (name === "seconds") return seconds(value);
  if (unit === "ratio") return `${value.toFixed(Math.min(6, digits(Math.abs(value - 1) < 0.01 && value !== 1 ? 4 : 2)))}x`;
  if (unit === "percent") return step > 0 ? `${(value * 100).toFixed(digits(0, 100))}%` : `${plain(value * 100)}%`;
  if (unit === "count") return step > 0 ? compact(value) : Math.round(value).toLocaleString("en").replaceAll(",", "\u202f");
  return plain(value);
}

const round = (raw) => {
  const size = 10 ** Math.floor(Math.log10(raw));
  return Number((size * [1, 2, 2.5, 5, 10].find((digit) => digit >= raw / size - 1e-9)).toPrecision(3));
};
function ticksOf(least, most, log) {
  if (!log) {
    const step = round((most - least) / 5);
    const first = Math.ceil(least / step - 1e-9), count = Math.floor(most / step + 1e-9) - first;
    return [[...Array(count + 1)].map((_, i) => Number(((first + i) * step).toPrecision(12))), step];
  }
  const decades = [...Array(40)].map((_, i) => 10 ** (Math.floor(Math.log10(least)) + i)).filter((ten) => ten <= most);
  const digits = decades.length > 4 ? [1] : decades.length > 2 ? [1, 3] : [1, 2, 5];
  const ticks = decades.flatMap((ten) => digits.map((digit) => Number((ten * digit).toPrecision(3)))).filter((v) => v >= least && v <= most);
  return [ticks.length > 1 ? ticks : [least, most], 0];
}
// Keeps differences below two percent visually small.
const LEAST_SPAN = 0.02;
function scale(values, from, to, log = null) {
  let least = values.reduce((a, b) => Math.min(a, b)), most = values.reduce((a, b) => Math.max(a, b));
  log ??= least > 0 && most / least > 10;
  const span = Math.max(most - least, LEAST_SPAN * Math.max(Math.abs(most), 0.5)), middle = (least + most) / 2;
  if (log) [least, most] = [least / (most / least) ** 0.03, most * (most / least) ** 0.03];
  else [least, most] = [least >= 0 ? Math.max(0, middle - 0.54 * span) : middle - 0.54 * span, middle + 0.54 * span];
  const f = log ? Math.log : (v) => v;
  const at = (v) => from + (f(v) - f(least)) / (f(most) - f(least) || 1) * (to - from);
  const [ticks, step] = ticksOf(least, most, log);
  return { at, ticks, step };
}
// Adds 1, the baseline, to the values of an axis of ratios.
const withOne = (metric, values) => metrics[metric].unit === "ratio" ? [...values, 1] : values;
// Returns whether the numbers form a geometric series.
const isGeometric = (numbers) => {
  const ratios = numbers.slice(1).map((number, i) => number / numbers[i]);
  return numbers.length > 2 && numbers[0] > 0 && ratios.every((ratio) => ratio > 1.4 && Math.abs(ratio / ratios[0] - 1) < 0.01);
};
// Returns whether the numbers form an arithmetic series.
const isArithmetic = (numbers) => {
  const step = numbers[1] - numbers[0];
  return numbers.length > 2 && numbers.slice(1).every((number, i) => Math.abs(number - numbers[i] - step) <= 1e-6 * Math.abs(step));
};
