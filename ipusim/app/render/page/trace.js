// One run's trace: tracks of spans, sorted by start, drawn as boxes where they are wide and as shares of each pixel
// column where they are not, so that a picture costs what its pixels cost and no span is lost.

const TIMES_HIGH = 24; // CSS pixels of the axis below the tracks
const BAND = 22; // and of the phases above them
const TALL = 320; // and of all tracks, about, so that the trace is on the first screen
const NOWHERE = -1, SEVERAL = -2; // instead of the number of a track
const SMALLEST = 8.5; // and of the smallest letters
const WIDE = 2; // a span from so many pixels on is a box of its own
const HOLLOW = 4; // and from so many on has an edge, where it is hollow

class Trace {
  constructor(run, columns) {
    this.run = run;
    this.hz = run.clock_hz;
    this.rows = Object.fromEntries(run.columns.map(({ name }) => [name, columns[name]]));
    const { start, cycles } = this.rows;
    this.end = start.map((each, row) => each + cycles[row]);
    this.look = this.rows.kind.map((kind) => DATA.kinds[kind].look);
    this.tracks = this.sorted();
    this.staged = this.tracks.some((track) => track.main && this.stagesOf(track).size > 1); // boxes name stages too
    this.hidden = new Set();
    this.beside = false; // whether links and the host are shown
    this.lit = null; // of each row whether it is highlighted; null: none is
    this.thread = null; // rows joined by a line: a micro-batch's way, or the critical path
    this.selected = null; // { track, row, slice }
    this.canvas = make("canvas", { class: "trace", tabindex: 0, role: "application" });
    this.pen = this.canvas.getContext("2d");
  }

  // Return tracks with their slices: the numbers of rows, rising in time, and of what they are called.
  sorted() {
    const track = this.rows["slice.track"], counts = new Uint32Array(this.run.tracks.length);
    for (let i = 0; i < track.length; i++) counts[track[i]]++;
    const lists = Array.from(counts, (count) => new Uint32Array(count)), filled = new Uint32Array(counts.length);
    for (let i = 0; i < track.length; i++) lists[track[i]][filled[track[i]]++] = i;
    return this.run.tracks.map((each, number) => ({ ...each, number, slices: lists[number] }));
  }

  // Return the stages whose passes lie on a track.
  stagesOf(track) {
    const stages = new Set();
    for (const slice of track.slices) {
      const row = this.rowOf(slice);
      if (DATA.kinds[this.rows.kind[row]].pass) stages.add(this.rows.stage[row]);
    }
    return stages;
  }

  rowOf(slice) { return this.rows["slice.row"][slice]; }

  // Lay the shown tracks out from the top down, and return the height of the canvas.
  layOut() {
    this.shown = this.tracks.filter((track) => track.slices.length && (track.main || this.beside));
    const ipus = this.shown.filter((track) => track.main).length;
    const tall = Math.round(Math.min(Math.max(TALL / ipus, 16), 40));
    let top = BAND + 4;
    for (const track of this.shown) {
      track.top = top;
      track.tall = track.beside ? Math.max(14, Math.round(tall / 2)) : track.main ? tall : 16;
      top += track.tall + (track.tall > 20 ? 6 : 2);
    }
    this.foot = top;
    return top + TIMES_HIGH;
  }

  // Return the place in a track's slices of the first that ends behind a cycle.
  firstBehind(track, cycle) {
    return countUntil(track.slices, cycle, (slice) => this.end[this.rowOf(slice)]);
  }

  draw() {
    const { axis } = this, { width, height, scale } = fitCanvas(this.canvas, this.pen, Axis.width, this.layOut());
    const pen = this.pen, deviceWidth = Math.round(width * scale);
    const image = pen.createImageData(deviceWidth, Math.round(height * scale));
    const pixels = new Uint32Array(image.data.buffer);
    pixels.fill(packed(paper()));
    const boxes = [];
    const colours = this.colours();
    for (const track of this.shown) {
      const top = Math.round(track.top * scale), tall = Math.round(track.tall * scale);
      pixels.fill(packed(lane()), top * deviceWidth, (top + tall) * deviceWidth);
      this.paint(track, { pixels, deviceWidth, top, tall, scale, colours }, boxes);
    }
    pen.putImageData(image, 0, 0);
    this.drawBoxes(boxes);
    for (const { start, end, words } of this.run.gaps) {
      drawGap(pen, axis.x(start / this.hz), axis.x(end / this.hz), BAND + 2, this.foot - 2, width, `600 14px ${FAMILY}`, words);
    }
    this.drawBands();
    this.drawThread();
    this.drawSelected();
    pen.font = FONT;
    drawTimes(pen, axis, this.foot, width, width / 110);
    Object.assign(this.canvas.dataset, { start: axis.start, end: axis.end }); // what it shows, in seconds
  }

  // Return the packed colour of each look, plain and dim.
  colours() {
    const back = lane();
    const dim = (rgb) => rgb.map((part, n) => 0.2 * part + 0.8 * back[n]);
    const plain = DATA.looks.map(fillOf);
    return { plain: plain.map(packed), dim: plain.map(dim).map(packed), essential: DATA.looks.map((l) => l.essential) };
  }

  // Paint the spans of one track that are narrower than a box as shares of pixel columns; list the others as boxes.
  paint(track, to, boxes) {
    const from = this.axis.start * this.hz, until = this.axis.end * this.hz, perCycle = to.deviceWidth / (until - from);
    const share = new Float64Array(DATA.looks.length), litShare = new Float64Array(DATA.looks.length);
    const wide = WIDE * to.scale;
    let column = -1, some = false;
    const flush = () => {
      if (some) paintColumn(to, column, share, litShare, this.lit !== null);
      some = false;
    };
    const add = (at, look, part, lit) => {
      if (at !== column) { flush(); column = at; }
      some = true;
      (lit ? litShare : share)[look] += part;
    };
    const { start } = this.rows, end = this.end;
    for (let i = this.firstBehind(track, from); i < track.slices.length; i++) {
      const row = this.rowOf(track.slices[i]);
      if (start[row] >= until) break;
      const look = this.look[row];
      if (this.hidden.has(look)) continue;
      const x0 = (start[row] - from) * perCycle, x1 = (end[row] - from) * perCycle;
      const lit = this.lit === null || this.lit[row] === 1;
      if (x1 - x0 >= wide) { boxes.push({ track, slice: track.slices[i], row, look, x0: x0 / to.scale, x1: x1 / to.scale, lit }); continue; }
      const first = Math.max(0, Math.floor(x0)), last = Math.min(to.deviceWidth - 1, Math.floor(x1));
      if (first === last) add(first, look, Math.max(x1 - x0, 1e-3), lit);
      else for (let at = first; at <= last; at++) add(at, look, Math.min(x1, at + 1) - Math.max(x0, at), lit);
    }
    flush();
  }

  drawBoxes(boxes) {
    const pen = this.pen;
    const patterns = patternsOf(pen);
    boxes.sort((one, other) => one.look - other.look || one.lit - other.lit);
    const edges = DATA.looks.map((look) => look[scheme()].edge);
    for (const { track, look, x0, x1, lit } of boxes) {
      const left = Math.max(x0, -4), right = Math.min(x1, Axis.width + 4), gap = right - left > 5 ? 0.7 : 0;
      pen.globalAlpha = lit ? 1 : 0.2;
      pen.fillStyle = patterns[look];
      pen.fillRect(left, track.top, right - left - gap, track.tall);
      if (!edges[look] || right - left < HOLLOW) continue;
      pen.strokeStyle = edges[look];
      pen.strokeRect(left + 0.5, track.top + 0.5, right - left - gap - 1, track.tall - 1);
    }
    pen.globalAlpha = 1;
    pen.textBaseline = "middle";
    pen.textAlign = "center";
    for (const box of boxes) if (box.lit && box.track.tall >= 11) this.letter(box);
  }

  // Write the micro-batch, or what it is, into a box where that fits.
  letter({ track, row, look, x0, x1 }) {
    const kind = DATA.kinds[this.rows.kind[row]], pen = this.pen, batch = this.rows.micro_batch[row];
    const numbered = batch >= 0 && (kind.pass || kind.numbered);
    let words = numbered ? batchName(batch, this.run.segments) : DATA.looks[look].word;
    if (!words) return;
    const left = Math.max(x0, 0), right = Math.min(x1, Axis.width);
    let size = Math.min(13, track.tall - 3);
    pen.font = `${size}px ${FAMILY}`;
    let wide = pen.measureText(words).width;
    if (numbered && kind.pass && this.staged) { // the stage before it, where there is room
      const staged = `${this.rows.stage[row]}.${words}`, wider = pen.measureText(staged).width;
      if (wider + 3 <= right - left) [words, wide] = [staged, wider];
    }
    if (wide + 3 > right - left) { // smaller letters, while anyone can read them
      size *= (right - left - 3) / wide;
      if (size < SMALLEST) return;
      pen.font = `${size}px ${FAMILY}`;
      wide = pen.measureText(words).width;
    }
    const middle = (left + right) / 2;
    if (DATA.looks[look].hatch) { // a clear place for the number
      pen.fillStyle = textOf(fillOf(DATA.looks[look]));
      pen.fillRect(middle - wide / 2 - 2, track.top + track.tall / 2 - 7, wide + 4, 14);
    }
    pen.fillStyle = DATA.looks[look][scheme()].ink;
    pen.fillText(words, middle, track.top + track.tall / 2 + 0.5);
  }

  // Draw the phases of each execution above the tracks, and a thin line down where each begins.
  drawBands() {
    const { pen, axis } = this;
    pen.font = FONT;
    pen.textBaseline = "middle";
    pen.textAlign = "center";
    let behind = -1;
    for (const band of this.run.phases) {
      const x0 = axis.x(band.start / this.hz), x1 = axis.x(band.end / this.hz);
      if (x1 <= behind + 0.5 || x1 < 0 || x0 > Axis.width) continue;
      behind = x1;
      const left = Math.max(x0, 0), right = Math.min(x1, Axis.width);
      pen.strokeStyle = faint();
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(left + 1, BAND);
      pen.lineTo(left + 1, BAND - 4);
      pen.lineTo(right - 1, BAND - 4);
      pen.lineTo(right - 1, BAND);
      if (right - left > 3) pen.stroke();
      const several = this.run.executions > 1 ? ` ${band.execution}` : "";
      const words = [band.name + several, band.name].find((text) => pen.measureText(text).width + 8 < right - left);
      pen.fillStyle = faint();
      if (words) pen.fillText(words, (left + right) / 2, 10);
    }
  }

  // Join the highlighted spans by a line from the end of each to the start of the next, below the numbers in boxes.
  // What several IPUs do at once, and what lies on no IPU's own track, is in that of the span before it.
  drawThread() {
    if (!this.thread) return;
    const { pen, axis } = this, points = [], from = axis.start * this.hz, until = axis.end * this.hz;
    let track = this.thread.map((row) => this.trackOf(row)).find((each) => each) || this.shown[0];
    for (const row of this.thread) {
      track = this.trackOf(row) || track;
      if (this.end[row] < from || this.rows.start[row] > until) continue;
      const y = track.top + 0.86 * track.tall, last = points.length - 1;
      const [x0, x1] = [this.rows.start[row], this.end[row]].map((cycle) => axis.x(cycle / this.hz));
      if (last > 0 && points[last][1] === y && Math.abs(points[last][0] - x0) < 0.01) points[last][0] = x1;
      else points.push([x0, y], [x1, y]);
    }
    if (points.length > Axis.width) return; // more turns than pixels would only hide what is highlighted
    pen.lineJoin = "round";
    pen.beginPath();
    points.forEach(([x, y], n) => (n ? pen.lineTo(x, y) : pen.moveTo(x, y)));
    for (const [colour, wide] of [[textOf(paper()), 3.6], [accent(), 1.8]]) {
      pen.strokeStyle = colour;
      pen.lineWidth = wide;
      pen.stroke();
    }
    pen.lineWidth = 1;
  }

  // Return the IPU's track that alone has a row; null where several have it, or none.
  trackOf(row) {
    if (!this.trackOfRow) {
      this.trackOfRow = new Int32Array(this.rows.start.length).fill(NOWHERE);
      const rows = this.rows["slice.row"], tracks = this.rows["slice.track"];
      for (let i = 0; i < rows.length; i++) this.trackOfRow[rows[i]] = this.trackOfRow[rows[i]] === NOWHERE ? tracks[i] : SEVERAL;
    }
    const track = this.tracks[this.trackOfRow[row]];
    return track && track.main && !track.beside ? track : null;
  }

  drawSelected() {
    if (!this.selected || !this.shown.includes(this.selected.track)) return;
    const { track, row } = this.selected, { pen, axis } = this;
    const left = Math.max(axis.x(this.rows.start[row] / this.hz), -5);
    const right = Math.min(axis.x(this.end[row] / this.hz), Axis.width + 5);
    pen.lineWidth = 2;
    pen.strokeStyle = textOf(paper());
    pen.strokeRect(left - 2.5, track.top - 2.5, Math.max(right - left, 1) + 5, track.tall + 5);
    pen.strokeStyle = ink();
    pen.strokeRect(left - 1, track.top - 1, Math.max(right - left, 1) + 2, track.tall + 2);
    pen.lineWidth = 1;
  }

  // Return the span at a point of the canvas, or the nearest within two pixels; null where there is none.
  pick(x, y) {
    const track = this.shown.find((each) => y >= each.top - 1 && y < each.top + each.tall + 1);
    if (!track) return null;
    const { axis } = this, cycle = axis.at(x) * this.hz, near = ((axis.end - axis.start) * this.hz * 2) / Axis.width;
    let best = null, distance = Infinity;
    for (let i = Math.max(0, this.firstBehind(track, cycle - near) - 1); i < track.slices.length; i++) {
      const slice = track.slices[i], row = this.rowOf(slice);
      if (this.rows.start[row] > cycle + near) break;
      const away = Math.max(this.rows.start[row] - cycle, cycle - this.end[row], 0);
      if (away <= near && away < distance && !this.hidden.has(this.look[row])) {
        best = { track, row, slice };
        distance = away;
        if (!away) break;
      }
    }
    return best;
  }

  // Return every field of a span in words.
  fields({ track, row, slice }) {
    const rows = this.rows, run = this.run, kind = DATA.kinds[rows.kind[row]];
    const cycles = rows.cycles[row], text = (at) => run.texts[rows[at][slice]];
    const found = [["span", run.texts[rows["slice.name"][slice]]], ["kind", kind.name], ["what", kind.doc], ["track", track.name]];
    const put = (name, value) => found.push([name, value]);
    const at = (cycle) => `cycle ${whole(cycle)}, ${timeText(cycle / this.hz, 6)}`;
    put("start", at(rows.start[row]));
    put("end", at(this.end[row]));
    put("length", `${whole(cycles)} cycles, ${timeText(cycles / this.hz)}`);
    const ipu = rows.ipu[row], on = run.physical.length ? `, on physical IPU ${run.physical[ipu]}` : "";
    put("IPU", ipu >= 0 ? `${ipu}${on}` : ipu === -2 ? "all" : "none");
    if (rows.stage[row] >= 0) put("stage", `${rows.stage[row]}: ${run.stages[rows.stage[row]]}`);
    if (rows.micro_batch[row] >= 0) put("micro-batch", batchName(rows.micro_batch[row], this.run.segments));
    if (rows.time_step[row] >= 0) put("time-step", `${rows.time_step[row]}`);
    put("execution", rows.execution[row] >= 0 ? `${rows.execution[row]}` : "none");
    if (rows.replica[row] >= 0) put("replica", `${rows.replica[row]}`);
    if (kind.track === "link") put("link", run.links[rows.link[row]]);
    put("bytes", rows.bytes[row] ? `${whole(rows.bytes[row])} (${bytesText(rows.bytes[row])})` : "0");
    if (text("slice.sends")) put("sends", text("slice.sends"));
    if (text("slice.receives")) put("receives", text("slice.receives"));
    put("released by", rows.cause[row] >= 0 ? this.nameOf(rows.cause[row]) : "nothing: it begins the run");
    return found;
  }

  nameOf(row) {
    const kind = DATA.kinds[this.rows.kind[row]], stage = this.rows.stage[row], batch = this.rows.micro_batch[row];
    const of = kind.pass && stage >= 0 ? ` of stage ${stage}` : "";
    const ipu = this.rows.ipu[row] >= 0 ? ` on IPU ${this.rows.ipu[row]}` : "";
    return `${kind.name}${of}${batch >= 0 ? `, micro-batch ${batchName(batch, this.run.segments)}` : ""}${ipu}`;
  }
}

const packed = ([red, green, blue]) => ((255 << 24) | (Math.round(blue) << 16) | (Math.round(green) << 8) | Math.round(red)) >>> 0;

// Fill one pixel column of a track with the shares of its looks, from the bottom up; what nothing takes stays empty.
function paintColumn({ pixels, deviceWidth, top, tall, colours }, column, share, litShare, dimmed) {
  let foot = top + tall;
  const put = (shares, palette) => {
    for (let look = 0; look < shares.length; look++) {
      if (!shares[look]) continue;
      const exact = shares[look] * tall;
      const high = Math.min(Math.max(Math.round(exact), colours.essential[look] || dimmed ? 1 : 0), foot - top);
      for (let y = foot - high; y < foot; y++) pixels[y * deviceWidth + column] = palette[look];
      foot -= high;
      shares[look] = 0;
    }
  };
  put(litShare, colours.plain);
  put(share, dimmed ? colours.dim : colours.plain);
}
