// One execution: what happened by a time, and its part of the page.

class Played {
  constructor(run, columns) {
    this.run = run;
    const hz = run.clock_hz, seconds = (cycles) => Array.from(cycles, (each) => each / hz);
    const { kind, lane, stage, micro_batch } = columns;
    this.boxes = { start: seconds(columns.start), end: seconds(columns.end), kind, lane, stage, micro_batch };
    this.slots = Object.fromEntries(["start", "filled", "used", "end"].map((name) => [name, seconds(columns[`slot.${name}`])]));
    Object.assign(this.slots, { lane: columns["slot.lane"], stage: columns["slot.stage"], micro_batch: columns["slot.micro_batch"] });
    this.moves = { leaves: seconds(columns["move.leaves"]), arrives: seconds(columns["move.arrives"]), from: columns["move.from"], to: columns["move.to"], kind: columns["move.kind"] };
    this.end = run.end / hz;
    this.pipelineEnd = run.pipeline_end / hz;
    const timed = (each) => ({ ...each, start: each.start / hz, end: each.end / hz });
    this.gaps = run.gaps.map((gap) => ({ ...timed(gap), busy: gap.busy / hz }));
    this.phases = run.phases.map(timed);
    this.steps = run.steps.map((cycles) => cycles / hz);
    this.timeSteps = run.time_steps && { number: run.time_steps.number, start: run.time_steps.start.map((each) => each / hz) };
    this.passes = Array.from(kind, (each, n) => n).filter((n) => DATA.kinds[kind[n]].pass);
    this.unit = this.median();
    const most = (starts, ends) => starts.reduce((longest, start, n) => Math.max(longest, ends[n] - start), 0);
    this.longest = most(this.boxes.start, this.boxes.end);
    this.slowest = most(this.moves.leaves, this.moves.arrives);
    this.widest = this.widestName();
    this.sums = { starts: this.summed("start"), ends: this.summed("end") };
  }

  // Return the median length of the kind of passes whose median is shortest: what a box is that people count in.
  median() {
    const lengths = new Map();
    for (const n of this.passes) {
      const kind = this.boxes.kind[n];
      if (!lengths.has(kind)) lengths.set(kind, []);
      lengths.get(kind).push(this.boxes.end[n] - this.boxes.start[n]);
    }
    const medians = [...lengths.values()].map((all) => all.sort((one, other) => one - other)[all.length >> 1]);
    return Math.min(this.end, ...medians);
  }

  // Return how wide the widest name of a pass is, in the height of its letters.
  widestName() {
    const pen = document.createElement("canvas").getContext("2d"), longest = new Map();
    for (const name of this.passes.map((n) => this.nameOf(n))) if (name.length > (longest.get(name[0]) || "").length) longest.set(name[0], name);
    pen.font = lettersOf(100);
    return Math.max(0, ...[...longest.values()].map((name) => pen.measureText(name).width / 100));
  }

  // Return times of passes, rising, and their sums up to each: what has run by a time is told without going through all.
  summed(name) {
    const times = Float64Array.from(this.passes, (n) => this.boxes[name][n]).sort(), sums = new Float64Array(times.length + 1);
    times.forEach((time, n) => { sums[n + 1] = sums[n] + time; });
    return { times, sums };
  }

  // Return the seconds of passes that all lanes together have run by a time, those that are left out included.
  busy(time) {
    const until = ({ times, sums }) => { const n = countUntil(times, time); return n * time - sums[n]; };
    const drawn = until(this.sums.starts) - until(this.sums.ends);
    return this.gaps.reduce((sum, gap) => sum + gap.busy * partOf(gap, time), drawn);
  }

  // Return the share of the IPUs' time in which they compute, up to a time of the pipeline; null before it begins.
  computing(time) {
    const until = Math.min(time, this.pipelineEnd);
    return until > 0 ? this.busy(until) / (this.run.lanes.length * until) : null;
  }

  phaseAt(time) {
    if (time >= this.end) return "done";
    const found = this.phases.find((phase) => time <= phase.end); // which may just have ended
    return found ? found.name : "";
  }

  // Return the number of the time-step that a time is in, or that ends then; where it is left out only that.
  timeStepAt(time) {
    if (this.gaps.some((gap) => time > gap.start && time < gap.end)) return "…";
    const { number, start } = this.timeSteps;
    const n = start.findLastIndex((each) => each < time);
    return n < 0 || time > this.pipelineEnd ? "–" : `${number[n]}`;
  }

  nameOf(n) {
    const { kind, stage, micro_batch } = this.boxes, row = DATA.kinds[kind[n]];
    if (row.letter) return `${row.letter}${stage[n]}.${batchName(micro_batch[n], this.run.segments)}`;
    return DATA.looks[row.look].word || "";
  }

  // Return what each lane does or has just done between two times, in words.
  doing(from, to) {
    return this.run.lanes.map(({ label }, lane) => {
      const names = this.passes.filter((n) => this.boxes.lane[n] === lane && Math.min(this.boxes.end[n], to) - Math.max(this.boxes.start[n], from) > 0.05 * this.unit).map((n) => this.nameOf(n));
      return `${label} ${names.join(" and ") || "idle"}`;
    }).join(", ");
  }
}

// Return which part of a stretch has passed.
const partOf = ({ start, end }, time) => Math.min(Math.max((time - start) / (end - start), 0), 1);
