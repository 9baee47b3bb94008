// The page as a whole: its head and tools, the tip at the pointer, and its start.

const tip = document.getElementById("tip");
const sections = [];

function showTip(fields, x, y) {
  tip.replaceChildren(make("dl", {}, ...fields.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)))));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = x + 16 + width > innerWidth ? x - width - 12 : x + 16;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, Math.min(y + 16, innerHeight - height - 4))}px`;
}

function hideTip() { tip.hidden = true; }

// Zoom by wheel, pan by drag, tell by hovering, choose by a click.
function watchPointer(canvas, tell, choose) {
  let held = null;
  const place = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const [x] = place(event), across = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (Math.abs(across) > Math.abs(event.shiftKey ? 0 : event.deltaY)) axis.pan((across / axis.width) * (axis.end - axis.start));
    else axis.zoom(1.0018 ** -Math.max(-400, Math.min(400, event.deltaY * (event.deltaMode ? 30 : 1))), axis.at(x));
    hideTip();
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    held = { x: event.clientX, start: axis.start, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    if (held && (held.moved || Math.abs(event.clientX - held.x) > 3)) {
      held.moved = true;
      canvas.classList.add("held");
      hideTip();
      axis.pan(held.start - ((event.clientX - held.x) / axis.width) * (axis.end - axis.start) - axis.start);
      return;
    }
    const fields = tell(x, y);
    if (fields) showTip(fields, event.clientX, event.clientY); else hideTip();
  });
  canvas.addEventListener("pointerup", (event) => {
    if (held && !held.moved) choose(...place(event));
    held = null;
    canvas.classList.remove("held");
  });
  canvas.addEventListener("pointercancel", () => { held = null; canvas.classList.remove("held"); });
  canvas.addEventListener("pointerleave", hideTip);
}

// Tell what a part of a bar stands for.
document.addEventListener("pointerover", (event) => {
  const part = event.target.closest && event.target.closest("[data-words]");
  if (part) showTip([["", part.dataset.words]], event.clientX, event.clientY);
  else if (!event.target.closest || !event.target.closest("canvas")) hideTip();
});

function buildHead() {
  document.title = DATA.title;
  const head = document.getElementById("head");
  const theme = make("button", { type: "button", id: "theme", "aria-pressed": "false", onclick: () => {
    chosen = isDark() ? "light" : "dark";
    applyTheme();
  } }, "Dark");
  onTheme.push(() => theme.setAttribute("aria-pressed", `${isDark()}`));
  head.append(make("div", { class: "title" }, make("h1", {}, DATA.title), theme));
  if (DATA.overview) head.append(tableOf(DATA.overview));
  document.getElementById("foot").append(make("p", {}, DATA.made));
}

function buildTools() {
  const button = (does, label, words, act) => make("button", { type: "button", "data-do": does, "aria-label": words, title: words, onclick: act }, label);
  const tools = document.getElementById("tools");
  tools.append(make("div", { class: "buttons" },
    button("in", "+", "zoom in", () => axis.zoom(1.5)),
    button("out", "−", "zoom out", () => axis.zoom(1 / 1.5)),
    button("left", "←", "earlier", () => axis.pan((axis.start - axis.end) / 4)),
    button("right", "→", "later", () => axis.pan((axis.end - axis.start) / 4)),
    button("fit", "All", "show all of the time", () => axis.fit()),
    sections.some((section) => section.trace.tracks.some((track) => !track.main && track.slices.length)) ? make("button", {
      type: "button", "data-do": "beside", "aria-pressed": "false", onclick: (event) => {
        const on = event.currentTarget.getAttribute("aria-pressed") !== "true";
        event.currentTarget.setAttribute("aria-pressed", `${on}`);
        for (const section of sections) section.trace.beside = on;
        axis.changed();
      } }, "Links and host") : null,
  ));
  const used = new Set(sections.flatMap((section) => [...new Set(section.trace.look)]));
  const legend = make("ul", { class: "legend", "aria-label": "kinds of spans; press one to hide it" });
  DATA.looks.forEach((look, number) => {
    if (!used.has(number)) return;
    const key = make("button", { type: "button", "aria-pressed": "true", "data-look": look.name, title: `hide or show: ${look.name}`, onclick: () => {
      const shown = key.getAttribute("aria-pressed") !== "true";
      key.setAttribute("aria-pressed", `${shown}`);
      for (const { trace } of sections) if (shown) trace.hidden.delete(number); else trace.hidden.add(number);
      axis.changed();
    } }, swatch(look), look.name);
    legend.append(make("li", {}, key));
  });
  tools.append(legend);
  const help = make("p", { class: "help" }, "Wheel or + − zoom, drag or ← → pan, 0 shows all. Click a span, or ↑ ↓ N P choose one; Enter zooms to it, F follows its micro-batch, C shows the critical path, Esc ends that.");
  tools.append(make("details", { class: "keys" }, make("summary", {}, "Keys"), help));
}

// Pixels of a plot on paper: what A4 upright leaves beside the names of tracks.
const ON_PAPER = 510;

function measure() {
  if (printing) { axis.width = ON_PAPER; return; }
  const place = document.querySelector(".place");
  if (!place) return;
  const wide = Math.floor(place.getBoundingClientRect().width);
  if (wide > 0) axis.width = wide;
}

async function begin() {
  const contents = [...document.querySelectorAll("script[data-run]")];
  const main = document.getElementById("runs");
  for (const [number, run] of DATA.runs.entries()) {
    const columns = await unpack(run.columns, contents[number].textContent);
    contents[number].remove();
    sections.push(new Section(run, columns, number));
  }
  buildHead();
  buildTools();
  main.replaceChildren(...sections.map((section) => section.element));
  axis.last = Math.max(...DATA.runs.map((run) => run.cycles / run.clock_hz));
  axis.listeners.push(...sections.map((section) => () => section.draw()));
  new ResizeObserver(() => { measure(); axis.draw(); }).observe(main);
  onTheme.push(() => { measure(); axis.draw(); });
  applyTheme();
  measure();
  axis.show(0, Math.max(...sections.map((section) => section.firstExecution())));
  axis.draw();
  document.documentElement.dataset.ready = `${Math.round(performance.now())}`;
}

begin().catch((error) => {
  document.getElementById("runs").replaceChildren(make("p", { class: "wrong" }, `This page cannot be shown: ${error.message}`));
  throw error;
});
