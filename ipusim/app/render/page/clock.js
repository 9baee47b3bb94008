// The clock that all runs of a page share, and how it runs: fast over what every run leaves out.

const SECONDS_PER_PASS = 0.9; // of the lecture, at speed 1
const LONGEST = 3; // passes' time that a stretch takes in which nothing begins or ends, at most

// True seconds as seconds of play: where all runs leave out what repeats itself, a stretch of it plays as one pass.
class Warp {
  constructor(runs, last, unit) {
    this.last = last;
    const absent = runs.map(({ gaps, end }) => [...gaps.map((gap) => [gap.start, gap.end]), ...(end < last ? [[end, last]] : [])]);
    let common = [[0, last]];
    for (const list of absent) common = common.flatMap(([a, b]) => list.map(([c, d]) => [Math.max(a, c), Math.min(b, d)]).filter(([c, d]) => d > c));
    const room = 1.6 * unit;
    this.knots = [[0, 0]];
    let saved = 0;
    for (const [start, end] of common) {
      if (end - start <= room || end >= last) continue;
      this.knots.push([start, start - saved]);
      saved += end - start - room;
      this.knots.push([end, end - saved]);
    }
    this.knots.push([last, last - saved]);
    this.length = last - saved;
  }

  played(seconds) { return this.between(seconds, 0, 1); }
  true(played) { return this.between(played, 1, 0); }

  between(at, from, to) {
    const { knots } = this;
    let n = 1;
    while (n + 1 < knots.length && knots[n][from] < at) n++;
    const [low, high] = [knots[n - 1], knots[n]], length = high[from] - low[from];
    if (at === high[from]) return high[to]; // exactly: times of steps are compared
    if (at === low[from] || !length) return low[to];
    return low[to] + ((at - low[from]) / length) * (high[to] - low[to]);
  }
}

// Where the lecture is, and what moves it. Times are true seconds from the start of the executions.
class Clock {
  constructor(runs) {
    const passes = runs.map((run) => run.unit);
    this.unit = Math.min(...passes); // seconds of a pass, as long as most are
    this.widest = Math.max(...runs.map((run) => run.widest));
    this.end = Math.max(...runs.map((run) => run.end));
    this.warp = new Warp(runs, this.end, this.unit);
    this.events = [...new Set(runs.flatMap((run) => [...run.boxes.start, ...run.boxes.end]))].sort((one, other) => one - other);
    this.steps = this.apart([...new Set(runs.flatMap((run) => run.steps))].sort((one, other) => one - other), runs.length > 1);
    this.phases = [...new Set([0, ...runs.flatMap((run) => run.phases.flatMap((phase) => [phase.start, phase.end]))])].sort((one, other) => one - other);
    this.now = 0;
    this.speed = 1;
    this.playing = false;
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.changed = []; // what reacts to a new time
    this.settled = []; // and to a new time that stays, or to the start or end of playing
  }

  // Return steps without those that are nearly the next: two runs seldom take a step at the very same time.
  apart(steps, several) {
    const near = several ? 0.1 * this.unit : 0;
    return steps.filter((time, n) => n === 0 || n === steps.length - 1 || steps[n + 1] - time > near);
  }

  show(seconds) {
    this.now = Math.min(Math.max(seconds, 0), this.end);
    for (const react of this.changed) react();
  }

  // Go to a time and stay there.
  go(seconds) {
    this.pause();
    this.show(seconds);
    for (const react of this.settled) react();
  }

  // Go to the next of some times, or to the one before.
  next(times) { this.go(times.find((time) => time > this.now) ?? this.end); }
  before(times) { this.go(times.findLast((time) => time < this.now) ?? 0); }
  step(forward) { if (forward) this.next(this.steps); else this.before(this.steps); }
  phase(forward) { if (forward) this.next(this.phases); else this.before(this.phases); }

  // Return how much faster it plays now: a host or a weight update may take as long as hundreds of passes.
  get haste() {
    const n = countUntil(this.events, this.now), [from, to] = [this.events[n - 1] ?? 0, this.events[n] ?? this.end];
    return Math.max(1, (this.warp.played(to) - this.warp.played(from)) / (LONGEST * this.unit));
  }

  pause() {
    if (!this.playing) return;
    this.playing = false;
    for (const react of this.settled) react();
  }

  toggle() {
    if (this.playing) { this.pause(); return; }
    if (this.now >= this.end) this.show(0);
    this.playing = true;
    for (const react of this.settled) react();
    let last = null, waited = 0;
    const frame = (time) => {
      if (!this.playing) return;
      // A page in the background stops with its frames, and goes on where it was.
      const passed = last === null ? 0 : Math.min((time - last) / 1000, 0.25) * this.speed;
      last = time;
      if (this.still.matches) { // no motion: from step to step
        waited += passed;
        if (waited >= SECONDS_PER_PASS) { waited = 0; this.show(this.steps.find((each) => each > this.now) ?? this.end); }
      } else this.show(this.warp.true(this.warp.played(this.now) + this.haste * (passed / SECONDS_PER_PASS) * this.unit));
      if (this.now >= this.end) this.pause(); else requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }
}
