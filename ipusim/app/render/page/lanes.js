// The lanes of an execution on a canvas: boxes as they run, what moves between lanes, phases above, the clock line.

const PHASES = 30; // CSS pixels of the phases above the lanes
const SCALE = 24; // and of time-steps or seconds below them
const BOX = 50; // of the shortest kind of pass, at least
const SMALL = 12; // of the smallest letters
const ROOM = 7; // beside them
const TICK = 110; // between times below the lanes, about
const APART = 8; // between lines of time-steps, at least
const AHEAD = 0.3; // part of the view that lies ahead of the clock

const lettersOf = (size) => `600 ${size}px ${FAMILY}`;

// What part of the time is in sight: the clock moves, and then the lanes under it.
class View {
  constructor(clock) {
    this.clock = clock;
    this.whole = false; // whether all of the time is shown
  }

  fit(width) {
    const { length } = this.clock.warp;
    this.width = width;
    const box = Math.max(BOX, ROOM + SMALL * this.clock.widest);
    this.perSecond = this.whole ? width / length : Math.max(width / length, box / this.clock.unit);
    const span = width / this.perSecond, at = this.clock.warp.played(this.clock.now);
    this.from = Math.min(Math.max(at - (1 - AHEAD) * span, 0), Math.max(length - span, 0));
  }

  x(seconds) { return (this.clock.warp.played(seconds) - this.from) * this.perSecond; }
  seconds(x) { return this.clock.warp.true(this.from + x / this.perSecond); }
}

class Lanes {
  constructor(played, view) {
    this.played = played;
    this.view = view;
    this.ghosts = true; // whether what comes is seen
    this.canvas = make("canvas", { class: "lanes", role: "img" });
    this.pen = this.canvas.getContext("2d");
  }

  // Lay the lanes out: how high each is, and the room for its stash below it where the page is narrow.
  layOut(tall, stashBelow) {
    let top = PHASES;
    this.tall = tall;
    this.tops = this.played.run.lanes.map(() => { const here = top; top += tall + stashBelow + 8; return here; });
    this.foot = top - 4;
    return this.foot + SCALE;
  }

  draw(width, time) {
    const { pen, view } = this;
    fitCanvas(this.canvas, pen, width, this.height);
    pen.fillStyle = textOf(paper());
    pen.fillRect(0, 0, width, this.height);
    const now = view.x(time);
    this.drawGrounds(width, now);
    this.drawBoxes(time, now);
    this.drawMoves(time);
    this.drawGaps();
    this.drawEnd(time);
    this.drawPhases(time);
    this.drawScale(width, time);
    pen.fillStyle = accent();
    pen.fillRect(now - 1.5, PHASES - 6, 3, this.foot - PHASES + 8);
    Object.assign(this.canvas.dataset, { clock: time, from: view.seconds(0), to: view.seconds(width), tops: this.tops.join(" ") });
  }

  // Draw the lanes: where the clock has been and no box is, an IPU was idle.
  drawGrounds(width, now) {
    const { pen } = this, stop = Math.min(Math.max(now, 0), width, this.view.x(this.played.end));
    for (const top of this.tops) {
      pen.fillStyle = textOf(lane());
      pen.fillRect(0, top, width, this.tall);
      pen.fillStyle = textOf(idle());
      pen.fillRect(0, top, stop, this.tall);
    }
  }

  drawBoxes(time, now) {
    const { pen, view } = this, { start, end, kind, lane } = this.played.boxes, from = view.seconds(0), to = view.seconds(view.width);
    const patterns = patternsOf(pen);
    this.size = Math.min(21, this.tall * 0.5, Math.max(SMALL, (view.perSecond * view.clock.unit - ROOM) / view.clock.widest));
    const painted = new Float64Array(this.tops.length).fill(-Infinity); // up to which pixel: of many in one, the first
    for (let n = countUntil(start, from - this.played.longest); n < start.length && start[n] <= to; n++) {
      if (end[n] < from) continue;
      const look = DATA.kinds[kind[n]].look, left = Math.max(view.x(start[n]), -4), right = Math.min(view.x(end[n]), view.width + 4);
      if (right <= painted[lane[n]]) continue;
      painted[lane[n]] = Math.ceil(right - 0.5);
      const gap = right - left > 6 ? 1.5 : 0, top = this.tops[lane[n]], done = Math.min(right, now) - left;
      const colour = textOf(fillOf(DATA.looks[look]));
      if (end[n] > time && this.ghosts && right - left > 4) {
        pen.strokeStyle = colour;
        pen.globalAlpha = start[n] < time ? 1 : 0.45;
        pen.strokeRect(left + 1, top + 1, right - left - gap - 2, this.tall - 2);
        pen.globalAlpha = 1;
      }
      if (start[n] >= time) {
        if (this.ghosts) this.letter(n, left, right - gap, top, faint(), null);
        continue;
      }
      pen.fillStyle = patterns[look];
      pen.fillRect(left, top, Math.max(Math.min(done, right - left - gap), 0.5), this.tall);
      const on = DATA.looks[look][scheme()].ink, ground = DATA.looks[look].hatch ? colour : null;
      if (end[n] <= time) this.letter(n, left, right - gap, top, on, ground);
      else {
        this.within(0, now, () => this.letter(n, left, right - gap, top, on, ground));
        this.within(now, view.width, () => this.letter(n, left, right - gap, top, ink(), null));
      }
    }
  }

  // Draw between two points across alone.
  within(from, to, draw) {
    const { pen } = this;
    pen.save();
    pen.beginPath();
    pen.rect(from, 0, to - from, this.height);
    pen.clip();
    draw();
    pen.restore();
  }

  // Write a pass's name into a box, or its micro-batch alone where that does not fit; on a clear ground if there is one.
  letter(n, left, right, top, colour, ground) {
    const { pen } = this, { micro_batch, kind } = this.played.boxes, row = DATA.kinds[kind[n]];
    const room = Math.min(right, this.view.width) - Math.max(left, 0) - 4;
    for (const words of [this.played.nameOf(n), row.letter ? batchName(micro_batch[n], this.played.run.segments) : ""]) {
      pen.font = lettersOf(this.size);
      const wide = pen.measureText(words).width;
      if (!words || wide > room) continue;
      const middle = (Math.max(left, 0) + Math.min(right, this.view.width)) / 2, y = top + this.tall / 2;
      if (ground) {
        pen.fillStyle = ground;
        pen.fillRect(middle - wide / 2 - 2, y - this.size * 0.62, wide + 4, this.size * 1.2);
      }
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      pen.fillStyle = colour;
      pen.fillText(words, middle, y + 1);
      return;
    }
  }

  // Draw tensors on their way, and those that have just come: a line from lane to lane, and a point where it is now.
  drawMoves(time) {
    const { pen, view } = this, { leaves, arrives, from, to, kind } = this.played.moves, recent = 0.35 * view.clock.unit;
    for (let n = countUntil(leaves, time - recent - this.played.slowest); n < leaves.length && leaves[n] < time; n++) {
      if (arrives[n] < time - recent) continue;
      const x0 = view.x(leaves[n]), x1 = Math.max(view.x(arrives[n]), x0), down = to[n] > from[n];
      const y0 = this.tops[from[n]] + (down ? this.tall : 0), y1 = this.tops[to[n]] + (down ? 0 : this.tall);
      const part = arrives[n] > leaves[n] ? Math.min((time - leaves[n]) / (arrives[n] - leaves[n]), 1) : 1;
      pen.strokeStyle = pen.fillStyle = textOf(fillOf(DATA.looks[DATA.kinds[kind[n]].look]));
      pen.lineWidth = 3;
      pen.beginPath();
      pen.moveTo(x0, y0);
      pen.lineTo(x0 + part * (x1 - x0), y0 + part * (y1 - y0));
      pen.stroke();
      pen.beginPath();
      pen.arc(x0 + part * (x1 - x0), y0 + part * (y1 - y0), 5, 0, 2 * Math.PI);
      pen.fill();
      pen.lineWidth = 1;
    }
  }

  // Cover what is left out, and say how much that is.
  drawGaps() {
    const { pen, view } = this;
    for (const gap of this.played.gaps) {
      const x0 = view.x(gap.start), x1 = view.x(gap.end);
      pen.fillStyle = textOf(paper()); // no IPU was idle there
      pen.fillRect(x0, PHASES, x1 - x0, this.foot - PHASES);
      drawGap(pen, x0, x1, PHASES - 1, this.foot + 1, view.width, lettersOf(18), gap.words);
    }
  }

  // Say behind the end when that was: the other run may go on for long.
  drawEnd(time) {
    const { pen, view, played } = this, words = `done after ${timeText(played.end)}`;
    pen.font = `700 20px ${FAMILY}`;
    const left = Math.max(view.x(played.end), 0) + 14;
    if (time < played.end || left + pen.measureText(words).width > view.width) return;
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    pen.fillStyle = ink();
    pen.fillText(words, left, (PHASES + this.foot) / 2);
  }

  drawPhases(time) {
    const { pen, view } = this;
    for (const phase of this.played.phases) {
      const x0 = view.x(phase.start), x1 = view.x(phase.end);
      if (x1 < 0 || x0 > view.width) continue;
      const left = Math.max(x0 + 1, 0), right = Math.min(x1 - 1, view.width), on = phase.start < time && time <= phase.end;
      pen.fillStyle = on ? accent() : faint();
      pen.fillRect(left, PHASES - 9, Math.max(right - left, 1), on ? 4 : 2);
      pen.font = `${on ? 700 : 400} 16px ${FAMILY}`;
      pen.textAlign = "left";
      pen.textBaseline = "alphabetic";
      if (pen.measureText(phase.name).width < right - left) pen.fillText(phase.name, left, PHASES - 14);
    }
  }

  // Number the time-steps below the lanes, from 0, with a line where each begins; in point-to-point there are seconds.
  drawScale(width, time) {
    const { pen, view, played } = this;
    pen.font = `14px ${FAMILY}`;
    pen.textAlign = "center";
    pen.textBaseline = "top";
    if (!played.timeSteps) { this.drawSeconds(width); return; }
    const { number, start } = played.timeSteps;
    start.forEach((from, n) => {
      const to = start[n + 1] ?? played.pipelineEnd, x0 = view.x(from), x1 = view.x(to);
      if (x1 < 0 || x0 > width || played.gaps.some((gap) => from < gap.end && to > gap.end)) return;
      pen.fillStyle = rule();
      if (x1 - x0 >= APART) pen.fillRect(Math.round(x0), PHASES - 4, 1, this.foot - PHASES + 8);
      const on = from < time && time <= to, words = `${number[n]}`;
      pen.fillStyle = on ? accent() : faint();
      pen.font = `${on ? 700 : 400} 14px ${FAMILY}`;
      if (pen.measureText(words).width + 4 < x1 - x0) pen.fillText(words, (x0 + x1) / 2, this.foot + 5);
    });
  }

  drawSeconds(width) {
    const { pen, view, played } = this, { step } = roundNumbers(0, (10 * TICK) / view.perSecond, 10), until = Math.min(view.seconds(width), played.end);
    pen.fillStyle = faint();
    let free = -Infinity;
    for (let n = Math.ceil(view.seconds(0) / step); n * step <= until; n++) {
      const time = n * step, gap = played.gaps.find(({ start, end }) => time > start && time < end);
      if (gap) { n = Math.ceil(gap.end / step) - 1; continue; }
      const x = view.x(time), words = timeText(time, 5), half = pen.measureText(words).width / 2;
      if (x < half || x > width - half || x - half < free) continue;
      free = x + half + 12;
      pen.fillRect(Math.round(x), this.foot, 1, 4);
      pen.fillText(words, x, this.foot + 6);
    }
  }
}

// Return the ground of a lane where an IPU has been idle: what the table of looks has for waits.
const idle = () => fillOf(DATA.looks[DATA.kinds.find(({ name }) => name === "sync wait").look]);
