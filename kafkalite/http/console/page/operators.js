// Transactions, users, permissions, quotas.
const openColumns = [
  ["partition", "name", t => link(t.topic + "-" + t.partition, () => openTopic(t.topic))], ["producer", "n", t => String(t.producer_id)],
  ["from offset", "n", t => count(t.start_offset)], ["open", "n", t => span(t.open_ms / 1000)], ["leader", "n wide", t => String(t.leader)]];
PAGES.transactions = {
  title: "Transactions", every: 5000,
  load: () => get("api/console/transactions", {text: view.ids_text}),
  draw: d => {
    table("hanging", [...openColumns, ["why", "wrap", t => t.reason],
      ["", "", t => me.may_act && d.can_abort ? link("abort", () => ask({title: "Abort the transaction of producer " + t.producer_id + " on " + t.topic + "-" + t.partition, fields: [], label: "abort", isDanger: true,
        run: async () => (await act("transaction.abort", {topic: t.topic, partition: t.partition, start_offset: t.start_offset})).text})) : ""]], d.hanging, "none hangs");
    $("hanging-note").textContent = d.note;
    table("open", openColumns, d.open, "none is open");
    $("open-note").textContent = d.open.length < d.open_total ? d.open.length + " of " + count(d.open_total) : "";
    table("ids", [["transactional id", "name", t => t.transactional_id], ["state", "", t => t.state], ["producer", "n", t => String(t.producer_id)], ["coordinator", "n wide", t => String(t.coordinator)]], d.transactions, "none");
    $("ids-note").textContent = d.transactions.length < d.matched ? d.transactions.length + " of " + count(d.matched) : "";
  },
};
PAGES.security = {
  title: "Users", every: 10000,
  load: () => get("api/console/security", {text: view.security_text}),
  draw: d => {
    const note = (name, part) => { $(name + "-note").textContent = part.note || (part.rows.length < part.total ? part.rows.length + " of " + count(part.total) : ""); };
    table("users", [["user", "name", u => u.user], ["mechanisms", "", u => u.mechanisms.join(" ")]], d.users.rows, "no user has a SCRAM credential");
    table("acls", [["who", "name", a => a.principal], ["", "", a => a.permission === "DENY" ? ["deny", "bad"] : "allow"], ["operation", "", a => a.operation], ["on", "", a => a.resource],
      ["name", "name", a => a.name + (a.pattern === "PREFIXED" ? "…" : "")], ["from", "wide", a => a.host]], d.acls.rows, "none");
    table("quotas", [["user", "name", q => q.user || "any"], ["client id", "name", q => q.client_id || "any"], ["limits", "wrap", q => Object.entries(q.limits).map(([key, value]) => key + "=" + value).join(", ")]], d.quotas.rows, "none");
    note("users", d.users); note("acls", d.acls); note("quotas", d.quotas);
  },
};
