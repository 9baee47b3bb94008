// How things look: colours and hatches as the tables of ipusim say them, on light paper and on dark.

const dark = matchMedia("(prefers-color-scheme: dark)");
let chosen = null; // the theme that was asked for by the button; null: the system's
let printing = false;
const onTheme = [];

const isDark = () => !printing && (chosen === null ? dark.matches : chosen === "dark");

function applyTheme() {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
  tiles.clear();
  shades.clear();
  for (const react of onTheme) react();
}

dark.addEventListener("change", applyTheme);
addEventListener("beforeprint", () => { printing = true; applyTheme(); });
addEventListener("afterprint", () => { printing = false; applyTheme(); });

const rgbOf = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
const textOf = (rgb) => `rgb(${rgb.map(Math.round).join(" ")})`;

const scheme = () => (isDark() ? "dark" : "light");

// Return what a look is filled with in the theme.
const fillOf = (look) => rgbOf(look[scheme()].fill);

// Return a colour of the style sheet in the theme.
const shades = new Map();
function shade(name) {
  if (!shades.has(name)) shades.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return shades.get(name);
}

const paper = () => rgbOf(shade("paper"));
const lane = () => rgbOf(DATA.lanes[scheme()]);
const ink = () => shade("ink");
const faint = () => shade("faint");
const rule = () => shade("rule");
const accent = () => shade("accent");

// Return a canvas with one repeat of a look's hatch (matplotlib's letters; more of them are denser) on its face.
const tiles = new Map();
function tileOf(look, scale) {
  const { fill, edge, ink: on } = look[scheme()], key = `${fill}${edge}${look.hatch}${scale}`;
  if (tiles.has(key)) return tiles.get(key);
  const density = Math.max(1, ...[...look.hatch].map((sign) => look.hatch.split(sign).length - 1));
  const size = Math.round((density > 3 ? 5 : density > 2 ? 6 : 8) * scale);
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const pen = tile.getContext("2d");
  pen.fillStyle = fill;
  pen.fillRect(0, 0, size, size);
  pen.strokeStyle = pen.fillStyle = edge || on;
  pen.lineWidth = 0.8 * scale;
  pen.globalAlpha = edge ? 0.75 : 0.5;
  for (const sign of new Set(look.hatch)) drawSign(pen, sign, size, scale);
  tiles.set(key, tile);
  return tile;
}

function drawSign(pen, sign, size, scale) {
  const line = (x0, y0, x1, y1) => { pen.beginPath(); pen.moveTo(x0, y0); pen.lineTo(x1, y1); pen.stroke(); };
  for (const by of [-size, 0, size]) {
    if (sign === "/" || sign === "x") line(by, size, by + size, 0);
    if (sign === "\\" || sign === "x") line(by, 0, by + size, size);
  }
  if (sign === "-") line(0, size / 2, size, size / 2);
  if (sign === "|") line(size / 2, 0, size / 2, size);
  if (sign === "." || sign === "o" || sign === "O") {
    pen.beginPath();
    pen.arc(size / 2, size / 2, (sign === "." ? 0.9 : 1.7) * scale, 0, 2 * Math.PI);
    if (sign === ".") pen.fill(); else pen.stroke();
  }
}

// Fill an element with a look, as legends and bars show it.
function wear(element, look) {
  const { fill, edge } = look[scheme()];
  element.style.backgroundColor = fill;
  element.style.boxShadow = edge ? `inset 0 0 0 1px ${edge}` : "none";
  element.style.backgroundImage = look.hatch ? `url(${tileOf(look, 2).toDataURL()})` : "none";
  element.style.backgroundSize = look.hatch ? `${tileOf(look, 2).width / 2}px` : "auto";
}

// Return a swatch of a look, drawn anew with the theme.
function swatch(look, kind = "swatch") {
  const element = make("span", { class: kind, "aria-hidden": "true" });
  wear(element, look);
  onTheme.push(() => wear(element, look));
  return element;
}

// Return the button that changes the theme.
function themeButton() {
  const theme = make("button", { type: "button", id: "theme", "aria-pressed": "false", onclick: () => {
    chosen = isDark() ? "light" : "dark";
    applyTheme();
  } }, "Dark");
  onTheme.push(() => press(theme, isDark()));
  return theme;
}
