// Canvases: their size in device pixels, their letters, and what boxes on them are filled with.

const FAMILY = "system-ui, sans-serif";
const FONT = `12px ${FAMILY}`;

// Give a canvas the size of its place in device pixels, and a pen that counts CSS pixels.
function fitCanvas(canvas, pen, width, height) {
  const scale = devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.lineWidth = 1;
  return { width, height, scale };
}

// Return what boxes of each look are filled with: its colour, or its hatch.
function patternsOf(pen) {
  const scale = devicePixelRatio || 1;
  return DATA.looks.map((look) => {
    if (!look.hatch) return textOf(fillOf(look));
    const pattern = pen.createPattern(tileOf(look, scale), "repeat");
    pattern.setTransform(new DOMMatrix().scale(1 / scale));
    return pattern;
  });
}

// Draw where a run leaves out what repeats itself: a dashed edge, and how much that is, upright where it is narrow.
function drawGap(pen, from, to, top, foot, width, font, words) {
  if (to < 0 || from > width) return;
  const left = Math.max(from, -8), right = Math.min(to, width + 8);
  pen.strokeStyle = faint();
  pen.setLineDash([4, 4]);
  pen.strokeRect(left + 1, top, Math.max(right - left - 2, 1), foot - top);
  pen.setLineDash([]);
  pen.font = font;
  const along = pen.measureText(words).width + 16, upright = along > right - left;
  if (upright && (along > foot - top || right - left < 16)) return;
  pen.save();
  pen.translate((Math.max(left, 0) + Math.min(right, width)) / 2, (top + foot) / 2);
  if (upright) pen.rotate(-Math.PI / 2);
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.fillStyle = ink();
  pen.fillText(words, 0, 0);
  pen.restore();
}
