"use strict";
// Everything that comes from the cluster is set as text, never as markup: names of topics are data.
const POLL_MS = 2000, ROWS = 50;
const $ = id => document.getElementById(id);
const view = {
  page: "cluster", name: "", text: "", state: "user", broker: -1, offset: 0, topics_text: "", topics_internal: 0,
  topics_offset: 0, partitions_offset: 0, groups_text: "", groups_offset: 0, subjects_text: "", subjects_offset: 0, ids_text: "", security_text: "",
};
const DEFAULTS = {...view};
//: Name of a page -> {title, parent, load: its data, draw: shows them, every: ms}.
const PAGES = {};
const me = {token: "", can: {}, may_act: false};
const opened = new Set();
const number = new Intl.NumberFormat("en");

function el(tag, text, cls) {
  const node = document.createElement(tag);
  if (text !== undefined && text !== null) node.textContent = text;
  if (cls) node.className = cls;
  return node;
}
function size(bytes) {
  if (bytes < 0) return "–";
  let unit = 0, value = bytes;
  while (value >= 1000 && unit < 4) { value /= 1000; unit++; }
  return (unit ? value.toFixed(1) : value) + " " + ["B", "kB", "MB", "GB", "TB"][unit];
}
function span(seconds) {
  if (seconds < 0) return "–";
  if (seconds < 60) return Math.round(seconds) + " s";
  if (seconds >= 600 && seconds < 3600) return Math.round(seconds / 60) + " min";
  if (seconds < 600) return Math.floor(seconds / 60) + " min " + Math.floor(seconds % 60) + " s";
  if (seconds < 172800) return Math.floor(seconds / 3600) + " h " + Math.floor(seconds % 3600 / 60) + " min";
  return Math.floor(seconds / 86400) + " days";
}
const count = value => value === undefined || value === null || value < 0 ? "–" : number.format(value);
const amount = (value, word) => count(value) + " " + word + (value === 1 ? "" : "s");
const two = value => String(value).padStart(2, "0");
const day = at => at.getFullYear() + "-" + two(at.getMonth() + 1) + "-" + two(at.getDate());
const clock = at => two(at.getHours()) + ":" + two(at.getMinutes()) + ":" + two(at.getSeconds());
// In the browser's time zone, the same in every language: 11/10/26 is two different days.
function time(ms) { const at = new Date(ms); return ms < 0 ? "–" : isNaN(at) ? ms + " ms" : day(at) + " " + clock(at); }  // a record's time may be any number
function meter(share, text) {
  const cell = el("span"), bar = el("span", null, "meter"), fill = el("i");
  fill.style.width = Math.max(0, Math.min(100, share)) + "%";
  bar.append(fill);
  cell.append(bar, text);
  return cell;
}
const drawn = new WeakMap();
// columns: [title, class, row => text | Node | [text, class]]
function table(id, columns, rows, empty) {
  const body = el("tbody"), head = el("tr");
  for (const [title, cls] of columns) { const cell = el("th", title, cls); cell.scope = "col"; head.append(cell); }
  for (const row of rows) {
    const line = el("tr");
    for (const [, cls, of] of columns) {
      const value = of(row), cell = el("td", null, cls);
      if (value instanceof Node) cell.append(value);
      else if (Array.isArray(value)) { cell.textContent = value[0]; cell.className = cls + " " + value[1]; }
      else cell.textContent = value;
      if (/\b(name|short)\b/.test(cls)) cell.title = cell.textContent;  // it may be cut
      line.append(cell);
    }
    body.append(line);
  }
  if (!rows.length) { const line = el("tr"), cell = el("td", empty, "dim"); cell.colSpan = columns.length; line.append(cell); body.append(line); }
  const top = el("thead");
  top.append(head);
  const box = typeof id === "string" ? $(id) : id;
  // A table that is the same is left alone: what a user has focused or marked in it stays so. So is one in which a button is pressed:
  // the click would go to a button that is no longer there.
  const made = el("table");
  made.append(top, body);
  const html = made.innerHTML;
  if (drawn.get(box) === html && box.contains(document.activeElement) || pressed && box.contains(pressed)) return;
  drawn.set(box, html);
  const focused = place(box, document.activeElement);
  box.replaceChildren(top, body);
  if (focused) inPlace(box, focused)?.focus({preventScroll: true});
}
// Where something stands in a table: by the text of its row's first cell (which of several such rows), and its number in the row.
const FOCUSED = "a, button, summary";
const rowsLike = (box, first) => [...box.querySelectorAll("tbody tr")].filter(row => row.firstChild.textContent === first);
function place(box, node) {
  const row = box.contains(node) && node.closest("tbody tr");
  if (!row) return null;
  const first = row.firstChild.textContent;
  return {first, nth: rowsLike(box, first).indexOf(row), at: [...row.querySelectorAll(FOCUSED)].indexOf(node), text: node.textContent};
}
// The same again, or undefined.
function inPlace(box, {first, nth, at, text}) {
  const found = rowsLike(box, first)[nth]?.querySelectorAll(FOCUSED)[at];
  return found && found.textContent === text ? found : undefined;
}
let pressed = null;
addEventListener("pointerdown", event => { pressed = event.target; }, true);
// The click comes before the timer.
for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => setTimeout(() => { pressed = null; }), true);
function tile(title, value, cls) {
  const box = el("div", null, "tile");
  box.append(el("b", value, cls || ""), el("span", title, "dim"));
  return box;
}
function link(text, act) {
  const button = el("button", text, "link");
  button.type = "button";
  button.addEventListener("click", act);
  return button;
}
// To the console of another node, at the address that it advertises.
function elsewhere(text, url) {
  const anchor = el("a", text);
  anchor.href = url;
  anchor.rel = "noreferrer";
  return anchor;
}
function button(text, act, cls) {
  const made = el("button", text, cls);
  made.type = "button";
  made.addEventListener("click", act);
  return made;
}
// A small plot: the last value in words, the course of it as a line.
function plot(title, values, format, interval_ms) {
  const SVG = "http://www.w3.org/2000/svg", box = el("div", null, "plot card");
  const last = values.length ? values[values.length - 1] : 0, most = Math.max(1, ...values);
  const most_said = values.length ? "at most " + format(Math.max(0, ...values)) : "not measured yet";
  box.append(el("span", title, "dim"), " ", el("b", values.length ? format(last) : "–"));
  const picture = document.createElementNS(SVG, "svg");
  picture.setAttribute("viewBox", "0 0 180 40");
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("role", "img");
  const shown = values.length > 1 ? values : [last, last], step = 180 / (shown.length - 1);
  const points = shown.map((value, at) => (at * step).toFixed(1) + "," + (38 - 36 * value / most).toFixed(1)).join(" ");
  picture.setAttribute("aria-label", title + ": " + most_said + " in " + span(shown.length * (interval_ms || 0) / 1000));
  const area = document.createElementNS(SVG, "polygon"), line = document.createElementNS(SVG, "polyline");
  area.setAttribute("points", "0,40 " + points + " 180,40");
  line.setAttribute("points", points);
  picture.append(area, line);
  box.append(picture, el("span", most_said + (values.length && interval_ms ? " in " + span(shown.length * interval_ms / 1000) : ""), "dim"));
  return box;
}
const perSecond = bytes => size(bytes) + "/s", each_s = value => count(value) + "/s";
function since(at, now) { return at ? "for " + span(Math.max(0, now - at) / 1000) : ""; }
function eventTime(at, now) {
  const [then, today] = [new Date(at), new Date(now)];
  return day(then) === day(today) ? clock(then) : time(at);
}
function pager(name, offset, shown, matched, total) {
  const text = !matched ? "none of " + count(total) : count(offset + 1) + "–" + count(offset + shown) + " of " + count(matched) + (matched < total ? " (" + count(total) + " in all)" : "");
  $(name + "-note").textContent = text;
  $(name + "-back").disabled = offset <= 0;
  $(name + "-next").disabled = offset + shown >= matched;
}

// Not relative to the page's own URL: with a name and password in it a browser refuses that. They are sent all the same.
const beside = path => new URL(path, location.origin + location.pathname);
async function reason(answer) {
  const text = await answer.text();
  try { return JSON.parse(text).error || text; } catch (_) { return text; }
}
async function get(path, query) {
  const answer = await fetch(beside(path + "?" + new URLSearchParams(query || {})), {cache: "no-store"});
  if (!answer.ok) throw new Error(await reason(answer));
  return answer.json();
}
// Actions that have no answer yet. What a page shows may be gone before they have one.
let acting = 0;
async function act(action, values) {
  if (!me.token) await whoami();
  acting += 1;
  try {
    const answer = await fetch(beside("api/console/do"), {
      method: "POST", cache: "no-store", headers: {"content-type": "application/json", "x-kafkalite-token": me.token},
      body: JSON.stringify({action, ...values}),
    });
    if (!answer.ok) { const why = await reason(answer); if (answer.status === 403) me.token = ""; throw new Error(why); }
    return await answer.json();
  } finally { acting -= 1; }
}
async function whoami() {
  const found = await get("api/console/me");
  Object.assign(me, found);
  $("who").textContent = found.principal === "User:ANONYMOUS" ? "" : found.principal;
  $("title").textContent = "kafkalite node " + found.broker_id;
  if (!$("cluster").textContent) $("cluster").textContent = "cluster " + found.cluster_id;
  $("elect-all").hidden = !me.may_act || !me.can.elect;
}

let silence = 0;
function say(text, cls) {
  clearTimeout(silence);
  $("said").textContent = text;
  $("said").className = cls || "";
  $("said").hidden = false;
  silence = setTimeout(() => { $("said").hidden = true; }, 8000);
}
// One dialog for every change. fields: {name, label, type, value, options, hint}; confirm: a name that must be typed;
// preview: values => Node, shown first; run: values => text.
function ask({title, fields, confirm, label, isDanger, preview, run}) {
  const box = $("ask-fields"), inputs = new Map();
  $("ask-title").textContent = title;
  $("ask-error").textContent = "";
  $("ask-preview").replaceChildren();
  box.replaceChildren();
  for (const field of [...fields, ...(confirm ? [{name: "confirm", label: "type " + confirm + " to confirm"}] : [])]) {
    const row = el("label"), input = el(field.options ? "select" : field.type === "lines" ? "textarea" : "input");
    for (const [value, text] of field.options || []) { const option = el("option", text); option.value = value; input.append(option); }
    if (!field.options && field.type !== "lines") input.type = field.type || "text";
    if (field.value !== undefined) input.value = field.value;
    input.name = field.name;
    input.autocomplete = "off";
    if (field.hint) input.placeholder = field.hint;
    row.append(el("span", field.label), input);
    box.append(row);
    inputs.set(field.name, input);
  }
  const go = $("ask-do");
  let previewed = !preview;
  const settle = () => {
    go.textContent = previewed ? label : "show";
    go.className = previewed && isDanger ? "danger" : "main";
    go.disabled = Boolean(confirm) && inputs.get("confirm").value !== confirm;
  };
  box.oninput = () => { if (preview) { previewed = false; $("ask-preview").replaceChildren(); } settle(); };
  settle();
  $("ask-form").onsubmit = async event => {
    event.preventDefault();
    const values = Object.fromEntries([...inputs].map(([name, input]) => [name, input.value]));
    go.disabled = true;
    $("ask-error").textContent = "";
    try {
      if (!previewed) { $("ask-preview").replaceChildren(await preview(values)); previewed = true; }
      else { say(await run(values)); $("ask").close(); poll(); }
    } catch (error) { $("ask-error").textContent = error.message; }
    settle();
  };
  $("ask").showModal();
  const first = inputs.values().next().value;
  if (first) first.focus();
}
