// The cluster: problems, moves, brokers, disks, partitions.
function problemRow(problem, now) {
  const row = el("div", null, "problem"), head = el("div");
  head.append(el("b", problem.what, "bad"), el("span", " " + [problem.total > 1 ? count(problem.total) + " times" : "", since(problem.since_ms, now)].filter(Boolean).join(", "), "dim"));
  row.append(head);
  const cases = problem.cases.map(c => el("li", c.detail + (problem.total > 1 && c.since_ms ? " (" + since(c.since_ms, now) + ")" : "")));
  const list = el("ul");
  list.append(...cases.slice(0, 3));
  row.append(list);
  if (cases.length > 3) {
    const more = el("details"), rest = el("ul");
    more.open = opened.has(problem.what);
    more.addEventListener("toggle", () => more.open ? opened.add(problem.what) : opened.delete(problem.what));
    rest.append(...cases.slice(3));
    if (problem.total > cases.length) rest.append(el("li", "and " + count(problem.total - cases.length) + " more", "dim"));
    more.append(el("summary", "more", "dim"), rest);
    row.append(more);
  }
  if (problem.doing) row.append(el("p", "The cluster: " + problem.doing + "."));
  if (problem.do) row.append(el("p", "You: " + problem.do + "."));
  return row;
}
function brokerState(b, controller) {
  const words = [b.error || "alive"];
  if (!b.error && b.broker_id === controller) words.push("controller");
  if (b.broker_state === "drained") words.push("drained: it may be stopped");
  else if (b.broker_state && b.broker_state !== "active") words.push(b.broker_state);
  return [words.join(", "), b.error ? "bad" : words.length > 1 && b.broker_state !== "active" ? "warn" : "ok"];
}
function brokerButtons(b) {
  if (!me.may_act || !me.can.brokers) return "";
  const set = state => values => act("broker.state", {broker: b.broker_id, state, ...values}).then(done => done.text);
  const box = el("span"), name = "broker " + b.broker_id;
  if (b.broker_state && b.broker_state !== "active") {
    box.append(link("take replicas again", () => ask({title: "Let " + name + " take replicas again", fields: [], label: "uncordon", run: set("active")})));
    return box;
  }
  box.append(link("cordon", () => ask({title: "Give " + name + " no new replicas", fields: [], label: "cordon", run: set("cordoned")})), " ",
    link("decommission", () => ask({title: "Move all replicas away from " + name, fields: [], confirm: String(b.broker_id), label: "decommission", isDanger: true, run: set("draining")})));
  return box;
}
// How long one request has kept the node's event loop from all others in the last minutes; the request is in the tooltip.
function longestTurn(b) {
  if (b.error) return "–";
  if (!b.longest_turn_ms) return "< 20 ms";
  const shown = el("span", b.longest_turn_ms + " ms", "warn");
  shown.title = b.longest_turn;
  return shown;
}
let rates = null;
const rate = (b, kind) => rates && rates.brokers[b.broker_id] ? perSecond(rates.brokers[b.broker_id][kind]) : "–";
function drawCluster(s) {
  $("title").textContent = "kafkalite node " + s.broker_id;
  $("cluster").textContent = "cluster " + s.cluster_id + " · " + (s.controller_id < 0 ? "no controller" : "controller is node " + s.controller_id + ", epoch " + s.controller_epoch);
  const live = $("live");
  live.textContent = s.is_live ? "● live" : "● no lease from ZooKeeper";
  live.className = s.is_live ? "ok" : "bad";
  const alive = s.brokers.filter(b => !b.error).length;
  $("tiles").replaceChildren(
    tile("brokers answer", alive + " of " + s.brokers.length, alive < s.brokers.length ? "bad" : "ok"),
    tile("topics", count(s.topics_total)), tile("partitions", count(s.partitions_total)),
    tile("offline", count(s.partitions_offline), s.partitions_offline ? "bad" : "ok"),
    tile("not all in sync", count(s.partitions_troubled), s.partitions_troubled ? "warn" : "ok"),
    tile("moves", count(s.moves_total)));
  const box = $("problems");
  if (s.problems.length) box.replaceChildren(...s.problems.map(p => problemRow(p, s.at_ms)));
  else box.replaceChildren(el("span", "Nothing is wrong that any node can see.", "ok"));
  $("moves-card").hidden = !s.moves_total;
  $("moves-note").textContent = s.moves.length < s.moves_total ? s.moves.length + " of " + count(s.moves_total) : "";
  table("moves", [
    ["partition", "name", m => link(m.topic + "-" + m.partition, () => why(m.topic, m.partition))],
    ["from → to", "", m => m.replicas.join(" ") + " → " + m.target.join(" ")],
    ["state", "wide", m => m.is_under_way ? "under way" : "waits"],
    ["copied", "", m => meter(m.total_bytes ? 100 * m.done_bytes / m.total_bytes : 0, size(m.done_bytes) + " of " + size(m.total_bytes))],
    ["rate", "n wide", m => size(m.bytes_per_s) + "/s"], ["left", "n", m => span(m.eta_s)],
    ["", "n", m => me.may_act && me.can.move ? link("call off", () => callOff(m)) : ""]], s.moves, "none");
  table("brokers", [
    ["id", "n", b => b.http ? elsewhere(String(b.broker_id), b.http) : String(b.broker_id)],
    ["state", "wrap tight", b => brokerState(b, s.controller_id)],
    ["Kafka", "wide", b => b.kafka || "–"], ["RPC", "wide", b => b.rpc || "–"], ["rack", "short wide", b => b.rack || "–"], ["version", "short wide", b => b.release || "–"],
    ["leads", "n", b => count(b.leaders)], ["replicas", "n", b => count(b.replicas)],
    ["not in sync", "n", b => b.out_of_sync ? [count(b.out_of_sync), "warn"] : "0"],
    ["longest turn", "n wide", longestTurn], ["in", "n", b => rate(b, "bytes_in")], ["out", "n", b => rate(b, "bytes_out")],
    ["", "n", b => brokerButtons(b)]], s.brokers, "no broker is known");
  const disks = s.brokers.flatMap(b => b.disks.map(d => ({...d, broker: b.broker_id})));
  table("disks", [
    ["broker", "n", d => String(d.broker)], ["directory", "name", d => d.path],
    ["state", "", d => [d.state + (d.reason ? ": " + d.reason : ""), d.state === "online" ? "ok" : "bad"]],
    ["used", "", d => d.total_bytes > 0 ? meter(100 - 100 * d.free_bytes / d.total_bytes, size(d.free_bytes) + " free") : "–"],
    ["logs", "n", d => size(d.size_bytes)], ["replicas", "n", d => count(d.partitions)]], disks, "no disk is known");
  table("partitions", [
    ["partition", "name", p => link(p.topic + "-" + p.partition, () => why(p.topic, p.partition))],
    ["leader", "n", p => p.leader < 0 ? ["none", "bad"] : String(p.leader)], ["epoch", "n wide", p => String(p.leader_epoch)],
    ["in sync", "", p => p.isr.length < p.replicas.length ? [p.isr.join(" "), "warn"] : p.isr.join(" ")],
    ["replicas", "", p => p.replicas.join(" ") + (p.adding_replicas.length ? " (+" + p.adding_replicas.join(" +") + ")" : "")],
    ["high watermark", "n", p => count(p.high_watermark)], ["log end", "n", p => count(p.log_end_offset)],
    ["lag", "n", p => count(p.lag)], ["size", "n wide", p => size(p.size_bytes)]],
    s.partitions, "no partition fits");
  pager("partitions", view.offset, s.partitions.length, s.partitions_matched, s.partitions_total);
  const ids = s.brokers.map(b => b.broker_id).join();
  if ($("broker").dataset.ids !== ids) {
    $("broker").dataset.ids = ids;
    $("broker").replaceChildren(...[[-1, "any broker"], ...s.brokers.map(b => [b.broker_id, "broker " + b.broker_id])].map(([id, text]) => { const o = el("option", text); o.value = id; return o; }));
    $("broker").value = String(view.broker);
  }
  if (!s.partitions.length && view.offset) show({offset: 0});
  if (rates) $("cluster-plots").replaceChildren(
    plot("written", rates.cluster.bytes_in, perSecond, rates.interval_ms), plot("read", rates.cluster.bytes_out, perSecond, rates.interval_ms),
    plot("records written", rates.cluster.messages_in, each_s, rates.interval_ms), plot("records read", rates.cluster.messages_out, each_s, rates.interval_ms));
}

async function why(topic, partition) {
  $("why-title").textContent = topic + "-" + partition;
  $("why-body").replaceChildren(el("p", "asking every node…", "dim"));
  if (!$("why").open) $("why").showModal();
  const answer = await fetch(beside("api/why?" + new URLSearchParams({topic, partition})), {cache: "no-store"});
  if (!answer.ok) { $("why-body").replaceChildren(el("p", await answer.text(), "bad")); return; }
  const d = await answer.json(), body = [];
  body.push(el("p", (d.leader < 0 ? "no leader" : "leader " + d.leader) + ", epoch " + d.leader_epoch + ", in sync " + d.isr.join(" ") + " of " + d.replicas.join(" ")));
  if (d.findings.length) body.push(...d.findings.map(f => problemRow({...f, total: 1, cases: [f]}, d.at_ms)));
  else body.push(el("p", "Nothing is wrong with it.", "ok"));
  for (const line of d.progress) body.push(el("p", line, "dim"));
  const list = el("table"), rows = el("tbody");
  for (const [node, e] of d.events) {
    const row = el("tr");
    row.append(el("td", eventTime(e.at_ms, d.at_ms)), el("td", "broker " + node), el("td", e.what), el("td", e.detail + (e.is_earlier ? " (before its restart)" : ""), "wrap"));
    rows.append(row);
  }
  list.append(rows);
  const box = el("div", null, "scroll");
  box.append(list);
  body.push(el("h2", d.events.length ? "What led there" : "No events are remembered"), box);
  $("why-body").replaceChildren(...body);
  document.body.dataset.why = topic + "-" + partition;
}

function callOff(m) {
  ask({title: "Call off the move of " + m.topic + "-" + m.partition, fields: [], label: "call off", isDanger: true,
    run: async () => (await act("move.cancel", {topic: m.topic, partition: m.partition})).text});
}
let ratesAt = 0;
PAGES.cluster = {
  title: "Cluster", every: POLL_MS,
  load: async () => {
    const query = {text: view.text, state: view.state, broker_id: view.broker, offset: view.offset, limit: ROWS, topics_limit: 0};
    if (Date.now() - ratesAt > 9000) {
      ratesAt = Date.now();
      try { rates = await get("api/console/rates"); } catch (_) { rates = null; }
    }
    return get("api/status", query);
  },
  draw: drawCluster,
};
$("elect-all").addEventListener("click", () => ask({title: "Elect the preferred leaders of all partitions", fields: [], label: "elect",
  run: async () => (await act("leaders.elect", {})).text}));
