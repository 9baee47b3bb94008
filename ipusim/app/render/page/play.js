// The page as it plays: controls and keys, and a part for each run.

const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];
const LOW = 42; // CSS pixels of a lane up to which it has one line of words
const NARROW = 640; // and of the page up to which a stash lies below its lane, so high
const BELOW = 30;

class Part {
  constructor(played, clock, view, number) {
    Object.assign(this, { played, clock, view });
    this.lanes = new Lanes(played, view);
    this.stash = new Stash(played);
    this.labels = make("div", { class: "labels" });
    this.stashes = make("div", { class: "stashes" });
    this.place = make("div", { class: "place" }, this.lanes.canvas);
    this.hear();
    this.values = {};
    this.element = this.build(`run${number}`);
  }

  build(id) {
    const { run, timeSteps } = this.played;
    const figure = (name, label, note) => {
      this.values[name] = make("dd", { "data-figure": name });
      return make("div", {}, make("dt", { title: note }, label), this.values[name]);
    };
    const stash = run.training ? make("h3", { class: "heading" }, "waiting for backward") : null;
    return make("section", { "aria-labelledby": id },
      make("div", { class: "headline" }, make("h2", { id, class: DATA.runs.length > 1 ? null : "unseen" }, run.title), make("dl", { class: "now" },
        figure("phase", "phase", "of the execution"),
        timeSteps ? figure("step", `time-step (of ${run.time_steps_in_all})`, "the number of the time-step, from 0") : null,
        figure("compute", "compute so far", "passes / (IPUs × time so far)"),
        figure("bubble", "bubble so far", "idle / (IPUs × time so far), of the pipeline without its weight update"))),
      ...run.notes.map((note) => make("p", { class: "note" }, note)),
      make("div", { class: run.training ? "plot" : "plot alone" }, stash, this.labels, this.place, run.training ? this.stashes : null));
  }

  // Go to the time that is pressed on the lanes, and on from there while the pointer is held.
  hear() {
    const { canvas } = this.lanes, go = ({ clientX }) => this.clock.go(this.view.seconds(clientX - canvas.getBoundingClientRect().left));
    canvas.addEventListener("pointerdown", (event) => { if (!event.button) { canvas.setPointerCapture(event.pointerId); go(event); } });
    canvas.addEventListener("pointermove", (event) => { if (canvas.hasPointerCapture(event.pointerId)) go(event); });
  }

  // Lay the part out in the room that the page has for it.
  layOut(tall, narrow) {
    const below = narrow && this.played.run.training ? BELOW : 0, { lanes } = this;
    this.element.classList.toggle("low", tall < LOW);
    lanes.height = lanes.layOut(tall, below);
    const place = (element, top, high) => { element.style.top = `${top}px`; element.style.height = `${high}px`; return element; };
    this.labels.replaceChildren(...this.played.run.lanes.map(({ label, detail }, n) =>
      place(make("div", { class: "label" }, make("span", {}, label), tall < LOW ? null : make("small", {}, detail)), lanes.tops[n], tall)));
    this.stash.lanes.forEach(({ element }, n) => place(element, lanes.tops[n] + (below ? tall : 0), below || tall));
    this.stashes.replaceChildren(...this.stash.lanes.map(({ element }) => element));
    this.element.style.setProperty("--high", `${lanes.height}px`);
  }

  draw() {
    const { clock, played } = this, time = Math.min(clock.now, played.end), part = played.computing(time);
    this.lanes.draw(this.view.width, clock.now);
    if (played.run.training) this.stash.draw(time);
    const show = (name, words) => { if (this.values[name] && this.values[name].textContent !== words) this.values[name].textContent = words; };
    const percent = (share) => (part === null ? "–" : `${(100 * share).toFixed(1)} %`);
    show("phase", clock.now === 0 ? "–" : played.phaseAt(time));
    if (played.timeSteps) show("step", played.timeStepAt(time));
    show("compute", percent(part));
    show("bubble", percent(1 - part));
  }
}

class Player {
  constructor(parts, clock, view) {
    Object.assign(this, { parts, clock, view });
    this.status = make("p", { class: "unseen", role: "status" });
    this.time = make("output", { id: "time" });
    this.parted = parts.map(({ element }) => element);
    this.tools = this.build();
    this.foot = [this.legend(), this.slotLegend() ?? "",
      make("p", { class: "help" }, "Space plays. ← → step, Page Up and Page Down go from phase to phase, Home and End to either end, + and − change the speed, A shows all.")];
    clock.changed.push(() => this.draw());
    clock.settled.push(() => this.settle());
    addEventListener("keydown", (event) => this.key(event));
  }

  // Return the controls.
  build() {
    const { clock } = this;
    this.play = button("play", "▶", "play (space)", () => clock.toggle());
    this.speed = make("select", { "data-do": "speed", "aria-label": "speed", onchange: () => { clock.speed = Number(this.speed.value); } },
      ...SPEEDS.map((each) => make("option", { value: each, selected: each === 1 }, `${each} ×`)));
    this.scrub = make("input", { type: "range", min: 0, max: clock.warp.length, step: "any", value: 0, "data-do": "scrub", "aria-label": "time",
      oninput: () => clock.go(clock.warp.true(Number(this.scrub.value))) });
    return [
      make("div", { class: "buttons" },
        button("home", "⇤", "to the start (Home)", () => clock.go(0)),
        button("back", "←", "a step back (←)", () => clock.step(false)),
        this.play,
        button("step", "→", "a step forward (→)", () => clock.step(true)),
        button("end", "⇥", "to the end (End)", () => clock.go(clock.end))),
      this.speed, this.time, this.scrub,
      make("div", { class: "buttons" },
        toggle("ghosts", "What comes", "show what comes", true, (on) => { for (const { lanes } of this.parts) lanes.ghosts = on; this.draw(); }),
        toggle("whole", "All", "show all of the time (A)", false, (on) => { this.view.whole = on; this.layOut(); })),
      this.status];
  }

  legend() {
    const used = new Set(this.parts.flatMap(({ played }) => Array.from(played.boxes.kind, (kind) => DATA.kinds[kind].look)));
    const letters = new Map(DATA.kinds.map(({ look, letter }) => [look, letter]));
    return make("ul", { class: "legend", "aria-label": "what boxes are" },
      ...DATA.looks.flatMap((look, n) => (used.has(n) ? [make("li", {}, swatch(look), `${letters.get(n) ? `${letters.get(n)} ` : ""}${look.name}`)] : [])),
      make("li", {}, make("span", { class: "swatch idle", "aria-hidden": "true" }), "idle"));
  }

  // Return what slots of stashes are; nothing in inference.
  slotLegend() {
    if (!this.parts.some(({ played }) => played.run.training)) return null;
    const states = [["fills", "its forward pass runs"], ["waits", "it waits"], ["used", "its backward pass runs"]];
    return make("ul", { class: "legend", "aria-label": "what waits for its backward pass" },
      make("li", {}, "a micro-batch that waits for its backward pass:"),
      ...states.map(([state, words]) => make("li", {}, make("span", { class: `swatch ${state}`, "aria-hidden": "true" }), words)));
  }

  key(event) {
    if (!this.time.isConnected || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select")) return;
    if ((event.key === " " || event.key === "Enter") && event.target.closest("button")) return;
    const act = this.acts()[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  acts() {
    const { clock, speed } = this, change = (by) => {
      speed.selectedIndex = Math.min(Math.max(speed.selectedIndex + by, 0), SPEEDS.length - 1);
      clock.speed = Number(speed.value);
    };
    return {
      " ": () => clock.toggle(),
      ArrowRight: () => clock.step(true),
      ArrowLeft: () => clock.step(false),
      PageDown: () => clock.phase(true),
      PageUp: () => clock.phase(false),
      Home: () => clock.go(0),
      End: () => clock.go(clock.end),
      "+": () => change(1),
      "=": () => change(1),
      "-": () => change(-1),
      a: () => document.querySelector("[data-do=whole]").click(),
    };
  }

  // Give lanes the height that lets all runs be seen at once, where that is one that people can read.
  layOut() {
    const narrow = innerWidth <= NARROW, lanes = this.parts.reduce((sum, { played }) => sum + played.run.lanes.length, 0);
    const room = innerHeight - 150 - this.parts.length * (PHASES + SCALE + 76) - (narrow ? BELOW * lanes : 0);
    const tall = Math.round(Math.min(Math.max(room / lanes - 8, 26), narrow ? 46 : 84));
    const most = Math.max(...this.parts.map(({ stash }) => stash.most));
    for (const part of this.parts) part.layOut(tall, narrow);
    const { place, stashes } = this.parts[0];
    this.view.fit(Math.max(Math.floor(place.getBoundingClientRect().width), 1));
    for (const { stash } of this.parts) stash.fit(stashes.getBoundingClientRect().width, most, narrow ? BELOW : tall, narrow || tall < LOW);
    this.draw();
  }

  draw() {
    const { clock } = this, words = timeText(clock.now, 5);
    this.view.fit(this.view.width);
    for (const part of this.parts) part.draw();
    this.time.textContent = words;
    this.scrub.value = clock.warp.played(clock.now);
    this.scrub.setAttribute("aria-valuetext", words);
  }

  // Say what has come of a step, and what the button does now.
  settle() {
    const { clock } = this;
    this.play.textContent = clock.playing ? "⏸" : "▶";
    this.play.setAttribute("aria-label", clock.playing ? "pause (space)" : "play (space)");
    document.documentElement.dataset.playing = `${clock.playing}`;
    if (clock.playing) return;
    const before = clock.steps.findLast((time) => time < clock.now) ?? 0;
    const said = this.parts.map(({ played }) => `${played.run.title}, ${played.phaseAt(Math.min(clock.now, played.end))}: ${played.doing(before, clock.now)}`);
    this.status.textContent = `${timeText(clock.now)}. ${said.join(". ")}`;
    this.parts.forEach(({ lanes }, n) => lanes.canvas.setAttribute("aria-label", said[n]));
  }
}

// Colours that the style sheet takes from the table of looks.
function applyLooks() {
  const of = (letter) => DATA.looks[DATA.kinds.find((kind) => kind.letter === letter).look][scheme()], { style } = document.documentElement;
  for (const [name, letter] of [["forward", "F"], ["backward", "B"]]) {
    style.setProperty(`--${name}`, of(letter).fill);
    style.setProperty(`--on-${name}`, of(letter).ink);
  }
  style.setProperty("--idle", textOf(idle()));
}

// Return the player of the page's executions, from their packed columns.
async function playerOf(contents) {
  const runs = [];
  for (const [number, played] of DATA.played.entries()) {
    runs.push(new Played({ ...DATA.runs[number], ...played }, await unpack(played.columns, contents[number])));
  }
  const clock = new Clock(runs), view = new View(clock);
  const player = new Player(runs.map((played, number) => new Part(played, clock, view, number)), clock, view);
  onTheme.push(applyLooks);
  applyLooks();
  return player;
}
