
// Downloads a text as a file.
function save(file, kind, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: kind }));
  link.download = file;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
document.getElementById("save")?.addEventListener("click", () => {
  const record = document.getElementById("record");
  save(record.dataset.file, "application/json", record.textContent);
});

// Column names with their groups.
function columns(table) {
  const groups = [...table.querySelectorAll("thead .groups th")].flatMap((head) => Array(head.colSpan).fill(head.textContent));
  const heads = [...table.querySelectorAll("thead tr:last-child th")];
  return heads.map((head, i) => groups[i] ? `${groups[i]}: ${head.textContent}` : head.textContent);
}

// A table as CSV, with unformatted numbers.
function csv(table) {
  const quoted = (text) => /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  const rows = [...table.tBodies, ...(table.tFoot ? [table.tFoot] : [])].flatMap((part) => [...part.rows]);
  const cells = rows.map((row) => [...row.cells].map((cell) => cell.dataset.key ?? cell.textContent));
  return [columns(table), ...cells].map((row) => row.map(quoted).join(",") + "\n").join("");
}
for (const table of document.querySelectorAll(".scroll > table.sortable")) {
  const line = document.createElement("p");
  line.className = "save";
  const button = document.createElement("button");
  button.textContent = "Download CSV";
  const heading = table.closest("section")?.querySelector("h2")?.textContent ?? document.title;
  button.addEventListener("click", () => save(`${heading.toLowerCase().replace(/[^a-z0-9]+/g, "-")}.csv`, "text/csv", csv(table)));
  line.append(button);
  table.parentElement.after(line);
}

// On phones, each row of a wide table becomes a small table, so that nothing is cut off.
function stack() {
  for (const box of document.querySelectorAll(".scroll")) {
    const table = box.querySelector("table");
    table.classList.remove("stacked");
    if (innerWidth > 720 || box.scrollWidth <= box.clientWidth + 1) continue;
    const names = columns(table);
    for (const row of table.querySelectorAll("tbody tr, tfoot tr")) {
      [...row.cells].forEach((cell, i) => { cell.dataset.name = names[i] ?? ""; });
    }
    table.classList.add("stacked");
  }
}
addEventListener("resize", stack);
stack();

// For printing: unfold everything and draw every map.
addEventListener("beforeprint", () => {
  for (const one of document.querySelectorAll("details:not(.deviation, .made)")) one.open = true;
  canvases.forEach(draw);
});
