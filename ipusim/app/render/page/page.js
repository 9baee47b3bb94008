// The page as a whole: its head and tools, the tip at the pointer, and its start.

const tip = document.getElementById("tip");
const sections = [];
const views = {}; // what fills the page, by mode: "runs", and "play" once it has been asked for
let mode = "runs";

function showTip(fields, x, y) {
  tip.replaceChildren(make("dl", {}, ...fields.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)))));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = x + 16 + width > innerWidth ? x - width - 12 : x + 16;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, Math.min(y + 16, innerHeight - height - 4))}px`;
}

function hideTip() { tip.hidden = true; }

// Zoom by wheel, pan by drag, tell by hovering, choose by a click, on the axis that the section then has.
function watchPointer(canvas, section, tell, choose) {
  let held = null;
  const place = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const { axis } = section, [x] = place(event), across = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (Math.abs(across) > Math.abs(event.shiftKey ? 0 : event.deltaY)) axis.pan((across / Axis.width) * (axis.end - axis.start));
    else axis.zoom(1.0018 ** -Math.max(-400, Math.min(400, event.deltaY * (event.deltaMode ? 30 : 1))), axis.at(x));
    hideTip();
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    held = { x: event.clientX, start: section.axis.start, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    if (held && (held.moved || Math.abs(event.clientX - held.x) > 3)) {
      held.moved = true;
      canvas.classList.add("held");
      hideTip();
      const { axis } = section;
      axis.pan(held.start - ((event.clientX - held.x) / Axis.width) * (axis.end - axis.start) - axis.start);
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

// What the tip tells is no longer under the pointer, or no longer looked at, once keys are used or the page has moved.
addEventListener("keydown", hideTip, true);
addEventListener("scroll", hideTip, { passive: true });

// Tell what a part of a bar stands for.
document.addEventListener("pointerover", (event) => {
  const part = event.target.closest && event.target.closest("[data-words]");
  if (part) showTip([["", part.dataset.words]], event.clientX, event.clientY);
  else if (!event.target.closest || !event.target.closest("canvas")) hideTip();
});

function buildHead(contents) {
  document.title = DATA.title;
  const plays = toggle("mode", "Play", DATA.unplayable || "play the first execution", false, async (on) => {
    await enter(on ? "play" : "runs", contents);
    if (on) document.querySelector("[data-do=play]").focus();
  });
  plays.disabled = !DATA.played.length;
  document.getElementById("head").append(make("div", { class: "title" }, make("h1", {}, DATA.title), make("div", { class: "buttons" }, plays, themeButton())));
  if (DATA.overview) document.getElementById("head").append(tableOf(DATA.overview));
}

// Fill the page with what a mode shows: its tools, its parts and its foot.
async function enter(next, contents) {
  if (next === "play" && !views.play) {
    const player = await playerOf(contents);
    views.play = { label: "play", tools: player.tools, parts: player.parted, foot: player.foot, fit: () => player.layOut(), leave: () => player.clock.pause() };
    player.settle();
  }
  views[mode].leave();
  mode = next;
  const { label, tools, parts, foot, fit } = views[mode], fill = (id, elements) => document.getElementById(id).replaceChildren(...elements);
  document.documentElement.classList.toggle("play", mode === "play");
  press(document.querySelector("[data-do=mode]"), mode === "play");
  document.getElementById("tools").setAttribute("aria-label", label);
  fill("tools", tools);
  fill("runs", parts);
  fill("foot", [...foot, make("p", {}, DATA.made)]);
  fit();
}

// A run that would get less than this part of the width on one axis with the longest is compared better without.
const LEAST_SHARE = 1 / 4;

// Return whether runs are alike enough to be read on one axis.
function areAlike() {
  const ends = sections.map((section) => section.firstExecution());
  return Math.min(...ends) >= LEAST_SHARE * Math.max(...ends);
}

// Put all runs on one axis of time, or each on its own.
function shareAxis(shared) {
  const ends = sections.map((section) => section.firstView());
  const one = new Axis(Math.max(...sections.map(({ end }) => end)), Math.max(...ends));
  sections.forEach((section, n) => { section.axis = shared ? one : new Axis(section.end, ends[n]); });
  redraw();
}

// Put runs on axes, and return what says on which, and switches that; nothing of one run.
function scaleChoice() {
  if (sections.length < 2) { shareAxis(true); return []; }
  const words = make("span", { class: "note", id: "scale", role: "status" });
  const choose = (shared) => {
    words.textContent = shared ? "All runs have the same time scale." : "Each run has a time scale of its own.";
    shareAxis(shared);
  };
  choose(areAlike());
  return [make("div", { class: "buttons" }, toggle("share", "One time scale", null, areAlike(), choose)), words];
}

function buildTools() {
  const axes = () => new Set(sections.map((section) => section.axis)), onEach = (act) => () => axes().forEach(act);
  const buttons = make("div", { class: "buttons" },
    button("in", "+", "zoom in", onEach((axis) => axis.zoom(1.5))),
    button("out", "−", "zoom out", onEach((axis) => axis.zoom(1 / 1.5))),
    button("left", "←", "earlier", onEach((axis) => axis.pan((axis.start - axis.end) / 4))),
    button("right", "→", "later", onEach((axis) => axis.pan((axis.end - axis.start) / 4))),
    button("fit", "All", "show all of the time", onEach((axis) => axis.fit())),
    sections.some((section) => section.trace.tracks.some((track) => !track.main && track.slices.length)) ? toggle("beside", "Links and host", null, false, (on) => {
      for (const section of sections) section.showBeside(on);
      redraw();
    }) : null);
  const used = new Set(sections.flatMap((section) => [...new Set(section.trace.look)]));
  const legend = make("ul", { class: "legend", "aria-label": "kinds of spans; press one to hide it" });
  DATA.looks.forEach((look, number) => {
    if (!used.has(number)) return;
    const key = toggle(null, swatch(look), null, true, (on) => {
      for (const { trace } of sections) if (on) trace.hidden.delete(number); else trace.hidden.add(number);
      redraw();
    });
    key.append(look.name);
    key.title = `hide or show: ${look.name}`;
    key.dataset.look = look.name;
    legend.append(make("li", {}, key));
  });
  const help = make("p", { class: "help" }, "Wheel or + − zoom, drag or ← → pan, 0 shows all. Click a span, or ↑ ↓ N P choose one; Enter zooms to it, F follows its micro-batch, C shows the critical path, Esc ends that.");
  return [buttons, ...scaleChoice(), make("details", { class: "keys" }, make("summary", {}, "Keys"), help), legend];
}

// On paper nothing is folded.
function unfoldOnPaper() {
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details.fold:not([open])")];
    for (const each of folded) each.open = true;
  });
  addEventListener("afterprint", () => { for (const each of folded) each.open = false; });
}

// Pixels of a plot on paper: what A4 upright leaves beside the names of tracks.
const ON_PAPER = 510;

function measure() {
  if (printing) { Axis.width = ON_PAPER; return; }
  const place = document.querySelector(".place");
  if (!place) return;
  const wide = Math.floor(place.getBoundingClientRect().width);
  if (wide > 0) Axis.width = wide;
}

async function begin() {
  const contents = [...document.querySelectorAll("script[data-run]")].map((element) => { element.remove(); return element.textContent; });
  for (const [number, run] of DATA.runs.entries()) sections.push(new Section(run, await unpack(run.columns, contents[number]), number));
  drawings.push(...sections.map((section) => () => section.draw()));
  const played = contents.slice(DATA.runs.length);
  buildHead(played);
  views.runs = { label: "view of the traces", tools: buildTools(), parts: sections.map((section) => section.element), foot: [], fit: () => { measure(); drawAll(); }, leave: () => {} };
  applyTheme();
  await enter(DATA.plays ? "play" : "runs", played);
  new ResizeObserver(() => views[mode].fit()).observe(document.getElementById("runs"));
  onTheme.push(() => views[mode].fit());
  unfoldOnPaper();
  document.documentElement.dataset.ready = `${Math.round(performance.now())}`;
}

begin().catch((error) => {
  document.getElementById("runs").replaceChildren(make("p", { class: "wrong" }, `This page cannot be shown: ${error.message}`));
  throw error;
});
