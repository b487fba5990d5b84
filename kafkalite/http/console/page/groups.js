// Groups: the list, and one group with its members, offsets and lag.
PAGES.groups = {
  title: "Groups", every: 3000,
  load: () => get("api/console/groups", {text: view.groups_text, offset: view.groups_offset, limit: 50}),
  draw: d => {
    table("groups", [
      ["group", "name", g => link(g.group, () => show({page: "group", name: g.group}))],
      ["state", "", g => g.state], ["type", "wide", g => g.type || "–"], ["members", "n", g => count(g.members)],
      ["partitions", "n wide", g => count(g.partitions)],
      ["lag", "n", g => g.lag === undefined || g.lag === null ? "not measured yet" : count(g.lag)],
      ["coordinator", "n wide", g => String(g.coordinator)]], d.groups, "no group fits");
    pager("groups", d.offset, d.groups.length, d.matched, d.matched);
    if (d.missing.length) $("groups-note").textContent += "; broker " + d.missing.join(" ") + " did not answer";
  },
};
PAGES.group = {
  title: "Group", parent: "groups", every: 3000,
  load: () => get("api/console/group", {group: view.name}),
  draw: d => {
    $("group-title").textContent = d.group;
    $("group-note").textContent = d.state + ", " + amount(d.members_total, "member") + ", coordinator is broker " + d.coordinator;
    $("group-plots").replaceChildren(plot("lag, in records", d.lag, count, d.interval_ms));
    table("group-members", [
      ["client", "", m => m.client_id], ["host", "", m => m.host], ["member", "name wide", m => m.instance_id || m.member_id],
      ["partitions", "wrap", m => m.partitions.join(" ")]], d.members, "it has no members");
    table("group-offsets", [
      ["partition", "name", o => link(o.topic + "-" + o.partition, () => openTopic(o.topic))],
      ["committed", "n", o => count(o.offset)], ["end", "n", o => count(o.end)],
      ["lag", "n", o => o.end === null ? "–" : count(Math.max(0, o.end - o.offset))], ["read by", "wide", o => o.owner || "–"]],
      d.offsets, "it has committed nothing");
    $("group-reset").hidden = !me.may_act || !d.can.reset || !d.offsets.length;
    $("group-delete").hidden = !me.may_act || !d.can.delete;
    $("group-reset").onclick = () => resetGroup(d);
    $("group-delete").onclick = () => ask({title: "Delete the group " + d.group + " and its offsets", fields: [], confirm: d.group, label: "delete", isDanger: true,
      run: async v => { const done = await act("group.delete", {group: d.group, confirm: v.confirm}); show({page: "groups", name: ""}); return done.text; }});
  },
};
function resetGroup(d) {
  const topics = [...new Set(d.offsets.map(o => o.topic))];
  const values = (v, execute) => {
    const place = v.to === "time" ? Date.parse(v.value) : v.to === "offset" || v.to === "shift" ? whole(v.value) : 0;
    if (Number.isNaN(place)) throw new Error(v.value + " is not a time such as 2026-05-01T12:00");
    return {group: d.group, topic: v.topic, to: v.to, value: place, execute};
  };
  ask({title: "Reset the offsets of " + d.group, label: "reset", isDanger: true,
    fields: [
      {name: "topic", label: "of which topic", options: [["", "all topics"], ...topics.map(t => [t, t])]},
      {name: "to", label: "to", options: [["earliest", "the first record"], ["latest", "the end"], ["time", "a time"], ["offset", "an offset"], ["shift", "by a number of records"]]},
      {name: "value", label: "time, offset or number", hint: "2026-05-01T12:00, 1200 or -100"}],
    preview: async v => {
      const shown = await act("group.reset", values(v, false)), box = el("div"), rows = el("table");
      if (d.members_total) box.append(el("p", d.group + " has " + amount(d.members_total, "member") + ": stop all of them before the reset", "warn"));
      box.append(rows);
      table(rows, [["partition", "", o => o.topic + "-" + o.partition], ["now", "n", o => count(o.before)], ["then", "n", o => count(o.after)]], shown.offsets, "nothing");
      return box;
    },
    run: async v => (await act("group.reset", values(v, true))).text});
}
