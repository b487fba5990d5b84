// The message browser.
const KEPT_RECORDS = 200;
let reading = 0, lastRead = {}, newest = "", isFollowing = false;
function partitionChoices(total) {
  const box = $("m-partition");
  if (Number(box.dataset.total) === total && box.dataset.topic === view.name) return;
  box.dataset.total = total;
  box.dataset.topic = view.name;
  const numbers = [...Array(Math.min(total, 1000)).keys()];
  box.replaceChildren(...[[-1, "all partitions"], ...numbers.map(n => [n, "partition " + n])].map(([value, text]) => { const o = el("option", text); o.value = value; return o; }));
}
function messageQuery() {
  const from = $("m-from").value, query = {topic: view.name, partition: $("m-partition").value, from, limit: 25, text: $("m-text").value, key: $("m-key").value, header: $("m-header").value};
  if (from === "offset") query.at = whole($("m-at").value || "0");
  if (from === "time") query.at = $("m-time").value ? new Date($("m-time").value).getTime() : 0;
  return query;
}
async function readMessages(more) {
  const mine = ++reading;
  newest = "";
  $("m-note").textContent = "reading…";
  try {
    const query = more.from ? {...lastRead, ...more} : messageQuery();
    if (!more.from) lastRead = query;
    if (query.from !== "end") $("m-follow").checked = false;
    const d = await get("api/console/messages", query);
    if (mine !== reading || d.topic !== view.name) return;
    drawRecords(d, query);
    if (query.from === "end") newest = d.next;
  } catch (error) {
    if (mine === reading) { $("m-note").textContent = ""; $("records").replaceChildren(el("p", error.message, "bad")); }
  }
}
function drawRecords(d, query) {
  const errors = Object.entries(d.errors).map(([key, text]) => el("p", key + ": " + text, "bad"));
  if (d.partitions_left_out) errors.push(el("p", "the topic has more partitions than are read at once: choose one to see the other " + d.partitions_left_out, "warn"));
  const rows = d.records.map(record => recordRow(d.topic, record));
  $("records").replaceChildren(...errors, ...(rows.length ? rows : [el("p", d.scanned ? "none of " + amount(d.scanned, "record") + " fits" : "no records here", "dim")]));
  $("m-note").textContent = count(d.records.length) + " of " + amount(d.scanned, "record") + " read";
  const isTail = query.from === "end" || query.from === "before";
  $("m-before").hidden = !isTail || (!d.records.length && !d.scanned);
  $("m-next").hidden = isTail || d.is_end;
  $("m-before").onclick = () => readMessages({from: "before", places: d.before});
  $("m-next").onclick = () => readMessages({from: "next", places: d.next});
  document.body.dataset.read = String(Number(document.body.dataset.read || 0) + 1);
}
// What has arrived since then, above the rest. Called whenever the page is drawn, so a page that is hidden does not ask.
async function followRecords() {
  if (!$("m-follow").checked || !newest || isFollowing) return;
  const mine = reading;
  isFollowing = true;
  try {
    const d = await get("api/console/messages", {...lastRead, from: "next", places: newest, limit: 100});
    if (mine !== reading || d.topic !== view.name || !$("m-follow").checked) return;
    if (!d.is_end) { readMessages({}); return; }  // more arrives than anybody reads: the newest again
    newest = d.next;
    const box = $("records");
    if (d.records.length && !box.querySelector(".record")) box.replaceChildren();
    box.prepend(...d.records.map(record => recordRow(d.topic, record)).reverse());
    while (box.children.length > KEPT_RECORDS) box.lastChild.remove();
    $("m-note").textContent = "following, " + amount(box.querySelectorAll(".record").length, "record") + " shown";
  } catch (error) { if (mine === reading) $("m-note").textContent = error.message; }
  finally { isFollowing = false; }
}
const brief = value => value === null ? "null" : value.text !== undefined ? value.text : value.hex;
// JSON on several lines, its numbers and texts exactly as they are: only the space between them is ours. What is nested deeper is indented no further:
// a record of brackets only would become gigabytes.
const MOST_INDENTED = 20;
function pretty(text) {
  if (!/^\s*[[{]/.test(text)) return text;
  try { JSON.parse(text); } catch (_) { return text; }
  const out = [], line = () => "\n" + "  ".repeat(Math.min(depth, MOST_INDENTED));
  let depth = 0, before = "";
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    const opened = before === "{" || before === "[", closes = token === "}" || token === "]";
    if (closes) depth--;
    if (before === "," || opened !== closes) out.push(line());
    if (token === "{" || token === "[") depth++;
    out.push(token === ":" ? ": " : token);
    before = token;
  }
  return out.join("");
}
function valueBox(title, value) {
  const box = el("div");
  box.append(el("span", title + (value === null ? ": null" : ", " + size(value.size) + (value.text === undefined ? ", not UTF-8" : "") + (value.is_cut ? ", cut" : "")), "dim"));
  if (value !== null) box.append(el("pre", value.text !== undefined ? pretty(value.text) : value.hex));
  return box;
}
function recordRow(topic, record) {
  const row = el("details", null, "record"), head = el("summary");
  head.append(el("span", record.partition + ":" + record.offset, "place"), el("span", time(record.timestamp), "place dim"),
    el("span", brief(record.key), "key"), el("span", brief(record.value).slice(0, 400), record.value === null ? "value dim" : "value"));
  row.append(head);
  row.addEventListener("toggle", () => { if (row.open && row.children.length === 1) openRecord(row, topic, record); });
  return row;
}
async function openRecord(row, topic, record) {
  const parts = el("div");
  row.append(parts);
  const draw = r => parts.replaceChildren(
    el("p", "partition " + r.partition + ", offset " + count(r.offset) + ", " + (isNaN(new Date(r.timestamp)) ? r.timestamp + " ms" : new Date(r.timestamp).toISOString()), "dim"),
    valueBox("key", r.key), valueBox("value", r.value), ...r.headers.map(([name, value]) => valueBox("header " + name, value)));
  draw(record);
  if ([record.key, record.value].some(value => value && value.is_cut)) {
    const found = await get("api/console/messages", {topic, partition: record.partition, from: "offset", at: record.offset, limit: 1, full: 1});
    if (found.records.length && found.records[0].offset === record.offset) draw(found.records[0]);
  }
}
const headersOf = text => text.split("\n").filter(line => line.trim()).map(line => {
  const at = line.indexOf("=");
  if (at < 1) throw new Error(line + " is not NAME=VALUE");
  return [line.slice(0, at).trim(), line.slice(at + 1)];
});
$("m-send").addEventListener("click", () => {
  const topic = view.name;
  ask({title: "Send a record to " + topic, label: "send", fields: [
      {name: "record", label: "value", type: "lines", hint: '{"id": 1}'}, {name: "key", label: "key (empty: none)"},
      {name: "headers", label: "headers, one NAME=VALUE per line", type: "lines"},
      {name: "partition", label: "partition (-1: by the key)", value: "-1", type: "number"},
      {name: "kind", label: "", options: [["value", "with this value"], ["tombstone", "a tombstone: no value (null), for this key"]]}],
    run: async v => {
      if (v.kind === "tombstone" && v.record) throw new Error("a tombstone has no value");
      const done = await act("record.send", {topic, record: v.kind === "tombstone" ? null : v.record, key: v.key === "" ? null : v.key, headers: headersOf(v.headers), partition: whole(v.partition)});
      if (view.name === topic) readMessages({});
      return done.text;
    }});
});
$("m-read").addEventListener("click", () => readMessages({}));
$("m-follow").addEventListener("change", () => {
  if (!$("m-follow").checked) return;
  $("m-from").value = "end";
  $("m-from").dispatchEvent(new Event("change"));
  readMessages({});
});
$("m-from").addEventListener("change", () => { $("m-at").hidden = $("m-from").value !== "offset"; $("m-time").hidden = $("m-from").value !== "time"; });
for (const id of ["m-text", "m-key", "m-header", "m-at"]) $(id).addEventListener("keydown", event => { if (event.key === "Enter") readMessages({}); });
