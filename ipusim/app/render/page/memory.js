// What each IPU holds over time, as layers on the axis of the traces above.

const nameOfRow = ({ label, replica }) => (replica ? `${label}, ${replica}` : label);

class Memory {
  constructor(run, columns) {
    this.run = run;
    this.hz = run.clock_hz;
    this.limit = run.memory.limit;
    const entries = columns["memory.entries"];
    let first = 0;
    this.rows = run.memory.rows.map((row, n) => {
      const cut = (name) => columns[name].subarray(first, first + entries[n]);
      const curve = { time: cut("memory.time"), live: cut("memory.live"), fifo: cut("memory.fifo") };
      first += entries[n];
      return { ...row, ...curve };
    });
    this.canvas = make("canvas", { class: "memory" });
    this.pen = this.canvas.getContext("2d");
  }

  layOut() {
    const most = Math.max(...this.rows.map((row) => row.peak_bytes));
    this.limitShown = this.limit !== null && most >= 0.5 * this.limit;
    // Where the limit is out of sight, each row has a scale of its own: small IPUs can be read beside large ones.
    const scaleOf = (row) => (this.limitShown ? Math.max(most, this.limit) : row.peak_bytes) * 1.06 || 1;
    const tall = Math.round(Math.min(Math.max(260 / this.rows.length, 16), 72));
    let top = 4;
    for (const row of this.rows) {
      Object.assign(row, { top, tall, scale: scaleOf(row) });
      top += tall + (tall > 20 ? 8 : 2);
    }
    this.foot = top;
    return top + TIMES_HIGH;
  }

  // Return of each pixel column the most that is alive and the most that FIFOs hold.
  levels(row, width) {
    const live = new Float64Array(width), fifo = new Float64Array(width), known = new Uint8Array(width);
    const { axis } = this, from = axis.start * this.hz, perPixel = ((axis.end - axis.start) * this.hz) / width;
    const end = this.run.cycles;
    let i = this.entryAt(row, from);
    for (let x = 0; x < width; x++) {
      const begins = from + x * perPixel, ends = begins + perPixel;
      if (begins >= end) break;
      while (i + 1 < row.time.length && row.time[i + 1] <= begins) i++;
      known[x] = 1;
      for (let each = i; each < row.time.length && (each === i || row.time[each] < ends); each++) {
        live[x] = Math.max(live[x], row.live[each]);
        fifo[x] = Math.max(fifo[x], row.fifo[each]);
        i = each;
      }
    }
    return { live, fifo, known };
  }

  // Return the last entry at or before a cycle.
  entryAt(row, cycle) { return Math.max(countUntil(row.time, cycle) - 1, 0); }

  bytesOf(layer, live, fifo) {
    return { constant: layer.bytes, held: fifo, empty: layer.bytes - fifo, live }[layer.holds];
  }

  draw() {
    const { width, height } = fitCanvas(this.canvas, this.pen, Axis.width, this.layOut());
    const pen = this.pen;
    pen.fillStyle = textOf(paper());
    pen.fillRect(0, 0, width, height);
    for (const row of this.rows) this.drawRow(row, Math.round(width));
    pen.font = FONT;
    drawTimes(pen, this.axis, this.foot, width, width / 110);
  }

  drawRow(row, width) {
    const pen = this.pen, foot = row.top + row.tall, { live, fifo, known } = this.levels(row, width);
    pen.fillStyle = textOf(lane());
    pen.fillRect(0, row.top, width, row.tall);
    const below = new Float64Array(width), lines = [];
    const y = (bytes) => foot - (bytes / row.scale) * row.tall;
    for (const layer of row.layers) {
      const { fill, edge } = DATA.holders[layer.look][scheme()];
      pen.fillStyle = fill;
      // One rectangle for as long as nothing changes.
      for (let x = 0; x < width;) {
        const bytes = known[x] ? this.bytesOf(layer, live[x], fifo[x]) : 0, under = below[x];
        let next = x;
        while (next < width && below[next] === under && (known[next] ? this.bytesOf(layer, live[next], fifo[next]) : 0) === bytes) {
          below[next++] += bytes;
        }
        if (bytes) pen.fillRect(x, y(under + bytes), next - x, y(under) - y(under + bytes));
        if (bytes && edge) lines.push([edge, x, next, y(under + bytes)]); // hollow: a line above it
        x = next;
      }
    }
    for (const [edge, from, until, top] of lines) {
      pen.fillStyle = edge;
      pen.fillRect(from, top, until - from, 1);
    }
    const line = (bytes, style, dash) => {
      pen.strokeStyle = style;
      pen.setLineDash(dash);
      pen.beginPath();
      pen.moveTo(0, Math.round(y(bytes)) + 0.5);
      pen.lineTo(width, Math.round(y(bytes)) + 0.5);
      pen.stroke();
      pen.setLineDash([]);
    };
    if (this.limitShown) line(this.limit, accent(), [5, 3]);
    line(0, rule(), []);
  }

  // Return what the row at a point holds at that time, in words; null where there is none.
  pick(x, y) {
    const row = this.rows.find((each) => y >= each.top && y < each.top + each.tall + 2);
    const cycle = this.axis.at(x) * this.hz;
    if (!row || cycle > this.run.cycles) return null;
    const at = this.entryAt(row, cycle);
    const parts = row.layers.map((layer) => [DATA.holders[layer.look].name, this.bytesOf(layer, row.live[at], row.fifo[at])]);
    const sum = parts.reduce((total, [, bytes]) => total + bytes, 0);
    const of = this.limit ? `, ${((100 * sum) / this.limit).toFixed(1)} % of ${bytesText(this.limit)}` : "";
    return [["memory", nameOfRow(row)], ["time", `cycle ${whole(cycle)}, ${timeText(cycle / this.hz, 6)}`],
      ["in all", `${bytesText(sum)}${of}`],
      ...parts.filter(([, bytes]) => bytes).reverse().map(([name, bytes]) => [name, bytesText(bytes)])];
  }
}
