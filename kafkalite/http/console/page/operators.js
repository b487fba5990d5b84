// Transactions, users, permissions, quotas.
const openColumns = [
  ["partition", "name", t => link(t.topic + "-" + t.partition, () => openTopic(t.topic))], ["producer", "n", t => String(t.producer_id)],
  ["from offset", "n", t => count(t.start_offset)], ["open", "n", t => span(t.open_ms / 1000)], ["leader", "n wide", t => String(t.leader)]];
PAGES.transactions = {
  title: "Transactions", every: 5000,
  load: () => get("api/console/transactions", {text: view.ids_text}),
  draw: d => {
    table("hanging", [...openColumns, ["why", "wrap", t => t.reason],
      ["", "n", t => me.may_act && d.can_abort ? link("abort", () => ask({title: "Abort the transaction of producer " + t.producer_id + " on " + t.topic + "-" + t.partition, fields: [], label: "abort", isDanger: true,
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
    const may = name => me.may_act && me.can[name];
    for (const name of ["users", "acls", "quotas"]) $(name + "-add").hidden = !may(name);
    table("users", [["user", "name", u => u.user], ["mechanisms", "", u => u.mechanisms.join(" ")],
      ["", "n", u => may("users") ? both(link("password", () => setUser(u.user)), link("delete", () => deleteUser(u.user))) : ""]], d.users.rows, "no user has a SCRAM credential");
    table("acls", [["who", "name", a => a.principal], ["", "", a => a.permission === "DENY" ? ["deny", "bad"] : "allow"], ["operation", "", a => a.operation], ["on", "", a => a.resource],
      ["name", "name", a => a.name + (a.pattern === "PREFIXED" ? "…" : "")], ["from", "wide", a => a.host],
      ["", "n", a => may("acls") ? link("remove", () => removeAcl(a)) : ""]], d.acls.rows, "none");
    table("quotas", [["user", "name", q => q.ip ? "–" : q.user || "any"], ["client id", "name", q => q.ip ? "–" : q.client_id || "any"], ["address", "name", q => q.ip || "any"], ["limits", "wrap", q => Object.entries(q.limits).map(([key, value]) => key + "=" + value).join(", ")],
      ["", "n", q => may("quotas") && !q.ip ? link("change", () => setQuota(q)) : ""]], d.quotas.rows, "none");
    note("users", d.users); note("acls", d.acls); note("quotas", d.quotas);
  },
};
function both(...links) { const cell = el("span"); for (const each of links) cell.append(each, " "); return cell; }
const base64 = bytes => btoa(String.fromCharCode(...bytes));
// As Kafka's tools: the password stays here, what is sent is salted and hashed (RFC 5802).
async function credentialsOf(password) {
  if (!window.crypto || !crypto.subtle) throw new Error("a password can be set only over https, or on the node's own host: use kafkalite admin users set");
  const key = await crypto.subtle.importKey("raw", new TextEncoder().encode(password), "PBKDF2", false, ["deriveBits"]), found = [], iterations = 8192;
  for (const [mechanism, hash, bits] of [["SCRAM-SHA-256", "SHA-256", 256], ["SCRAM-SHA-512", "SHA-512", 512]]) {
    const salt = crypto.getRandomValues(new Uint8Array(24));
    const salted = await crypto.subtle.deriveBits({name: "PBKDF2", hash, salt, iterations}, key, bits);
    found.push({mechanism, iterations, salt: base64(salt), salted_password: base64(new Uint8Array(salted))});
  }
  return found;
}
function setUser(user) {
  ask({title: user ? "Another password for " + user : "Create a user", label: user ? "set" : "create", isDanger: Boolean(user),
    fields: [...(user ? [] : [{name: "user", label: "name"}]), {name: "password", label: "password", type: "password"}, {name: "again", label: "password again", type: "password"}],
    run: async v => {
      if (!v.password) throw new Error("the password is empty");
      if (v.password !== v.again) throw new Error("the two passwords differ");
      return (await act("user.set", {user: user || v.user, credentials: await credentialsOf(v.password)})).text;
    }});
}
function deleteUser(user) {
  ask({title: "Delete the user " + user, fields: [], confirm: user, label: "delete", isDanger: true,
    run: async v => (await act("user.delete", {user, confirm: v.confirm})).text});
}
const OPERATIONS = {
  TOPIC: ["READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"], GROUP: ["READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"],
  TRANSACTIONAL_ID: ["WRITE", "DESCRIBE"], CLUSTER: ["CREATE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE"]};
function addAcl() {
  const operations = ["ALL", ...new Set(Object.values(OPERATIONS).flat())];
  ask({title: "Add a permission", label: "add",
    fields: [
      {name: "principal", label: "who", hint: "User:alice"}, {name: "permission", label: "may or may not", options: [["ALLOW", "allow"], ["DENY", "deny"]]},
      {name: "operation", label: "operation", options: operations.map(o => [o, o])}, {name: "resource", label: "on", options: Object.keys(OPERATIONS).map(r => [r, r])},
      {name: "name", label: "name (* is all)", hint: "orders"}, {name: "pattern", label: "the name is", options: [["LITERAL", "exactly this"], ["PREFIXED", "the beginning of names"]]},
      {name: "host", label: "from which address", value: "*"}],
    run: async v => {
      if (v.operation !== "ALL" && !OPERATIONS[v.resource].includes(v.operation)) throw new Error(v.operation + " is not an operation on " + v.resource);
      const name = v.resource === "CLUSTER" ? "kafka-cluster" : v.name, pattern = v.resource === "CLUSTER" ? "LITERAL" : v.pattern;
      return (await act("acl.add", {...v, name, pattern})).text;
    }});
}
function removeAcl(a) {
  ask({title: "Remove: " + a.principal + (a.permission === "DENY" ? " may not " : " may ") + a.operation + " " + a.resource + " " + a.name, fields: [], confirm: a.principal, label: "remove", isDanger: true,
    run: async v => (await act("acl.remove", {...a, confirm: v.confirm})).text});
}
function setQuota(q) {
  const keys = [["producer_byte_rate", "bytes written per second"], ["consumer_byte_rate", "bytes read per second"], ["request_percentage", "percent of a node's time"]];
  const whose = q ? [] : [{name: "user", label: "user", hint: "alice; * is every user without a limit"}, {name: "client_id", label: "client id", hint: "empty: whatever; * is every other one"}];
  const name = text => text === "" ? null : text === "*" ? "" : text;
  ask({title: q ? "Limits of " + [q.user && "user " + q.user, q.client_id && "client " + q.client_id].filter(Boolean).join(", ") : "Add a quota", label: "set",
    fields: [...whose, ...keys.map(([key, label]) => ({name: key, label, value: q && key in q.limits ? String(q.limits[key]) : "", hint: "empty: no limit"}))],
    run: async v => {
      const limits = {};
      for (const [key] of keys) { const text = v[key].trim(); if (text !== "") limits[key] = text; else if (q && key in q.limits) limits[key] = null; }
      return (await act("quota.set", {...(q ? q.entity : {user: name(v.user), client_id: name(v.client_id)}), limits})).text;
    }});
}
$("users-add").onclick = () => setUser("");
$("acls-add").onclick = addAcl;
$("quotas-add").onclick = () => setQuota(null);
