// Draws what /live tells: figures over two minutes, and the radix tree as boxes from left to right.
// Every text of a prompt is set as text, never as markup.

const SECONDS = 1; // between looks
const PATIENCE = 5; // seconds for an answer
const SPAN = 120; // looks in a strip
const HALF_LIFE = 15; // seconds in which an unused box loses half of its heat
const ROW = { most: 44, least: 19, text: 14, tall: 50 }; // pixels
const REST = 0.6; // rows of "+ 12 more"

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const find = (selector, within = document) => within.querySelector(selector);
const amount = (count, one, many = `${one}s`) => `${number.format(count)} ${count === 1 ? one : many}`;
const seenText = (text) => text.replace(/\s*\n\s*/g, " ↵ ").trim() || "(special)";

// --- figures ------------------------------------------------------------------------------------

class Strip {
  constructor(id, most = null) {
    this.card = find(`#${id}`);
    this.most = most; // the top of the chart; null: as high as its values
    this.values = [];
  }

  add(value, shown, note) {
    this.values = [...this.values, value].slice(-SPAN);
    find(".value", this.card).textContent = shown;
    find(".note", this.card).textContent = note;
    const top = this.most ?? Math.max(4, ...this.values) * 1.08;
    const first = SPAN - this.values.length;
    const points = this.values.flatMap((value, index) =>
      value === null ? [] : [[first + index, 39 - (38 * value) / top]]);
    const line = points.map(([x, y]) => `${x} ${y.toFixed(2)}`).join("L");
    find(".line", this.card).setAttribute("d", line ? `M${line}` : "");
    const ends = points.length ? [points[0][0], points.at(-1)[0]] : [];
    find(".area", this.card).setAttribute("d", line ? `M${ends[0]} 40L${line}L${ends[1]} 40Z` : "");
  }
}

const strips = {
  hits: new Strip("hit-rate", 100),
  speed: new Strip("speed"),
  batch: new Strip("batch"),
  queue: new Strip("queue"),
};
let looks = []; // the last few, for rates over some seconds

function grown(name, back) {
  const old = looks.at(-1 - Math.min(back, looks.length - 1));
  return Math.max(0, (looks.at(-1).counters[name] ?? 0) - (old.counters[name] ?? 0));
}

function seconds(back) {
  return looks.at(-1).time - looks.at(-1 - Math.min(back, looks.length - 1)).time;
}

function showFigures(told) {
  const { counters, load } = told;
  if (looks.length && (told.time < looks.at(-1).time || counters.calls < looks.at(-1).counters.calls))
    looks = []; // another server, or counters begun anew
  if (looks.length && told.time === looks.at(-1).time) return;
  looks = [...looks, told].slice(-11);

  const share = (found, asked) => (asked ? (100 * found) / asked : null);
  const lately = share(grown("cached_tokens", 10), grown("prompt_tokens", 10));
  const ever = share(counters.cached_tokens, counters.prompt_tokens);
  const shown = lately ?? ever;
  strips.hits.add(lately, shown === null ? "–" : number.format(shown),
    ever === null ? "no prompt yet" : `${number.format(ever)} % of ${amount(counters.prompt_tokens, "prompt token")}`);

  const name = "sampled_tokens" in counters ? "sampled_tokens" : "completion_tokens";
  const rate = (what, back) => (seconds(back) ? grown(what, back) / seconds(back) : null);
  const speed = rate(name, 2);
  strips.speed.add(speed, speed === null ? "–" : number.format(speed),
    `${number.format(rate("prompt_tokens", 10) ?? 0)} prompt tokens/s`);
  strips.batch.add(load.running ?? null, number.format(load.running ?? 0),
    load.batch ? `${number.format(load.batch)} in the last step` : "at rest");
  strips.queue.add(load.waiting ?? null, number.format(load.waiting ?? 0),
    amount(counters.calls ?? 0, "call") + " since the start");
}

function showSlots({ slots, free_slots: free, cached_slots: cached, locked_slots: locked }, counters) {
  const room = find("#slots");
  room.hidden = !slots;
  if (!slots) return;
  const parts = { used: slots - free - cached, held: locked, cached: cached - locked };
  for (const [name, count] of Object.entries(parts))
    find(`.${name}`, room).style.width = `${(100 * count) / slots}%`;
  const evicted = counters.evicted_tokens ? `, ${number.format(counters.evicted_tokens)} evicted so far` : "";
  find("p", room).textContent = `${number.format(parts.used + parts.held)} slots in use, `
    + `${number.format(parts.cached)} cached, ${number.format(free)} free of ${number.format(slots)}${evicted}`;
}

// --- programs -----------------------------------------------------------------------------------

const percent = (part, whole) => (whole ? `${number.format((100 * part) / whole)} %` : "–");

function programFigures(it) {
  const { right, early, late, never } = it.guesses;
  const wrong = early + late + never;
  return [
    number.format(it.programs),
    number.format(it.calls),
    number.format(it.prompt_tokens),
    `${number.format(it.cached_tokens)} (${percent(it.cached_tokens, it.prompt_tokens)})`,
    number.format(it.root_tokens),
    `${it.saved_seconds < 10 ? it.saved_seconds.toFixed(1) : number.format(it.saved_seconds)} s`,
    right + wrong ? `${number.format(wrong)} of ${number.format(right + wrong)}` : "–",
  ];
}

function showPrograms(kinds) {
  find("#programs").hidden = kinds.length === 0;
  const tenants = new Set(kinds.map((it) => it.tenant));
  find("#programs tbody").replaceChildren(...kinds.map((it) => {
    const [row, head] = [document.createElement("tr"), document.createElement("th")];
    head.scope = "row";
    head.textContent = it.kind || "(not named)";
    if (tenants.size > 1) head.textContent += ` (${spaceName(it.tenant ?? "")})`;
    row.append(head, ...programFigures(it).map((text) => {
      const cell = document.createElement("td");
      cell.textContent = text;
      return cell;
    }));
    return row;
  }));
}

// --- the tree -----------------------------------------------------------------------------------

const tree = { nodes: new Map(), boxes: new Map(), focus: null, near: null, size: 0 };

function plant(nodes) {
  tree.nodes = new Map(nodes.map((node) => [node.id, { ...node, start: node.end - node.tokens }]));
  if (!tree.nodes.has(tree.focus)) tree.focus = null;
}

function roots() {
  if (tree.focus !== null) return [tree.nodes.get(tree.focus)];
  return [...tree.nodes.values()].filter((node) => node.parent < 0 && node.children.length + node.hidden);
}

const childrenOf = (node) => node.children.map((id) => tree.nodes.get(id));

// Marks what is drawn: the liveliest boxes, parents before children, as many as `rows` have room for.
function choose(tops, rows) {
  const ranked = [];
  const waiting = [...tops];
  while (waiting.length) {
    const next = waiting.reduce((best, node) => (liveliness(node) > liveliness(best) ? node : best));
    waiting.splice(waiting.indexOf(next), 1);
    ranked.push(next);
    waiting.push(...childrenOf(next));
  }
  let [fits, tooMany] = [1, ranked.length + 1];
  while (tooMany - fits > 1) {
    const middle = (fits + tooMany) >> 1;
    if (rowsOf(ranked, middle, tops) <= rows) fits = middle;
    else tooMany = middle;
  }
  rowsOf(ranked, fits, tops);
}

function liveliness(node) {
  const stays = tree.boxes.has(node.id) ? 25 : 0; // what is in sight is not lightly taken away
  return stays + (node.sharers ? 1000 + node.sharers : heat(node) + 4 * Math.log2((1 + node.hits) * (1 + node.tokens)));
}

// Rows of a picture of the first `count` of the ranked nodes.
function rowsOf(ranked, count, tops) {
  ranked.forEach((node, rank) => { node.isDrawn = rank < count; });
  for (const node of ranked.slice(0, count).reverse()) {
    node.drawn = childrenOf(node).filter((child) => child.isDrawn);
    node.rest = node.hidden + node.children.length - node.drawn.length;
    const below = node.drawn.reduce((sum, child) => sum + child.rows, 0);
    node.rows = node.drawn.length ? below + (node.rest ? REST : 0) : 1;
    node.furthest = Math.max(node.end, ...node.drawn.map((child) => child.furthest));
  }
  return tops.reduce((sum, node) => sum + (node.isDrawn ? node.rows : 0), 0);
}

function spaceName(name) {
  const [who, ...part] = name.split("/");
  const told = who.startsWith("key-") ? `key ${who.slice(4, 10)}…` : who || "everybody";
  return part.join("/") ? `${told}, ${part.join("/")}` : told;
}

// Where each box is: rows are shared out from top to bottom, tokens go from left to right.
function layOut(width) {
  const above = find("#tree").getBoundingClientRect().top + scrollY;
  const room = Math.max(260, innerHeight - above - 165); // what is below it stays in sight
  choose(roots(), room / ROW.least);
  const tops = roots().filter((node) => node.isDrawn);
  const from = tree.focus === null ? 0 : tops[0].start;
  const to = Math.max(from + 1, ...tops.map((node) => node.furthest));
  const isNamed = tree.focus === null && (tops.length > 1 || tops.some((node) => node.namespace));
  const caption = isNamed ? 22 : 0;
  const rows = tops.reduce((sum, node) => sum + node.rows, 0);
  const row = Math.min(ROW.most, room / Math.max(1, rows));
  const margin = 64; // for "+ 12 more" at the very end
  const bar = tree.focus === null ? 8 : 0;
  const x = (tokens) => bar + ((width - bar - margin) * (tokens - from)) / (to - from);
  const places = new Map();
  const place = (node, top) => {
    places.set(node.id, node.parent < 0
      ? { left: 0, width: 5, top, height: node.rows * row }
      : { left: x(node.start), width: x(node.end) - x(node.start), top, height: node.rows * row });
    let at = top;
    for (const child of node.drawn) {
      place(child, at);
      at += child.rows * row;
    }
    if (node.rest && node.drawn.length)
      places.set(`rest ${node.id}`, { left: x(node.end), width: 90, top: at, height: row * REST });
  };
  let top = 0;
  for (const node of tops) {
    if (isNamed) places.set(`space ${node.id}`, { left: 0, width, top, height: 18 });
    place(node, top + caption - (isNamed ? 2 : 0));
    top += caption + node.rows * row;
  }
  return { places, height: top, from, to, x, row };
}

function drawTree() {
  const home = find("#tree");
  const plan = layOut(home.clientWidth);
  home.style.height = `${plan.height}px`;
  for (const [key, box] of tree.boxes)
    if (!plan.places.has(key)) {
      box.remove();
      tree.boxes.delete(key);
    }
  for (const [key, place] of plan.places) {
    const box = tree.boxes.get(key) ?? newBox(key, home);
    const gap = typeof key === "number" ? 2 : 0;
    for (const side of ["left", "top"]) box.style[side] = `${place[side].toFixed(1)}px`;
    box.style.width = `${Math.max(1.5, place.width - gap).toFixed(1)}px`;
    box.style.height = `${Math.max(1.5, place.height - gap).toFixed(1)}px`;
    fill(box, key, place);
  }
  drawAxis(plan);
}

function newBox(key, home) {
  const isNode = typeof key === "number";
  const box = document.createElement(isNode ? "button" : "div");
  box.className = isNode ? "node fresh" : key.split(" ")[0];
  if (isNode) {
    box.type = "button";
    box.dataset.id = key;
    box.append(document.createElement("span"), document.createElement("b"));
    box.lastChild.className = "badge";
    requestAnimationFrame(() => box.classList.remove("fresh"));
  }
  home.append(box);
  tree.boxes.set(key, box);
  return box;
}

function fill(box, key, { width, height }) {
  const node = tree.nodes.get(typeof key === "number" ? key : Number(key.split(" ")[1]));
  if (box.className === "rest") {
    box.textContent = `+ ${number.format(node.rest)} more`;
  } else if (box.className === "space") {
    box.textContent = spaceName(node.namespace);
  } else {
    const isTall = height >= ROW.tall && width > 110;
    const isShared = node.sharers > 1 && width > 36;
    box.classList.toggle("root", node.parent < 0);
    box.classList.toggle("tall", isTall);
    box.classList.toggle("thin", height < ROW.text || width < 14 || node.parent < 0);
    box.classList.toggle("slim", width < (isShared ? 76 : 30));
    box.classList.toggle("used", node.sharers > 0);
    box.style.setProperty("--heat", `${heat(node)}%`);
    box.firstChild.style.maxHeight = isTall ? `${Math.floor((height - 16) / 17) * 17}px` : ""; // whole lines
    box.firstChild.textContent = isTall ? node.text.trim() : seenText(node.text);
    box.lastChild.textContent = `×${number.format(node.sharers)}`;
    box.lastChild.hidden = !isShared;
    box.setAttribute("aria-label", `${seenText(node.text).slice(0, 80)}: ${facts(node).join(", ")}`);
  }
}

function heat(node) {
  if (node.sharers) return 100;
  return node.idle === null ? 0 : Math.round(60 * 2 ** (-node.idle / HALF_LIFE));
}

function drawAxis({ from, to, x }) {
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000];
  const step = steps.find((size) => (to - from) / size <= 8) ?? 100000;
  const marks = [];
  for (let at = Math.ceil(from / step) * step; at < to; at += step) {
    const mark = document.createElement("span");
    mark.style.left = `${x(at)}px`;
    mark.textContent = marks.length ? number.format(at) : amount(at, "token");
    marks.push(mark);
  }
  find("#axis").replaceChildren(...marks);
}

// --- one box, looked at closely -----------------------------------------------------------------

function lastUse(node) {
  if (node.idle === null) return "last used before this page was open";
  return `last used ${node.idle < 90 ? `${Math.round(node.idle)} s` : `${Math.round(node.idle / 60)} min`} ago`;
}

function facts(node) {
  const told = [`${amount(node.tokens, "token")}, ${number.format(node.start)} to ${number.format(node.end)}`];
  if (node.hits) told.push(`found again ${amount(node.hits, "time")}`);
  if (node.sharers) told.push(`held by ${amount(node.sharers, "call")} now`);
  else told.push(lastUse(node));
  const count = node.children.length + node.hidden;
  if (count) told.push(amount(count, "branch", "branches"));
  return told;
}

function showDetail() {
  const node = tree.nodes.get(tree.near);
  const isIdle = node === undefined || node.parent < 0;
  const drawn = [...tree.nodes.values()].filter((node) => node.isDrawn && node.parent >= 0).length;
  find("#detail").classList.toggle("idle", isIdle);
  find("#text").textContent = isIdle
    ? "Point at a box to read it; click it to look closer."
    : node.text;
  find("#facts").textContent = isIdle
    ? `${number.format(drawn)} of ${amount(Math.max(drawn, tree.size), "edge")} shown`
    : facts(node).join("\n");
}

function boxOf(event) {
  const box = event.target.closest?.(".node");
  return box ? Number(box.dataset.id) : null;
}

function look(id) {
  tree.focus = id;
  find("#whole").hidden = id === null;
  drawTree();
  showDetail();
}

for (const kind of ["pointerover", "focusin"])
  find("#tree").addEventListener(kind, (event) => {
    tree.near = boxOf(event) ?? tree.near;
    showDetail();
  });
find("#tree").addEventListener("click", (event) => {
  const id = boxOf(event);
  if (id !== null) look(id === tree.focus || tree.nodes.get(id).parent < 0 ? null : id);
});
find("#whole").addEventListener("click", () => look(null));
addEventListener("keydown", (event) => event.key === "Escape" && look(null));
addEventListener("resize", () => drawTree());

// --- looking ------------------------------------------------------------------------------------

const KEY = "forkroot admin key";

function showState(state, text) {
  document.body.className = state;
  find("#state").textContent = text;
}

function showTree(told) {
  plant(told.nodes ?? []);
  tree.size = told.load.nodes ?? 0;
  const isEmpty = told.nodes !== null && roots().length === 0;
  find("#empty").hidden = !isEmpty;
  find("#treeless").hidden = told.nodes !== null;
  for (const id of ["axis", "tree", "detail"]) find(`#${id}`).hidden = isEmpty || told.nodes === null;
  find("#whole").hidden = tree.focus === null;
  const key = sessionStorage.getItem(KEY) ? " -H 'Authorization: Bearer KEY'" : "";
  find("#curl").textContent = `curl ${location.origin}/v1/chat/completions${key} -H 'Content-Type: application/json' \\\n`
    + `  -d '{"model": ${JSON.stringify(told.model)}, "messages": [{"role": "user", "content": "Hello"}]}'`;
  drawTree();
  showDetail();
}

function show(told) {
  find("#key").hidden = true;
  find("#model").textContent = told.model;
  document.title = `forkroot: ${told.model}`;
  showState("live", "live");
  showFigures(told);
  showSlots(told.load, told.counters);
  showTree(told);
  showPrograms(told.programs ?? []);
}

function askForKey(isWrong) {
  sessionStorage.removeItem(KEY);
  if (!find("#key").hidden) return;
  for (const id of ["axis", "tree", "detail", "empty", "treeless", "slots", "programs"]) find(`#${id}`).hidden = true;
  find("#key").hidden = false;
  showState("locked", isWrong ? "this is not an admin key" : "needs a key");
}

async function ask() {
  const key = sessionStorage.getItem(KEY);
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  let response, told;
  try {
    response = await fetch("live", { headers, signal: AbortSignal.timeout(PATIENCE * 1000) });
    told = await response.json();
  } catch {
    return showState("gone", "the server does not answer; retrying");
  }
  if (response.status === 401 || response.status === 403) return askForKey(key !== null);
  if (!response.ok) return showState("gone", told.error?.message ?? `status ${response.status}`);
  show(told);
}

find("#key").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, find("#secret").value.trim());
  find("#secret").value = "";
  find("#key").hidden = true;
  ask();
});

async function watch() {
  try {
    if (!document.hidden && find("#key").hidden) await ask();
  } finally {
    setTimeout(watch, SECONDS * 1000);
  }
}

watch();
