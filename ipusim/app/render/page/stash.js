// What waits on each IPU for its backward pass: a slot for each micro-batch, and how many bytes that are.

const SHOWN = 32; // slots of an IPU, at most; of more there is a number
const WORDS = [84, 128]; // CSS pixels beside slots, for the count, on two lines and on one
const HIGH = 72; // and of a lane that has room for two rows of slots
const NEEDED = 26; // and of a slot, below which they stand in two rows
const DIGIT = 0.7; // width of a digit in its height
const LEAST = 10.5; // and of the smallest letters on a slot

class Stash {
  constructor(played) {
    this.played = played;
    this.lanes = played.run.lanes.map((lane, number) => this.build(lane, number));
    this.most = Math.max(1, ...this.lanes.map(({ most }) => most));
  }

  build(lane, number) {
    const { slots } = this.played, own = Array.from(slots.lane, (each, n) => n).filter((n) => slots.lane[n] === number);
    const events = own.flatMap((n) => [[slots.start[n], 1], [slots.end[n], -1]]).sort(([one, rises], [other, falls]) => one - other || rises - falls);
    let count = 0, most = 0;
    for (const [, change] of events) most = Math.max(most, count += change);
    const stack = make("div", { class: "slots", "aria-hidden": "true" }), words = make("div", { class: "waiting" });
    const element = make("div", { class: "stash", "data-lane": number, role: "img" }, stack, words);
    return { lane, number, own, most, stack, words, element, said: "" };
  }

  // Return the slots of a lane that hold something at a time, the oldest first.
  held({ own }, time) {
    const { start, end } = this.played.slots;
    return own.filter((n) => start[n] < time && end[n] > time).sort((one, other) => start[one] - start[other]);
  }

  // Return how many wait of which neither the forward nor the backward pass is drawn.
  unseen({ number }, time) {
    const { gaps } = this.played, last = gaps.findLast((gap) => (gap.start + gap.end) / 2 < time);
    return last ? last.more[number] : 0;
  }

  draw(time) {
    for (const each of this.lanes) {
      const held = this.held(each, time), unseen = this.unseen(each, time);
      const { filled, used } = this.played.slots, states = held.map((n) => (time <= filled[n] && time < used[n] ? "fills" : time > used[n] ? "used" : "waits"));
      const said = `${held.map((n, at) => `${n}${states[at]}`).join()}+${unseen}`;
      if (said === each.said) continue;
      each.said = said;
      this.show(each, held, states, unseen);
    }
  }

  show(each, held, states, unseen) {
    const { slots, run } = this.played, shown = held.slice(0, SHOWN), more = held.length - shown.length + unseen, count = held.length + unseen;
    const name = (n) => this.nameOf(each, n);
    const cells = shown.map((n, at) => make("span", { class: `slot ${states[at]}` }, each.numbered ? name(n) : ""));
    // Room that is empty now, and was or will be full: a stash is as deep as it ever gets.
    for (let at = shown.length; at < Math.min(each.most, SHOWN); at++) cells.push(make("span", { class: "slot empty" }));
    each.stack.replaceChildren(...cells, ...(more ? [make("span", { class: "more" }, `+${whole(more)}`)] : []));
    const known = run.kept_bytes !== null && unseen === 0;
    const bytes = known ? held.reduce((sum, n) => sum + run.kept_bytes[slots.stage[n]], 0) : 0;
    each.words.replaceChildren(make("b", {}, whole(count)), ...(known && run.kept_bytes.some((size) => size) ? [make("small", {}, bytesText(bytes))] : []));
    each.element.setAttribute("aria-label", `${each.lane.label}: ${whole(count)} waiting${count ? `: ${shown.map(name).join(", ")}${more ? ` and ${whole(more)} more` : ""}` : ""}`);
    Object.assign(each.element.dataset, { count, bytes });
  }

  nameOf({ lane }, n) {
    const { stage, micro_batch } = this.played.slots;
    const batch = batchName(micro_batch[n], this.played.run.segments);
    return lane.several ? `${stage[n]}.${batch}` : batch;
  }

  // Give slots the width that the deepest stash of the page has room for, in one row or two, and numbers that fit.
  fit(width, most, tall, low) {
    const slots = Math.min(most, SHOWN), wideIn = (rows) => Math.floor((width - WORDS[Number(low)]) / Math.ceil(slots / rows)) - 3;
    const rows = tall >= HIGH && wideIn(1) < NEEDED ? 2 : 1, wide = Math.max(3, Math.min(34, wideIn(rows)));
    if (`${wide} ${rows}` === this.fitted) return;
    this.fitted = `${wide} ${rows}`;
    for (const each of this.lanes) {
      const letters = each.own.reduce((longest, n) => Math.max(longest, this.nameOf(each, n).length), 1);
      const size = Math.min(16, (wide - 2) / (DIGIT * letters));
      each.numbered = size >= LEAST;
      each.stack.style.setProperty("--wide", `${wide}px`);
      each.stack.style.setProperty("--row", `${Math.ceil(slots / rows) * (wide + 3)}px`);
      each.stack.classList.toggle("two", rows > 1);
      each.stack.style.setProperty("--letters", `${size}px`);
      each.said = null;
    }
  }
}
