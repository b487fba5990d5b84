// Schemas of the registry that every node serves: the subjects, and the versions of one.
const SUBJECTS = 50, VERSIONS = 20;
PAGES.schemas = {
  title: "Schemas", every: 10000,
  load: () => get("subjects", {subjectPrefix: view.subjects_text, offset: view.subjects_offset, limit: SUBJECTS + 1}),
  draw: subjects => {
    const shown = subjects.slice(0, SUBJECTS), offset = view.subjects_offset;
    table("subjects", [["subject", "name", s => link(s, () => show({page: "schema", name: s}))]], shown, view.subjects_text ? "no subject begins with this" : "no schema is registered");
    $("subjects-note").textContent = shown.length ? count(offset + 1) + "–" + count(offset + shown.length) : "";
    $("subjects-back").disabled = offset <= 0;
    $("subjects-next").disabled = subjects.length <= SUBJECTS;
    if (!shown.length && offset) show({subjects_offset: 0});
  },
};
PAGES.schema = {
  title: "Schema", parent: "schemas", every: 60000,
  load: async () => {
    const name = view.name, path = "subjects/" + encodeURIComponent(name) + "/versions", numbers = await get(path);
    const [level, ...versions] = await Promise.all([
      get("config/" + encodeURIComponent(name), {defaultToGlobal: true}).then(d => d.compatibilityLevel, () => ""),
      ...numbers.slice(-VERSIONS).reverse().map(number => get(path + "/" + number))]);
    return {name, level, versions, total: numbers.length};
  },
  draw: d => {
    $("schema-title").textContent = d.name;
    $("schema-note").textContent = amount(d.total, "version") + (d.versions.length < d.total ? ", the newest " + d.versions.length + " are shown" : "") + (d.level ? ", compatibility " + d.level : "");
    const drawnBefore = new Map([...$("versions").children].map(each => [each.dataset.id, each]));
    $("versions").replaceChildren(...d.versions.map((version, at) => drawnBefore.get(d.name + " " + version.version) || versionBox(d.name, version, !at)));
  },
};
function versionBox(name, version, isOpen) {
  const box = el("details", null, "record"), head = el("summary");
  box.dataset.id = name + " " + version.version;
  box.open = isOpen;
  head.append(el("span", "version " + version.version, "key"), el("span", "id " + version.id, "dim"), el("span", version.schemaType || "AVRO", "dim"));
  box.append(head, el("pre", pretty(version.schema)));
  for (const to of version.references || []) box.append(el("p", to.name + " is version " + to.version + " of " + to.subject, "dim"));
  return box;
}
for (const [id, by] of [["subjects-back", -SUBJECTS], ["subjects-next", SUBJECTS]])
  $(id).addEventListener("click", () => show({subjects_offset: Math.max(0, view.subjects_offset + by)}));
