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
