// A run's part of the page: what came of it, its trace with memory below, why it waits, and its tables.

class Section {
  constructor(run, columns, number) {
    this.run = run;
    this.trace = new Trace(run, columns);
    this.memory = run.memory ? new Memory(run, columns) : null;
    this.path = columns.path;
    this.labels = make("div", { class: "labels" });
    this.details = make("dl", { class: "fields", "aria-live": "polite" });
    this.memoryLabels = make("div", { class: "labels" });
    this.following = null;
    this.onPath = false;
    this.linkNote = run.physical.length ? make("p", { class: "note", hidden: true }, physicalWords(run)) : null;
    this.element = this.build(number);
    this.hear();
  }

  build(number) {
    const run = this.run, id = `run${number}`;
    const canvas = this.trace.canvas;
    canvas.setAttribute("aria-label", `trace of ${run.title}: ${whole(run.spans)} spans. Arrow keys pan and choose a row, plus and minus zoom, N and P step through spans`);
    this.plot = make("div", { class: "plot" }, this.labels, make("div", { class: "place" }, canvas));
    const parts = [
      make("h2", { id, class: DATA.runs.length > 1 ? null : "unseen" }, run.title),
      run.description ? make("p", { class: "description" }, run.description) : null,
      make("dl", { class: "figures" }, ...run.figures.map(({ label, value, note }) =>
        make("div", {}, make("dt", {}, label), make("dd", {}, value), note ? make("dd", { class: "note" }, note) : null))),
      run.waterfall ? barsOf(run.waterfall) : null,
      run.verdict.length ? make("ul", { class: "verdict" }, ...run.verdict.map((line) => make("li", {}, line))) : null,
      make("h3", {}, "Trace"),
      this.controls(id),
      this.plot,
      this.linkNote,
      this.details,
      ...run.notes.map((note) => make("p", { class: "note" }, note)),
      make("h3", {}, "Memory over time"),
    ];
    if (this.memory) {
      parts.push(make("p", { class: run.fits === "fits" ? "note" : "wrong" }, run.memory.verdict));
      this.memory.layOut();
      if (!this.memory.limitShown && this.memory.rows.length > 1) parts.push(make("p", { class: "note" }, "Each row has a scale of its own, up to its peak."));
      this.memory.canvas.setAttribute("role", "img");
      this.memory.canvas.setAttribute("aria-label", `memory of each IPU over time; ${run.memory.verdict}`);
      const used = new Set(run.memory.rows.flatMap((row) => row.layers.map((layer) => layer.look)));
      parts.push(make("div", { class: "plot" }, this.memoryLabels, make("div", { class: "place" }, this.memory.canvas)));
      parts.push(make("ul", { class: "legend" }, ...DATA.holders.flatMap((look, n) => (used.has(n) ? [make("li", {}, swatch({ ...look, hatch: "" }), look.name)] : [])),
        this.memory.limitShown ? make("li", {}, make("span", { class: "dash", "aria-hidden": "true" }), `memory of an IPU, ${bytesText(this.memory.limit)}`) : null));
    } else parts.push(make("p", { class: "note" }, run.no_memory));
    parts.push(make("h3", {}, run.bars.title), barsOf(run.bars));
    parts.push(make("details", { class: "fold" }, make("summary", {}, "Tables"), make("div", { class: "tables" }, ...run.tables.map(tableOf))));
    parts.push(make("details", { class: "fold" }, make("summary", {}, "Scenario and versions"), make("pre", { tabindex: 0 }, run.scenario)));
    return make("section", { "aria-labelledby": id }, ...parts);
  }

  // Where to jump to, and what to follow.
  controls(id) {
    const run = this.run, bar = make("div", { class: "controls" });
    const field = (label, element) => bar.append(make("label", {}, label, element));
    const executions = [...new Set(run.phases.map((phase) => phase.execution))];
    this.execution = make("select", { "data-do": "execution" }, ...executions.map((n) => make("option", { value: n }, `${n}`)));
    this.phase = make("select", { "data-do": "phase" });
    this.batch = make("input", { type: "number", min: 0, max: run.count - 1, step: 1, "data-do": "batch", placeholder: `0–${run.count - 1}` });
    this.replica = make("select", { "data-do": "replica" }, ...Array.from({ length: run.replicas }, (_, n) => make("option", { value: n }, `${n}`)));
    const phases = () => this.phase.replaceChildren(make("option", { value: "" }, "the whole of it"), ...run.phases
      .filter((each) => each.execution === Number(this.execution.value))
      .map((each) => make("option", { value: each.name }, each.name)));
    phases();
    field("Execution", this.execution);
    field("Phase", this.phase);
    this.execution.addEventListener("change", () => { phases(); this.jump(); if (this.following !== null) this.follow(this.following); });
    this.phase.addEventListener("change", () => this.jump());
    if (run.replicas > 1) field("Replica", this.replica);
    this.replica.addEventListener("change", () => { if (this.following !== null) this.follow(this.following); });
    field(run.segments > 1 ? "Segment" : "Micro-batch", this.batch);
    const toBatch = () => this.batch.value !== "" && this.batch.checkValidity();
    const enter = (event) => { if (event.key === "Enter" && toBatch()) this.toMicroBatch(Number(this.batch.value)); };
    this.batch.addEventListener("keydown", enter);
    bar.append(make("button", { type: "button", "data-do": "jump", onclick: () => toBatch() && this.toMicroBatch(Number(this.batch.value)) }, "Jump to it"));
    this.followButton = make("button", { type: "button", "data-do": "follow", "aria-pressed": "false", onclick: () => {
      if (this.following !== null) this.follow(null);
      else if (toBatch()) this.follow(Number(this.batch.value));
      else this.batch.focus();
    } }, "Follow it");
    bar.append(this.followButton);
    this.pathButton = make("button", { type: "button", "data-do": "path", "aria-pressed": "false", onclick: () => this.showPath(!this.onPath) }, "Critical path");
    bar.append(this.pathButton);
    bar.append(make("button", { type: "button", "data-do": "fit-run", onclick: () => this.axis.show(0, run.cycles / run.clock_hz) }, "Whole run"));
    return bar;
  }

  // The axis of time of the trace, and of what IPUs hold.
  get axis() { return this.trace.axis; }
  set axis(axis) {
    this.trace.axis = axis;
    if (this.memory) this.memory.axis = axis;
  }

  get end() { return this.run.cycles / this.run.clock_hz; }

  // Show or hide links and the host, and say by what links are named.
  showBeside(on) {
    this.trace.beside = on;
    if (this.linkNote) this.linkNote.hidden = !on;
  }

  // Return the second in which the first execution has ended, with a little room behind it.
  firstExecution() {
    const first = this.run.phases.filter((phase) => phase.execution === this.run.phases[0].execution);
    return (1.01 * Math.max(...first.map((phase) => phase.end))) / this.run.clock_hz;
  }

  // Return up to which second the page shows at first: of what is drawn only at its ends, the first end.
  firstView() {
    const end = this.firstExecution(), [gap] = this.run.gaps.map(({ start }) => start / this.run.clock_hz);
    return gap === undefined ? end : Math.min(end, 1.12 * gap);
  }

  jump() {
    const chosen = this.run.phases.filter((each) => each.execution === Number(this.execution.value) && (!this.phase.value || each.name === this.phase.value));
    if (!chosen.length) return;
    const start = Math.min(...chosen.map((each) => each.start)), end = Math.max(...chosen.map((each) => each.end));
    const room = (end - start) * 0.02;
    this.axis.show((start - room) / this.run.clock_hz, (end + room) / this.run.clock_hz);
  }

  // Return the rows of a micro-batch in the chosen execution and replica, in order of time.
  rowsOf(batch) {
    const { micro_batch, execution, replica } = this.trace.rows, found = [];
    for (let row = 0; row < micro_batch.length; row++) {
      if (micro_batch[row] === batch && execution[row] === Number(this.execution.value) && (replica[row] < 0 || replica[row] === Number(this.replica.value))) found.push(row);
    }
    return found;
  }

  toMicroBatch(batch) {
    const rows = this.rowsOf(batch).filter((row) => DATA.kinds[this.trace.rows.kind[row]].pass);
    if (!rows.length) return;
    const start = this.trace.rows.start[rows[0]], end = Math.max(...rows.map((row) => this.trace.end[row]));
    const room = (end - start) * 0.05;
    this.axis.show((start - room) / this.run.clock_hz, (end + room) / this.run.clock_hz);
    if (this.following !== null) this.follow(batch);
  }

  follow(batch) {
    this.following = batch;
    if (batch !== null) { this.onPath = false; this.batch.value = batch; }
    const rows = batch === null ? null : this.rowsOf(batch);
    this.light(rows, rows && rows.filter((row) => DATA.kinds[this.trace.rows.kind[row]].pass));
  }

  showPath(on) {
    this.onPath = on;
    if (on) this.following = null;
    this.light(on ? this.path : null, on ? this.path : null);
  }

  // Highlight rows and join some of them by a line; null: none.
  light(rows, joined) {
    this.trace.lit = rows ? new Uint8Array(this.trace.rows.start.length) : null;
    if (rows) for (const row of rows) this.trace.lit[row] = 1;
    this.trace.thread = joined;
    press(this.followButton, this.following !== null);
    this.followButton.textContent = this.following === null ? "Follow it" : `Following ${this.following}`;
    press(this.pathButton, this.onPath);
    redraw();
  }

  draw() {
    this.trace.draw();
    const shown = this.trace.shown.map((track) => `${track.number}.${track.top}`).join();
    if (shown !== this.drawn) {
      this.drawn = shown;
      this.labels.replaceChildren(...this.trace.shown.map((track) => labelOf(track.label, track.tall > 26 ? track.detail : "", track.name, track)));
    }
    if (!this.memory) return;
    this.memory.draw();
    if (!this.memoryLabels.firstChild) {
      this.memoryLabels.replaceChildren(...this.memory.rows.map((row) => labelOf(row.label, row.tall > 26 ? `peak ${bytesText(row.peak_bytes)}` : "", nameOfRow(row), row)));
    }
  }

  select(found) {
    this.trace.selected = found;
    this.details.replaceChildren(...(found ? this.trace.fields(found).map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))) : []));
    redraw();
  }

  hear() {
    const { canvas } = this.trace;
    watchPointer(canvas, this, (x, y) => { const found = this.trace.pick(x, y); return found && this.trace.fields(found); },
      (x, y) => this.select(this.trace.pick(x, y)));
    if (this.memory) watchPointer(this.memory.canvas, this, (x, y) => this.memory.pick(x, y), () => {});
    canvas.addEventListener("keydown", (event) => {
      const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      act(this);
    });
  }

  // Select the next span of the same row, or the span of another row at the same time.
  step(along, across = 0) {
    const { trace, axis } = this;
    let track = trace.selected && trace.shown.includes(trace.selected.track) ? trace.selected.track : trace.shown[0];
    const around = trace.selected ? trace.rows.start[trace.selected.row] : axis.start * trace.hz;
    if (trace.selected && across) track = trace.shown[Math.min(Math.max(trace.shown.indexOf(track) + across, 0), trace.shown.length - 1)];
    let at = trace.selected && !across ? track.slices.indexOf(trace.selected.slice) + along : trace.firstBehind(track, around);
    while (at >= 0 && at < track.slices.length && trace.hidden.has(trace.look[trace.rowOf(track.slices[at])])) at += along || 1;
    const slice = track.slices[Math.min(Math.max(at, 0), track.slices.length - 1)], row = trace.rowOf(slice);
    this.select({ track, row, slice });
    const start = trace.rows.start[row] / trace.hz, end = trace.end[row] / trace.hz, length = axis.end - axis.start;
    if (start < axis.start || end > axis.end) axis.show((start + end - length) / 2, (start + end + length) / 2);
  }
}

const KEYS = {
  ArrowLeft: ({ axis }) => axis.pan((axis.start - axis.end) / 8),
  ArrowRight: ({ axis }) => axis.pan((axis.end - axis.start) / 8),
  ArrowUp: (section) => section.step(0, -1),
  ArrowDown: (section) => section.step(0, 1),
  "+": ({ axis }) => axis.zoom(1.5),
  "=": ({ axis }) => axis.zoom(1.5),
  "-": ({ axis }) => axis.zoom(1 / 1.5),
  0: ({ axis }) => axis.fit(),
  Home: ({ axis }) => axis.fit(),
  n: (section) => section.step(1),
  p: (section) => section.step(-1),
  c: (section) => section.showPath(!section.onPath),
  f: (section) => {
    const { selected, rows } = section.trace;
    if (section.following !== null) return section.follow(null);
    if (!selected || rows.micro_batch[selected.row] < 0) return undefined;
    section.execution.value = rows.execution[selected.row];
    if (rows.replica[selected.row] >= 0) section.replica.value = rows.replica[selected.row];
    return section.follow(rows.micro_batch[selected.row]);
  },
  Enter: (section) => {
    const { selected, rows, end, hz } = section.trace;
    if (!selected) return;
    const length = Math.max(end[selected.row] - rows.start[selected.row], 1) / hz;
    section.axis.show(rows.start[selected.row] / hz - length, end[selected.row] / hz + length);
  },
  Escape: (section) => { section.select(null); section.follow(null); section.showPath(false); },
};

// Return by what links are named, where the numbers of IPUs in a trace are others.
function physicalWords({ physical }) {
  return `Links are named by physical IPUs: IPUs 0 to ${physical.length - 1} are on ${physical.join(" ")}.`;
}

function labelOf(label, detail, title, { top, tall }) {
  const element = make("div", { class: "label", title }, make("span", {}, label), detail ? make("small", {}, detail) : null);
  element.style.top = `${top}px`;
  element.style.height = `${tall}px`;
  return element;
}
