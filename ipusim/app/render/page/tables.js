// Tables that sort themselves, and bars that add up.

// Columns that a telephone has room for.
const NARROW_COLUMNS = 4;

// Return a table; its headers are buttons that sort by their column, rising, falling, and as it was.
function tableOf({ title, header, rows, sorts }) {
  const numbers = header.map((_, column) => column > 0 && rows.every((row) => typeof row[column].sort === "number" || !row[column].text));
  const body = make("tbody", {});
  const draw = (order) => body.replaceChildren(...order.map((row) => make("tr", {},
    ...row.map((cell, column) => make(column ? "td" : "th", {
      class: numbers[column] ? "number" : null, scope: column ? null : "row", "data-head": column ? header[column] : null,
    }, cell.text)))));
  draw(rows);
  const heads = header.map((words, column) => {
    if (!sorts) return make("th", { scope: "col", class: numbers[column] ? "number" : null }, words);
    const head = make("th", { scope: "col", "aria-sort": "none", class: numbers[column] ? "number" : null });
    head.append(make("button", { type: "button", onclick: () => {
      const next = { none: "descending", descending: "ascending", ascending: "none" }[head.getAttribute("aria-sort")];
      heads.forEach((each) => each.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", next);
      draw(next === "none" ? rows : [...rows].sort((one, other) => compareCells(one[column], other[column]) * (next === "ascending" ? 1 : -1)));
    } }, words, make("span", { class: "sign", "aria-hidden": "true" })));
    return head;
  });
  const named = header.some((words) => words);
  const table = make("table", {}, make("caption", {}, title), named ? make("thead", {}, make("tr", {}, ...heads)) : null, body);
  // On a narrow screen each row of a wide table is a list of its cells, with the header's words before each.
  const wide = named && header.length > NARROW_COLUMNS;
  return make("div", { class: wide ? "table wide" : "table", tabindex: 0, role: "region", "aria-label": title }, table);
}

function compareCells(one, other) {
  if (typeof one.sort === "number" && typeof other.sort === "number") return one.sort - other.sort;
  if (typeof one.sort === typeof other.sort) return one.text < other.text ? -1 : one.text > other.text ? 1 : 0;
  return typeof one.sort === "number" ? 1 : -1;
}

// Return one stacked bar for each row, all of one scale, and a legend of their parts.
function barsOf({ title, looks, rows, total, unit_s }) {
  const used = looks.map((_, n) => n).filter((n) => rows.some((row) => row.parts[n]));
  const lines = rows.map((row) => {
    const said = used.filter((n) => row.parts[n]).map((n) => `${looks[n].name} ${(100 * row.parts[n] / total).toFixed(1)} %`);
    const bar = make("div", { class: "bar", role: "img", "aria-label": `${row.label}: ${said.join(", ")}` });
    for (const n of used) {
      if (!row.parts[n]) continue;
      const part = swatch(looks[n], "part");
      part.style.width = `${(100 * row.parts[n]) / total}%`;
      part.dataset.words = `${row.label}: ${looks[n].name}, ${whole(row.parts[n])} cycles, ${timeText(row.parts[n] * unit_s)}, ${(100 * row.parts[n] / total).toFixed(1)} %`;
      bar.append(part);
    }
    return make("div", { class: "line" }, make("span", { class: "label" }, row.label), bar);
  });
  // Of one bar the legend tells the shares too: there is no other to compare them with by eye.
  const words = (n) => looks[n].name + (rows.length === 1 ? ` ${(100 * rows[0].parts[n] / total).toFixed(1)} %` : "");
  const legend = make("ul", { class: "legend" }, ...used.map((n) => make("li", {}, swatch(looks[n]), words(n))));
  return make("figure", { class: "bars" }, make("figcaption", {}, title), ...lines, legend);
}
