// An axis of time, in seconds: of all runs, or of one; a run's trace and memory chart always share theirs.

class Axis {
  static width = 1; // of every plot, in CSS pixels

  // Take the last second that there is to see, and up to which it shows at first.
  constructor(last, end) {
    this.last = last;
    this.start = 0;
    this.end = Math.min(end, last);
  }

  // Show from one second to another, within what there is.
  show(start, end) {
    const length = Math.min(Math.max(end - start, this.last * 1e-9), this.last);
    const middle = (start + end) / 2;
    this.start = Math.min(Math.max(middle - length / 2, 0), this.last - length);
    this.end = this.start + length;
    redraw();
  }
  // Zoom by a factor around a time that stays where it is.
  zoom(factor, around = (this.start + this.end) / 2) {
    const length = Math.min((this.end - this.start) / factor, this.last);
    const share = (around - this.start) / (this.end - this.start);
    this.show(around - share * length, around + (1 - share) * length);
  }
  pan(seconds) { this.show(this.start + seconds, this.end + seconds); }
  fit() { this.show(0, this.last); }
  x(seconds) { return ((seconds - this.start) / (this.end - this.start)) * Axis.width; }
  at(x) { return this.start + (x / Axis.width) * (this.end - this.start); }
}

const drawings = []; // what draws a run
let redrawing = false;

function drawAll() { for (const draw of drawings) draw(); }

// Draw with the next picture of the browser, however often that is asked for before.
function redraw() {
  if (redrawing) return;
  redrawing = true;
  requestAnimationFrame(() => { redrawing = false; drawAll(); });
}

const TIMES = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];

// Return a time for people, with four digits.
function timeText(seconds, digits = 4) {
  if (seconds === 0) return "0 s";
  const [unit, name] = TIMES.find(([each]) => Math.abs(seconds) >= each * 0.9999999) || TIMES[3];
  return `${Number((seconds / unit).toPrecision(digits))} ${name}`;
}

function bytesText(count) {
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = count, at = 0;
  while (Math.abs(value) >= 1024 && at < names.length - 1) { value /= 1024; at++; }
  return `${Number(value.toPrecision(4))} ${names[at]}`;
}

const whole = (number) => number.toLocaleString("en-US", { maximumFractionDigits: 0 });

// Return round numbers between two, about so many.
function roundNumbers(start, end, about) {
  const rough = (end - start) / Math.max(about, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough * 0.999);
  const found = [];
  for (let n = Math.ceil(start / step - 1e-9); n * step <= end + step * 1e-9; n++) found.push(n * step);
  return { found, step };
}

// Draw the axis: round times, with the digits that tell neighbours apart.
function drawTimes(pen, axis, top, width, about) {
  const { found, step } = roundNumbers(axis.start, axis.end, about);
  const [unit, name] = TIMES.find(([each]) => Math.max(Math.abs(axis.end), step) >= each) || TIMES[3];
  const decimals = Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
  pen.textBaseline = "top";
  pen.textAlign = "center";
  const words = found.map((time) => `${(time / unit).toFixed(Math.min(decimals, 9))} ${name}`);
  const widest = Math.max(0, ...words.map((text) => pen.measureText(text).width)) + 14;
  const every = Math.max(1, Math.ceil(widest / ((step / (axis.end - axis.start)) * width)));
  found.forEach((time, n) => {
    const x = Math.round(axis.x(time)) + 0.5;
    pen.strokeStyle = rule();
    pen.beginPath();
    pen.moveTo(x, top);
    pen.lineTo(x, top + 4);
    pen.stroke();
    if (Math.round(time / step) % every) return;
    const half = pen.measureText(words[n]).width / 2;
    pen.fillStyle = faint();
    pen.fillText(words[n], Math.min(Math.max(x, half), width - half), top + 6);
  });
  return found.map((time) => axis.x(time));
}
