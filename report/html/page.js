// Draws what needs more than tables, from the data in the page. Text of the program only ever becomes text nodes and
// attributes; nothing is built from strings of HTML.
"use strict";
const SVG = "http://www.w3.org/2000/svg";
const root = document.documentElement;
const one = (selector, within = document) => within.querySelector(selector);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

function made(tag, attributes, ...children) {
  const svg = ["svg", "g", "rect", "path", "text", "line", "title"].includes(tag);
  const node = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "click") node.addEventListener("click", value);
    else if (value !== undefined && value !== null) node.setAttribute(name, value);
  }
  node.append(...children.flat(4).filter((c) => c !== "" && c !== null && c !== undefined));
  return node;
}

function scaled(number, units) {
  for (const [unit, size] of units) if (Math.abs(number) >= size) return `${+(number / size).toPrecision(3)} ${unit}`;
  const [unit, size] = units[units.length - 1];
  return `${+(number / size).toPrecision(3)} ${unit}`;
}
const sized = (n) => scaled(n, [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["KB", 1e3], ["B", 1]]);
const timed = (n) => scaled(n, [["s", 1], ["ms", 1e-3], ["us", 1e-6], ["ns", 1e-9]]);
const cut = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);

let data, plan, shown, number = 0;
const inspector = one("#inspector");

async function unpacked() {
  const bytes = Uint8Array.from(atob(one("#data").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// -- places: what is selected is the fragment of the address, so that it can be kept and sent

function go(what) {
  const parts = new URLSearchParams(data.plans.length > 1 ? { plan: number } : {});
  for (const [key, value] of Object.entries(what)) parts.set(key, value);
  location.hash = parts.toString();
}

function arrive() {
  const parts = new URLSearchParams(location.hash.slice(1));
  choosePlan(Math.min(data.plans.length - 1, Math.max(0, parseInt(parts.get("plan") || "0", 10) || 0)));
  const values = plan.values ? plan.values.columns.name : [];
  if (parts.has("value")) return showValue(values.indexOf(parts.get("value")));
  if (parts.has("collective")) return showCollective(plan.collectives.findIndex((c) => c.name === parts.get("collective")));
  if (parts.has("layers")) return showSection(parseInt(parts.get("layers"), 10));
}
const goValue = (n) => n >= 0 && go({ value: plan.values.columns.name[n] });
const goCollective = (n) => n >= 0 && go({ collective: plan.collectives[n].name });
const goSection = (n) => go({ layers: n });

function choosePlan(n) {
  if (plan === data.plans[n]) return;
  number = n;
  plan = data.plans[n];
  shown = one(`.of-plan[data-plan="${n}"]`);
  all(".of-plan").forEach((part) => (part.hidden = part !== shown));
  all(".plan").forEach((button) => button.setAttribute("aria-pressed", button.dataset.plan === String(n)));
  if (!one(".map", shown).firstChild) draw();
}

// -- the map of the program, and the graph of a layer

function draw() {
  drawMap();
  drawTimeline(1);
  enhanceRows();
  one(".plain", shown).open = false;
}

function drawMap() {
  const most = Math.max(1, ...plan.sections.map((s) => s.sent_bytes));
  for (const phase of ["forward", "backward", "update"]) {
    const boxes = plan.sections.map((s, n) => [s, n]).filter(([s]) => s.phase === phase);
    if (!boxes.length) continue;
    one(".map", shown).append(made("div", { class: "phase" }, made("span", {}, phase), boxes.map(([s, n]) => {
      const times = s.count > 1 ? ` ×${s.count}` : s.trips > 1 ? ` ×${s.trips}` : "";
      const bar = made("i");
      bar.style.width = `${(100 * s.sent_bytes) / most}%`;
      return made("button", { class: `box ${phase}${times ? " many" : ""}`, type: "button", "data-n": n, click: () => goSection(n) },
        cut(s.name, 34) + times, made("small", {}, `${timed(s.seconds)}${s.sent_bytes ? `, sends ${sized(s.sent_bytes)}` : ""}`),
        s.sent_bytes ? made("div", { class: "bar" }, bar) : "");
    })));
  }
}

function chooseSection(n) {
  const boxes = all(".box", shown), was = boxes.find((box) => box.classList.contains("on"));
  if (was && was.dataset.n === String(n)) return;
  boxes.forEach((box) => box.classList.toggle("on", box.dataset.n === String(n)));
  drawGraph(plan.sections[n]);
}

function showSection(n) {
  const section = plan.sections[n];
  if (!section) return;
  chooseSection(n);
  const sent = plan.rows.filter((row) => row.members.some((m) => plan.collectives[m].section === n));
  inspect(`${section.phase}: ${section.name}`, facts({
    layers: section.count > 1 ? section.count : "", trips: section.trips > 1 ? section.trips : "", instructions: section.instructions,
    "time of ops": timed(section.seconds), sends: sized(section.sent_bytes), waits: timed(section.waited),
  }), sent.length ? made("h3", {}, "Collectives here, equal ones once") : "", sent.map((row) => {
    const inside = row.members.filter((m) => plan.collectives[m].section === n);
    return made("div", {}, link(`${inside.length} ${row.kind}`, () => goCollective(inside[0])), ` ${row.cause}`);
  }));
}

const WIDE = 168, HIGH = 74;

function drawGraph(section) {
  const { nodes, edges, left_out } = section.graph;
  const place = one(".graph", shown);
  if (!nodes.length) return place.replaceChildren(made("span", { class: "mute" }, "These layers only compute element by element: there is nothing to draw."));
  const width = (1 + Math.max(...nodes.map((n) => n.x))) * WIDE, height = (1 + Math.max(...nodes.map((n) => n.y))) * HIGH - 22;
  const title = `${section.phase}, ${section.name}${section.count > 1 ? `: one of ${section.count} equal layers` : ""}`;
  const svg = made("svg", { width, height, role: "group", "aria-label": title });
  for (const [a, b] of edges) {
    const x1 = nodes[a].x * WIDE + 76, y1 = nodes[a].y * HIGH + 46, x2 = nodes[b].x * WIDE + 76, y2 = nodes[b].y * HIGH + 2;
    const middle = (y1 + y2) / 2;
    const sends = nodes[a].collective >= 0;
    svg.append(made("path", { class: sends ? "edge sends" : "edge", d: `M${x1} ${y1}C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}` }));
  }
  nodes.forEach((n) => svg.append(drawNode(n)));
  const more = left_out ? `; ${left_out} smaller ops are left out` : "";
  place.replaceChildren(made("div", { class: "mute" }, `${title}${more}. Dashed: it communicates.`), svg);
}

function drawNode(n) {
  const sends = n.collective >= 0;
  const name = sends ? n.opcode.replace("-start", "") : n.opcode;
  const below = sends ? sized(plan.collectives[n.collective].sent_bytes) : plan.values && n.value >= 0 ? `${n.shape.replace(/\{.*/, "")} ${sharding(n.value).text}` : n.shape;
  const reads = n.parameters.length ? `\nreads ${n.parameters.join(", ")}` : "";
  const at = n.source ? `\n${n.source}` : "";
  const open = () => (sends ? goCollective(n.collective) : n.value >= 0 ? goValue(n.value) : inspect(n.name, facts({ op: n.opcode, shape: n.shape, source: n.source })));
  const group = made("g", { class: sends ? "node sends" : "node", tabindex: 0, role: "button", transform: `translate(${n.x * WIDE + 2},${n.y * HIGH + 2})`, "data-name": n.name, click: open },
    made("title", {}, `${n.name}: ${n.opcode} ${n.shape}${reads}${at}`), made("rect", { width: 148, height: 44 }),
    made("text", { x: 8, y: 18 }, cut(n.parameters.length && !sends ? `${name} ${n.parameters.map((p) => p.replace(/.*\['?|'?\]$/g, "")).join(", ")}` : name, 22)), made("text", { x: 8, y: 35, class: "small" }, cut(below, 22)));
  group.addEventListener("keydown", (e) => e.key === "Enter" && open());
  return group;
}

// -- time and memory on one axis

function drawTimeline(zoom) {
  const { seconds, engines, spans, pauses } = plan.timeline, memory = plan.memory, run = plan.measured;
  const place = one(".timeline", shown), left = 130, lane = 26, tracks = run ? run.tracks : [], whole = run ? run.end : seconds;
  const width = Math.max(500, (one("#left").clientWidth || 900) - 30) * zoom, inside = width - left - 10;
  const x = (t) => left + (t / (whole || 1)) * inside, bottom = (engines.length + tracks.length) * lane + 24, top = bottom + 96;
  const svg = made("svg", { width, height: top + 6, role: "group", "aria-label": "timeline and live memory" });
  for (let k = 0; k <= 5 * zoom; k++) {
    const t = (whole * k) / (5 * zoom);
    svg.append(made("line", { class: "grid", x1: x(t), x2: x(t), y1: 18, y2: top }), made("text", { class: "small", x: x(t), y: 12, "text-anchor": k === 5 * zoom ? "end" : k ? "middle" : "start" }, timed(t)));
  }
  [...engines, ...tracks.map((name) => `run: ${name}`)].forEach((name, n) => svg.append(made("text", { x: 0, y: 36 + n * lane }, made("title", {}, name), cut(name, 19))));
  for (const [start, length, trips] of pauses) {
    const wide = (length / whole) * inside, words = `the other trips of ${trips}: ${timed(length)}`;
    svg.append(made("rect", { class: "pause", x: x(start), y: 22, width: Math.max(1, wide), height: lane * engines.length - 6 }, made("title", {}, words)));
    if (wide > 200) svg.append(made("text", { class: "small", x: x(start) + wide / 2, y: 26 + (lane * engines.length) / 2, "text-anchor": "middle" }, words));
  }
  for (const [engine, n, start, length, trips] of spans) {
    const c = engine ? plan.collectives[n] : null, s = plan.sections[c ? c.section : n];
    const words = c ? `${c.name}: ${timed(length)}, ${c.state}, delays ${timed(c.waited)}\n${c.cause}` : `${s.phase}, ${s.name}: ${timed(length)}`;
    svg.append(made("rect", { class: `span ${c ? c.state : s.phase}`, x: x(start), y: 22 + engine * lane, width: Math.max(1, (length / whole) * inside), height: lane - 6, "data-n": n, "data-engine": engine, click: () => (c ? goCollective(n) : goSection(n)) },
      made("title", {}, words + (trips > 1 ? `\none of ${trips} trips` : ""))));
  }
  for (const [track, n, start, length] of run ? run.spans : []) {
    const c = tracks[track] === "compute" ? null : plan.collectives[n], s = c ? plan.sections[c.section] : plan.sections[n];
    const words = c ? `${c.name}: ${timed(length)} in the run, forecast ${measured(n).replace(/.* /, "")}` : `${s ? `${s.phase}, ${s.name}` : "ops that the forecast does not name"}: ${timed(length)} in the run`;
    svg.append(made("rect", { class: `span run ${c ? c.state : s ? s.phase : "other"}`, x: x(start), y: 26 + (engines.length + track) * lane, width: Math.max(1, (length / whole) * inside), height: lane - 14, "data-n": n, "data-engine": c ? 1 : 0, click: () => (c ? goCollective(n) : s && goSection(n)) }, made("title", {}, words)));
  }
  const high = (b) => top - (b / (memory.peak || 1)) * 84;
  let d = "";
  memory.curve.forEach(([t, b], n) => (d += n ? `H${x(t).toFixed(1)}V${high(b).toFixed(1)}` : `M${x(0)} ${top}V${high(b).toFixed(1)}`));
  svg.append(made("path", { class: "area", d: `${d}H${x(seconds)}V${top}Z` }), made("text", { x: 0, y: bottom + 12 }, "live memory"), made("text", { class: "small", x: 0, y: bottom + 28 }, `peak ${sized(memory.peak)}`));
  const buttons = made("div", { class: "tools" }, made("button", { type: "button", "aria-label": "zoom in", click: () => drawTimeline(zoom * 2) }, "+"), made("button", { type: "button", "aria-label": "zoom out", click: () => drawTimeline(Math.max(1, zoom / 2)) }, "−"),
    made("span", { class: "mute" }, `${plan.summary.scheduled ? "the order of the schedule" : "the order of the program"} on ${plan.machine}; filled: exposed, outlined: hidden${run ? "; thin bars: the run" : ""}`));
  place.replaceChildren(buttons, svg);
}

// -- collectives: sort, filter, fold

const ROWS = 150; // drawn at once: browsers lay tables out slowly
const COLUMNS = ["kind", "count", "sent_bytes", "groups", "waited", "states", "cause", "source"];

function enhanceRows() {
  const table = one(".rows", shown);
  if (!table) return;
  const state = { by: "sent_bytes", down: true, most: ROWS };
  all("th", table).forEach((head, n) => head.replaceChildren(made("button", { type: "button", click: () => {
    state.down = state.by === COLUMNS[n] ? !state.down : [1, 2, 4].includes(n);
    state.by = COLUMNS[n];
    fill();
  } }, head.textContent)));
  const tools = one(".collectives .tools", shown), fold = one(".fold", tools), filter = one(".filter", tools);
  filter.addEventListener("input", fill);
  fold.addEventListener("change", fill);

  function fill() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const every = fold.checked ? plan.rows : plan.collectives.map((c, n) => ({ ...c, count: 1, states: c.state ? [c.state] : [], waited: (c.waited || 0) * c.runs, members: [n] }));
    const kept = every.filter((row) => words.every((w) => `${row.kind} ${row.groups} ${row.cause} ${row.moved} ${row.source} ${row.states.join(" ")} ${row.name || ""}`.toLowerCase().includes(w)));
    const key = (row) => (state.by === "states" ? row.states.join() : row[state.by]);
    kept.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (state.down ? -1 : 1));
    all("th", table).forEach((head, n) => (COLUMNS[n] === state.by ? head.setAttribute("aria-sort", state.down ? "descending" : "ascending") : head.removeAttribute("aria-sort")));
    const rest = kept.length - state.most, more = made("button", { class: "link", type: "button", click: () => { state.most = Infinity; fill(); } }, `${rest} more`);
    one("tbody", table).replaceChildren(...kept.slice(0, state.most).map(line), ...(rest > 0 ? [made("tr", {}, made("td", { colspan: COLUMNS.length }, more))] : []));
    const count = kept.reduce((sum, row) => sum + row.count, 0), sent = kept.reduce((sum, row) => sum + row.sent_bytes, 0);
    one(".count", tools).textContent = `${count} of ${plan.collectives.length}, ${sized(sent)} sent`;
  }

  function line(row) {
    const open = () => goCollective(row.members[0]);
    const cells = [row.kind, row.count, sized(row.sent_bytes), row.groups, timed(row.waited), made("span", { class: `state ${row.states[row.states.length - 1] || ""}` }, row.states.join(", ")), row.cause + (row.moved ? ` (moves ${row.moved})` : ""), row.source];
    const found = made("tr", { tabindex: 0, "data-n": row.members[0], click: open }, cells.map((cell, n) => made("td", [1, 2, 4].includes(n) ? { class: "r" } : {}, typeof cell === "number" ? String(cell) : cell)));
    found.addEventListener("keydown", (e) => {
      if (e.key === "Enter") open();
      const to = { ArrowDown: found.nextSibling, ArrowUp: found.previousSibling }[e.key];
      if (to) (e.preventDefault(), to.focus());
    });
    return found;
  }
  fill();
}

// -- the inspector

const link = (text, click) => made("button", { class: "link mono", type: "button", click }, text);
const facts = (said) => made("dl", {}, Object.entries(said).filter(([, v]) => v !== "" && v !== null && v !== undefined).map(([k, v]) => [made("dt", {}, k), made("dd", {}, v instanceof Node ? v : String(v))]));

function inspect(title, ...parts) {
  inspector.replaceChildren(made("h2", {}, title), ...parts.flat(4).filter(Boolean));
  inspector.scrollTop = 0;
}

function showCollective(n) {
  const c = plan.collectives[n];
  if (!c) return;
  all(".rows tr", shown).forEach((row) => row.classList.toggle("on", row.dataset.n === String(n)));
  all(".span", shown).forEach((span) => span.classList.toggle("on", span.dataset.engine !== "0" && span.dataset.n === String(n)));
  drawAround(c.section, c.name);
  const row = plan.rows.find((r) => r.members.includes(n));
  const cause = c.cause.split(/(?<=,) /).map((text) => {
    const [, before, name, after] = /^(.*?)([^\s,]*)(,?)$/.exec(text), at = plan.values ? plan.values.columns.name.indexOf(name) : -1;
    return at >= 0 ? [before, link(name, () => goValue(at)), `${after} `] : `${text} `;
  });
  inspect(`${c.kind} ${c.name}`, facts({
    cause: made("span", {}, cause), moves: c.moved, source: c.source, path: c.op_name, groups: c.groups, "sent per device": sized(c.sent_bytes), runs: c.runs, arrays: c.arrays > 1 ? c.arrays : "",
    state: c.state, takes: c.seconds === null ? "" : timed(c.seconds), delays: c.waited === null ? "" : timed(c.waited), starts: c.start === null ? "" : timed(c.start),
    "first used": c.used === null ? "" : timed(c.used), measured: measured(n), in: link(`${plan.sections[c.section].phase}, ${plan.sections[c.section].name}`, () => goSection(c.section)),
  }), row && row.count > 1 ? made("p", { class: "mute" }, `${row.count} like it send ${sized(row.sent_bytes)} together.`) : "");
}

function measured(n) {
  const found = plan.measured && plan.measured.collectives.find((row) => row.collective === n);
  return found ? `${timed(found.measured.seconds)}, forecast ${timed(found.forecast.seconds)}` : "";
}

const sharding = (n) => plan.values.shardings[plan.values.columns.sharding[n]];

// Draws the layers of what is selected, and marks it if it is one of the nodes.
function drawAround(section, name) {
  const nodes = plan.sections[section].graph.nodes;
  if (nodes.length) chooseSection(section);
  all(".node", shown).forEach((node) => node.classList.toggle("on", node.dataset.name === name));
}

function showValue(n) {
  if (!(n >= 0)) return;
  const values = plan.values, columns = values.columns, shape = values.shapes[columns.shape[n]], how = sharding(n);
  const path = values.texts[columns.op_name[n]], section = columns.section[n];
  if (section >= 0) drawAround(section, columns.name[n]);
  const parts = how.dims.map((digits) => digits.reduce((product, [size]) => product * size, 1));
  const local = shape.dims.map((size, d) => Math.ceil(size / parts[d]));
  inspect(columns.name[n], facts({
    op: values.texts[columns.opcode[n]], path, source: values.texts[columns.source[n]], shape: shape.text, sharding: made("span", {}, chips(how)),
    "per device": shape.dims.length ? `[${local.join(", ")}]` : "", "bytes of it": shape.bytes ? sized((shape.bytes / Math.max(1, shape.dims.reduce((a, b) => a * b, 1))) * local.reduce((a, b) => a * b, 1)) : "",
    in: section >= 0 ? link(`${plan.sections[section].phase}, ${plan.sections[section].name}`, () => goSection(section)) : "",
  }), plan.remarks.filter((r) => r.value === n).map((r) => made("p", {}, made("span", { class: "chip" }, r.category || r.severity), ` ${r.message}`)),
  tiles(shape, how, parts), chains(n, how));
}

function chips(how) {
  if (!how.axes.some((axes) => axes.length)) return [how.text];
  return how.axes.map((axes) => {
    const chip = made("span", { class: "chip mono" }, axes.map((a) => a[0]).join(" ") || "-");
    const at = plan.mesh.findIndex((m) => axes.length && m.axis === axes[0][0].replace(/:.*/, ""));
    if (at >= 0) (chip.style.color = `var(--a${at % 5})`), (chip.style.fontWeight = 600);
    return [chip, " "];
  });
}

// -- tiles: which devices hold which part of an array

const MOST = 12, DEVICES = 4096;
const tileOf = (digits, place) => digits.reduce((index, [size, stride]) => index * size + (Math.floor(place / stride) % size), 0);
const colour = (tile) => `hsl(${(tile * 137.5) % 360} 55% ${tile % 2 ? 72 : 84}%)`;

function tiles(shape, how, parts) {
  if (how.device !== null) return made("p", {}, `All of it lies on device ${how.device}.`);
  const count = plan.devices;
  if (!parts.some((p) => p > 1)) return made("p", {}, `All of it lies on each of ${count} device${count > 1 ? "s" : ""}.`);
  if (count > DEVICES) return made("p", {}, `${count} devices are too many for a picture.`);
  const holders = new Map(), tileAt = [];
  for (let place = 0; place < count; place++) {
    const at = how.dims.map((digits) => tileOf(digits, place)), device = how.order ? how.order[place] : place;
    const key = at.join();
    if (!holders.has(key)) holders.set(key, []);
    holders.get(key).push(device);
    tileAt[device] = key;
  }
  const keys = [...holders.keys()], numbers = new Map();
  all2(parts, (at) => numbers.set(at.join(), numbers.size));
  holders.forEach((devices) => devices.sort((a, b) => a - b));
  const cut_ = parts.map((p, d) => [p, d]).filter(([p]) => p > 1).map(([, d]) => d);
  const rows = cut_.length > 1 || cut_[0] === 0 ? cut_[0] : -1, cols = cut_.length > 1 ? cut_[1] : rows < 0 ? cut_[0] : -1;
  const rest = cut_.filter((d) => d !== rows && d !== cols);
  const box = made("div", {}, made("h3", {}, `Tiles${parts.length ? `: ${parts.join(" × ")}` : ""}`));
  const range = (d, i) => { const size = Math.ceil(shape.dims[d] / parts[d]); return i * size < shape.dims[d] ? `${i * size}:${Math.min(shape.dims[d], (i + 1) * size)}` : "-"; };
  const slices = [];
  all2(rest.map((d) => parts[d]), (at) => slices.length < 8 && slices.push(at));
  for (const slice of slices) {
    if (rest.length) box.append(made("div", { class: "mute" }, rest.map((d, k) => `dimension ${d}: ${range(d, slice[k])}`).join(", ")));
    const shownRows = few(rows < 0 ? 1 : parts[rows]), shownCols = few(cols < 0 ? 1 : parts[cols]);
    const grid = made("div", { class: "tile" });
    grid.style.gridTemplateColumns = `auto repeat(${shownCols.length}, minmax(0, 1fr))`;
    grid.append(made("div", { class: "edge-label" }), ...shownCols.map((c) => made("div", { class: "edge-label" }, c === null ? "…" : cols < 0 ? "" : range(cols, c))));
    for (const r of shownRows) {
      grid.append(made("div", { class: "edge-label" }, r === null ? "…" : rows < 0 ? "" : range(rows, r)));
      for (const c of shownCols) {
        if (r === null || c === null) { grid.append(made("div", { class: "edge-label" }, "…")); continue; }
        const at = parts.map((_, d) => (d === rows ? r : d === cols ? c : rest.includes(d) ? slice[rest.indexOf(d)] : 0));
        grid.append(cell(at.join(), brief(holders.get(at.join()) || []), numbers));
      }
    }
    box.append(grid);
  }
  if (rest.length && slices.length < rest.reduce((n, d) => n * parts[d], 1)) box.append(made("p", { class: "mute" }, "and more slices"));
  if (how.unreduced.length) box.append(made("p", {}, "Each device holds a part of a sum."));
  if (count <= 64 && plan.mesh.length) box.append(made("h3", {}, `Mesh: ${plan.mesh.map((m) => `${m.axis}=${m.size}`).join(", ")}`), meshGrid(count, tileAt, numbers));
  box.addEventListener("mouseover", (e) => light(box, e.target.dataset && e.target.dataset.tile));
  box.addEventListener("mouseleave", () => light(box, undefined));
  return box;
}

function meshGrid(count, tileAt, numbers) {
  const last = plan.mesh[plan.mesh.length - 1], grid = made("div", { class: "tile" });
  grid.style.gridTemplateColumns = `repeat(${plan.mesh.length > 1 && last.size <= 16 ? last.size : Math.min(8, count)}, minmax(0, 1fr))`;
  for (let device = 0; device < count; device++) grid.append(cell(tileAt[device], String(device), numbers));
  return grid;
}

function cell(key, text, numbers) {
  const found = made("div", { "data-tile": key, title: `tile ${key}` }, text);
  found.style.background = colour(numbers.get(key));
  return found;
}
const light = (box, key) => all("[data-tile]", box).forEach((c) => c.classList.toggle("lit", c.dataset.tile === key));
const few = (n) => (n <= MOST ? [...Array(n).keys()] : [...Array(MOST / 2).keys(), null, ...[...Array(MOST / 2).keys()].map((k) => n - MOST / 2 + k)]);
const brief = (devices) => (devices.length <= 4 ? devices.join(",") : `${devices[0]},${devices[1]},…,${devices[devices.length - 1]}`);
function all2(sizes, visit, at = []) {
  if (at.length === sizes.length) return visit(at);
  for (let i = 0; i < sizes[at.length]; i++) all2(sizes, visit, [...at, i]);
}

// -- why a value is sharded as it is: links are followed as hloom explain follows causes

const overlap = ([s1, t1], [s2, t2]) => t1 % (t2 * s2) !== 0 && t2 % (t1 * s1) !== 0;

function chain(value, dim, digit) {
  const { columns, digits, texts } = plan.values, seen = new Set(), steps = [];
  while (!seen.has(`${value},${dim}`)) {
    seen.add(`${value},${dim}`);
    const flat = columns.links[value];
    let at = -1;
    for (let k = 0; k < flat.length && at < 0; k += 5) if (flat[k] === dim && digits[flat[k + 1]].some((d) => overlap(d, digit))) at = k;
    if (at < 0) break;
    steps.push({ value, dim, via: flat[at + 2] < 0 ? null : texts[flat[at + 2]] });
    if (flat[at + 2] < 0) break;
    [value, dim] = [flat[at + 3], flat[at + 4]];
  }
  return steps;
}

function chains(n, how) {
  const found = made("div", {}), columns = plan.values.columns;
  how.axes.forEach((axes, dim) => axes.forEach(([name, size, stride]) => {
    const steps = chain(n, dim, [size, stride]);
    const lines = steps.map((s) => made("li", s.via === null ? { class: "end" } : {}, link(columns.name[s.value], () => goValue(s.value)), ` dimension ${s.dim}, `, s.via === null ? made("b", {}, "annotated") : `through ${s.via}`));
    const hidden = lines.length > 8 ? lines.splice(3, lines.length - 6) : [];
    if (hidden.length) lines.splice(3, 0, made("li", {}, made("details", {}, made("summary", {}, `${hidden.length} more steps`), made("ol", { class: "chain" }, hidden))));
    found.append(made("h3", {}, `Why ${name} on dimension ${dim}`), lines.length ? made("ol", { class: "chain" }, lines) : made("p", { class: "mute" }, "It came from no annotation."));
  }));
  return found;
}

// -- finding values, themes, keys

function search() {
  const wanted = one("#find").value.toLowerCase(), list = one("#found"), values = plan.values;
  const found = [];
  if (wanted && values) {
    const { name, op_name } = values.columns;
    for (let n = 0; n < name.length && found.length < 12; n++) {
      if (name[n].toLowerCase().includes(wanted) || values.texts[op_name[n]].toLowerCase().includes(wanted)) found.push(n);
    }
  }
  list.replaceChildren(...found.map((n) => made("li", {}, made("button", { class: "link mono", type: "button", click: () => { list.hidden = true; goValue(n); } }, cut(values.columns.name[n], 60)))));
  list.hidden = !found.length;
  return found;
}

function setTheme(theme) {
  root.dataset.theme = theme;
  one("#theme").textContent = theme === "dark" ? "light" : "dark";
}

function listen() {
  setTheme(new URLSearchParams(location.search).get("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  one("#theme").addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));
  all(".plan").forEach((button) => button.addEventListener("click", () => { choosePlan(+button.dataset.plan); go({}); }));
  document.addEventListener("click", (e) => {
    const button = e.target.closest && e.target.closest("button");
    const { section, value, collective } = button ? button.dataset : {};
    if (section !== undefined) goSection(+section);
    else if (value !== undefined) goValue(+value);
    else if (collective !== undefined) goCollective(+collective);
  });
  const find = one("#find");
  find.addEventListener("input", search);
  find.addEventListener("keydown", (e) => e.key === "Enter" && search().slice(0, 1).forEach((n) => { one("#found").hidden = true; goValue(n); }));
  document.addEventListener("keydown", (e) => {
    if (e.key === "Escape") { one("#found").hidden = true; document.activeElement.blur(); }
    if (e.target.tagName === "INPUT" || e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === "/") (e.preventDefault(), find.focus());
    if (e.key === "t") one("#theme").click();
  });
  addEventListener("hashchange", arrive);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) drawTimeline(1);
    width = innerWidth;
  });
}

function failed(error) {
  one("#problem").hidden = false;
  one("#problem").textContent = `This page could not be drawn whole (${error}); the tables are complete.`;
}

addEventListener("error", (e) => failed(e.message));
unpacked().then((found) => {
  data = found;
  root.dataset.ready = "drawing";
  listen();
  arrive();
  if (!one(".box.on", shown) && plan.sections.length) {
    chooseSection(plan.sections.reduce((best, s, n) => (s.sent_bytes > plan.sections[best].sent_bytes ? n : best), 0));
  }
  root.dataset.ready = "yes";
}).catch(failed);
