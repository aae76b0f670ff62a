
// Tooltips of marks.
const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
document.body.append(tip);
for (const kind of ["pointerover", "pointerdown"]) {
  document.addEventListener(kind, (event) => {
    const mark = event.target.closest?.("[data-v]");
    tip.hidden = !mark;
    if (!mark) return;
    tip.textContent = mark.dataset.v;
    const box = mark.getBoundingClientRect();
    const left = Math.min(Math.max(8, box.left + box.width / 2 - tip.offsetWidth / 2), innerWidth - tip.offsetWidth - 8);
    const above = box.top - tip.offsetHeight - 8;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 4 ? above : box.bottom + 8}px`;
  });
}

// A click on a legend name toggles its series.
for (const button of document.querySelectorAll(".plot .legend button")) {
  button.addEventListener("click", () => {
    const shown = button.getAttribute("aria-pressed") === "false";
    button.setAttribute("aria-pressed", String(shown));
    const marks = button.closest(".plot").querySelectorAll(`svg [data-s="${button.dataset.s}"]`);
    for (const mark of marks) mark.style.display = shown ? "" : "none";
  });
}

// A link to a deviation opens it.
function openTarget() {
  const target = document.getElementById(location.hash.slice(1));
  if (target instanceof HTMLDetailsElement) target.open = true;
}
addEventListener("hashchange", openTarget);
openTarget();

// A click on a heat map opens it full size; the buttons and Ctrl+wheel zoom.
function zoom(canvas) {
  const box = document.createElement("dialog");
  box.className = "zoom";
  const head = document.createElement("header");
  const title = document.createElement("b");
  title.textContent = canvas.parentElement.querySelector("b").textContent;
  const view = document.createElement("div");
  view.className = "view";
  const large = document.createElement("canvas");
  Object.assign(large.dataset, canvas.dataset);
  [large.width, large.height] = [canvas.width, canvas.height];
  const readout = document.createElement("p");
  readout.className = "readout";
  readout.textContent = canvas.parentElement.querySelector(".readout").dataset.rest;
  let scale = 0;
  const set = (factor) => {
    const fits = Math.max(1, (view.clientWidth - 2) / 64);
    const old = scale || fits;
    scale = Math.min(64, Math.max(fits, old * factor));
    large.style.width = `${64 * scale}px`;
    large.style.height = `${large.height * Math.max(3, scale / fits * 3)}px`;
    view.scrollTop *= scale / old;
  };
  const button = (text, action) => {
    const made = document.createElement("button");
    made.textContent = text;
    made.addEventListener("click", action);
    return made;
  };
  head.append(title, button("−", () => set(1 / 1.5)), button("+", () => set(1.5)), button("close", () => box.close()));
  large.addEventListener("pointermove", (event) => { readout.textContent = read(large, event); });
  view.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    set(event.deltaY < 0 ? 1.2 : 1 / 1.2);
  }, { passive: false });
  view.append(large);
  box.append(head, view, readout);
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
  draw(large);
  set(1);
}
for (const canvas of canvases) canvas.addEventListener("click", () => zoom(canvas));
