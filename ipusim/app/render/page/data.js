// The data of the page: JSON as it stands, and the packed columns of each run.

const DATA = JSON.parse(document.getElementById("data").textContent);

const TYPES = { Uint8Array, Int8Array, Uint16Array, Int16Array, Uint32Array, Int32Array, Float64Array };

// Return the name of a micro-batch, or of its segment where each has several: 3, or 1-0.
const batchName = (number, segments) => (segments > 1 ? `${Math.floor(number / segments)}-${number % segments}` : `${number}`);

// Return how many of some items have a number of at most `limit`; the numbers rise.
function countUntil(items, limit, numberOf = (item) => item) {
  let low = 0, high = items.length;
  while (low < high) { const middle = (low + high) >> 1; if (numberOf(items[middle]) <= limit) low = middle + 1; else high = middle; }
  return low;
}

// Return the bytes of base64 text; the browser's own decoder works on megabytes at once.
function bytesOf(text) {
  const words = atob(text.trim());
  const bytes = new Uint8Array(words.length);
  for (let i = 0; i < words.length; i++) bytes[i] = words.charCodeAt(i);
  return bytes;
}

// Return columns by name: what was packed as differences is summed up again.
async function unpack(columns, text) {
  const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("gzip"));
  const buffer = await new Response(stream).arrayBuffer();
  const found = {};
  for (const { name, type, at, length, differences } of columns) {
    const packed = new TYPES[`${type}Array`](buffer, at, length);
    found[name] = packed;
    if (differences) {
      const sums = new Float64Array(length);
      let sum = 0;
      for (let i = 0; i < length; i++) sums[i] = sum += packed[i];
      found[name] = sums;
    }
  }
  return found;
}

// Return a button with an icon or word, and words for its purpose.
const button = (does, label, words, act) => make("button", { type: "button", "data-do": does, "aria-label": words, title: words, onclick: act }, label);

// Press or release a button.
const press = (element, on) => element.setAttribute("aria-pressed", `${on}`);

// Return a button that stays pressed until it is pressed again; `act` learns whether it is.
function toggle(does, label, words, on, act) {
  const found = button(does, label, words, () => { press(found, found.getAttribute("aria-pressed") !== "true"); act(found.getAttribute("aria-pressed") === "true"); });
  press(found, on);
  return found;
}

// Make an element; text is always text, never markup, whatever a name holds.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}
