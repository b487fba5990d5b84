// Topics: the list, and one topic with its partitions and settings.
function openTopic(name) { show({page: "topic", name, partitions_offset: 0}); }
const settings = text => Object.fromEntries(text.split("\n").map(line => line.trim()).filter(Boolean).map(line => {
  const at = line.indexOf("=");
  if (at < 1) throw new Error(line + " is not KEY=VALUE");
  return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
}));
const whole = text => { const value = Number(text); if (!Number.isInteger(value) || text.trim() === "") throw new Error((text || "nothing") + " is not a whole number"); return value; };

PAGES.topics = {
  title: "Topics", every: 3000,
  load: () => get("api/console/topics", {text: view.topics_text, internal: view.topics_internal, offset: view.topics_offset, limit: 25}),
  draw: d => {
    table("topics", [
      ["topic", "name", t => link(t.topic, () => openTopic(t.topic))],
      ["partitions", "n", t => count(t.partitions)], ["replicas", "n", t => String(t.replication_factor)],
      ["offline", "n wide", t => t.offline ? [count(t.offline), "bad"] : "0"],
      ["not in sync", "n wide", t => t.troubled ? [count(t.troubled), "warn"] : "0"],
      ["records", "n", t => count(t.records)], ["size", "n", t => size(t.size_bytes)],
      ["in", "n", t => perSecond(t.bytes_in)], ["out", "n", t => perSecond(t.bytes_out)],
      ["records in", "n wide", t => each_s(t.messages_in)]], d.topics, "no topic fits");
    pager("topics", d.offset, d.topics.length, d.matched, d.matched);
    $("topics-internal-count").textContent = d.internal ? "(" + d.internal + ")" : "";
    $("topic-create").hidden = !me.may_act;
    if (!d.topics.length && view.topics_offset) show({topics_offset: 0});
  },
};
$("topic-create").addEventListener("click", () => ask({
  title: "Create a topic", label: "create",
  fields: [
    {name: "topic", label: "name"}, {name: "partitions", label: "partitions", value: "3", type: "number"},
    {name: "replicas", label: "replicas (-1: the brokers' default)", value: "-1", type: "number"},
    {name: "settings", label: "settings, one KEY=VALUE per line", type: "lines", hint: "min.insync.replicas=2"}],
  run: async v => {
    const done = await act("topic.create", {topic: v.topic.trim(), partitions: whole(v.partitions), replication_factor: whole(v.replicas), settings: settings(v.settings)});
    openTopic(v.topic.trim());
    return done.text;
  },
}));

let topicShown = null;
PAGES.topic = {
  title: "Topic", parent: "topics", every: 3000,
  load: () => get("api/console/topic", {topic: view.name, offset: view.partitions_offset}),
  draw: d => {
    const isNew = topicShown === null || topicShown.topic !== d.topic;
    topicShown = d;
    $("topic-title").textContent = d.topic;
    const records = d.partitions.reduce((sum, p) => sum + Math.max(0, p.end - p.start), 0);
    $("topic-note").textContent = amount(d.partitions_total, "partition") + ", " + (d.partitions_total === d.partitions.length ? amount(records, "record") + ", " : "") + size(d.size_bytes) + (d.is_internal ? ", internal" : "");
    if (isNew) { topicButtons(d); $("records").replaceChildren(); $("m-note").textContent = ""; $("m-before").hidden = $("m-next").hidden = true; $("m-follow").checked = false; }
    $("topic-plots").replaceChildren(
      plot("written", d.traffic.bytes_in, perSecond, 10000), plot("read", d.traffic.bytes_out, perSecond, 10000),
      plot("records written", d.traffic.messages_in, each_s, 10000));
    table("topic-partitions", [
      ["partition", "n", p => link(String(p.partition), () => why(d.topic, p.partition))],
      ["leader", "n", p => p.leader < 0 ? ["none", "bad"] : String(p.leader)],
      ["in sync", "", p => p.isr.length < p.replicas.length - p.adding.length ? [p.isr.join(" "), "warn"] : p.isr.join(" ")],
      ["replicas", "", p => p.replicas.join(" ") + (p.adding.length ? " (+" + p.adding.join(" +") + ")" : "")],
      ["from", "n", p => count(p.start)], ["to", "n", p => count(p.end)], ["size", "n", p => size(p.size_bytes)],
      ["oldest", "wide", p => time(p.oldest_ms)], ["newest", "wide", p => time(p.newest_ms)],
      ["", "n", p => me.may_act && me.can.move ? link("move", () => movePartition(d.topic, p)) : ""]], d.partitions, "none");
    pager("tp", d.offset, d.partitions.length, d.partitions_total, d.partitions_total);
    drawSettings();
    partitionChoices(d.partitions_total);
    if (isNew && d.can.read) readMessages({});
    else if (d.can.read) followRecords();
    else if (isNew) $("records").replaceChildren(el("p", "You may not read this topic.", "dim"));
  },
};
function drawSettings() {
  const d = topicShown;
  if (!d.settings) { table("topic-settings", [["", "", r => r]], [], "you may not see them"); return; }
  const rows = d.settings.filter(s => s.is_own || $("settings-all").checked);
  table("topic-settings", [
    ["setting", "", s => s.is_own ? [s.key, "set"] : s.key], ["value", "wrap", s => s.value],
    ["", "", s => d.can.settings && me.may_act ? link("change", () => changeSetting(d.topic, s)) : ""],
    ["", "wrap dim wide", s => s.doc]], rows, "everything is at its default");
}
$("settings-all").addEventListener("change", drawSettings);
function changeSetting(topic, s) {
  ask({title: "Change a setting of " + topic, label: "change", fields: [
      {name: "key", label: "setting", value: s ? s.key : ""}, {name: "value", label: "value", value: s ? s.value : ""},
      {name: "how", label: "", options: [["set", "set this value"], ["remove", "remove it: the default holds again"]]}],
    run: async v => (await act("topic.settings", v.how === "set" ? {topic, set: {[v.key.trim()]: v.value}} : {topic, remove: [v.key.trim()]})).text});
}
function movePartition(topic, p) {
  ask({title: "Move " + topic + "-" + p.partition, label: "move", fields: [
      {name: "replicas", label: "brokers, the preferred leader first", value: p.replicas.join(" ")},
      {name: "throttle", label: "bytes per second at most (0: no limit)", value: "0", type: "number"}],
    run: async v => (await act("partition.move", {topic, partition: p.partition, replicas: v.replicas.split(/[\s,]+/).filter(Boolean).map(whole), throttle: whole(v.throttle)})).text});
}
function topicButtons(d) {
  const made = [];
  if (me.may_act && d.can.settings) made.push(button("set", () => changeSetting(d.topic, null)));
  if (me.may_act && d.can.alter) made.push(button("add partitions", () => ask({title: "Add partitions to " + d.topic, label: "add",
    fields: [{name: "count", label: "partitions in the end (keys move to other partitions)", value: String(topicShown.partitions_total + 1), type: "number"}],
    run: async v => (await act("topic.partitions", {topic: d.topic, count: whole(v.count)})).text})));
  if (me.may_act && me.can.elect) made.push(button("elect", () => ask({title: "Elect the preferred leaders of " + d.topic, fields: [], label: "elect",
    run: async () => (await act("leaders.elect", {topic: d.topic})).text})));
  if (me.may_act && d.can.empty) made.push(button("empty", () => ask({title: "Delete all records of " + d.topic, fields: [], confirm: d.topic, label: "empty", isDanger: true,
    run: async v => { const done = await act("topic.empty", {topic: d.topic, confirm: v.confirm}); readMessages({}); return done.text; }}), "danger"));
  $("m-send").hidden = !me.may_act || !d.can.send;
  if (me.may_act && d.can.delete) made.push(button("delete", () => ask({title: "Delete " + d.topic + " and its records", fields: [], confirm: d.topic, label: "delete", isDanger: true,
    run: async v => { const done = await act("topic.delete", {topic: d.topic, confirm: v.confirm}); show({page: "topics", name: ""}); return done.text; }}), "danger"));
  $("topic-actions").replaceChildren(...made);
}
for (const [id, key, step] of [["topics", "topics_offset", 25], ["tp", "partitions_offset", 100], ["groups", "groups_offset", 50]]) {
  $(id + "-back").addEventListener("click", () => show({[key]: Math.max(0, view[key] - step)}));
  $(id + "-next").addEventListener("click", () => show({[key]: view[key] + step}));
}
$("topics-internal").addEventListener("change", () => show({topics_internal: $("topics-internal").checked ? 1 : 0, topics_offset: 0}));
