// Which page is shown, and when it is loaded again.
let timer = 0, asked = 0, typing = 0, typed = null, drawnPlace = "";
// What a page's parts are of: nothing of another topic or group stays under this one's name.
const placeNow = () => view.page + " " + (PAGES[view.page].parent ? view.name : "");
async function poll() {
  clearTimeout(timer);
  const mine = ++asked, page = PAGES[view.page];
  try {
    if (!me.principal) await whoami().catch(() => {});
    const found = await page.load();
    if (mine === asked) {
      page.draw(found);
      drawnPlace = placeNow();
      $("page-error").hidden = true;
      $("page-" + view.page).hidden = false;
      if (view.page !== "cluster") { $("live").textContent = "● live"; $("live").className = "ok"; }
      document.body.dataset.drawn = String(Number(document.body.dataset.drawn || 0) + 1);
      document.body.dataset.page = view.page;
    }
  } catch (error) {
    if (mine === asked) {
      $("live").textContent = error instanceof TypeError ? "● no answer from this node" : "● " + error.message;
      $("live").className = "bad";
      if (drawnPlace !== placeNow()) {
        $("page-" + view.page).hidden = true;
        $("page-error").hidden = false;
        $("page-error-text").textContent = error.message;
      }
    }
  }
  if (mine === asked && !document.hidden) timer = setTimeout(again, page.every);
}
// A page is not loaded during an action: the topic that is being deleted would be an error.
function again() {
  if (acting) timer = setTimeout(again, 200);
  else poll();
}
function show(change) {
  const before = view.page;
  clearTimeout(typing);
  Object.assign(view, typed ? typed() : {}, change);  // what was typed just before another control was used counts, too
  typed = null;
  if (!(view.page in PAGES)) view.page = "cluster";
  const changed = Object.entries(view).filter(([key, value]) => value !== DEFAULTS[key]);
  const place = "#" + new URLSearchParams(changed);
  if (before !== view.page) { if (location.hash !== place) history.pushState(null, "", place); scrollTo(0, 0); }
  else history.replaceState(null, "", place);
  controls();
  poll();
}
const searches = {text: ["text", ["offset"]], "topics-text": ["topics_text", ["topics_offset"]], "groups-text": ["groups_text", ["groups_offset"]], "subjects-text": ["subjects_text", ["subjects_offset"]], "ids-text": ["ids_text", []], "security-text": ["security_text", []]};
function controls() {
  const isOther = PAGES[view.page].parent && drawnPlace !== placeNow();
  for (const name of Object.keys(PAGES)) $("page-" + name).hidden = name !== view.page || isOther;
  if (drawnPlace === placeNow()) $("page-error").hidden = true;
  const current = PAGES[view.page].parent || view.page;
  for (const tab of $("nav").children) tab.setAttribute("aria-current", tab.dataset.page === current ? "page" : "false");
  document.title = (view.name && PAGES[view.page].parent ? view.name : PAGES[view.page].title) + " – kafkalite";
  for (const [id, [key]] of Object.entries(searches)) if (document.activeElement !== $(id)) $(id).value = view[key];
  $("topics-internal").checked = Boolean(view.topics_internal);
  $("state").value = view.state;
  $("broker").value = String(view.broker);
}
function readHash() {
  clearTimeout(typing);
  typed = null;
  Object.assign(view, DEFAULTS);
  for (const [key, value] of new URLSearchParams(location.hash.slice(1))) if (key in view) view[key] = typeof view[key] === "number" ? Number(value) || 0 : value;
  if (!(view.page in PAGES)) view.page = "cluster";
  controls();
  poll();
}
for (const [name, page] of Object.entries(PAGES)) {
  if (page.parent) continue;
  const tab = el("button", page.title);
  tab.type = "button";
  tab.dataset.page = name;
  tab.addEventListener("click", () => show({page: name, name: ""}));
  $("nav").append(tab);
}
for (const [id, [key, firsts]] of Object.entries(searches)) $(id).addEventListener("input", () => {
  clearTimeout(typing);
  typed = () => ({[key]: $(id).value, ...Object.fromEntries(firsts.map(first => [first, 0]))});
  typing = setTimeout(() => show({}), 200);
});
$("state").addEventListener("change", () => show({state: $("state").value, offset: 0}));
$("broker").addEventListener("change", () => show({broker: Number($("broker").value), offset: 0}));
$("partitions-back").addEventListener("click", () => show({offset: Math.max(0, view.offset - ROWS)}));
$("partitions-next").addEventListener("click", () => show({offset: view.offset + ROWS}));
$("why-close").addEventListener("click", () => $("why").close());
$("ask-cancel").addEventListener("click", () => $("ask").close());
document.addEventListener("keydown", event => {
  // "/" goes to the search of the page, digits to the pages, unless somebody types.
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || document.querySelector("dialog[open]")) return;
  const tab = $("nav").children[Number(event.key) - 1];
  if (event.key === "/") { const box = $("page-" + view.page).querySelector("input[type=search]"); if (box) { event.preventDefault(); box.focus(); } }
  else if (tab) tab.click();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
addEventListener("popstate", readHash);
readHash();
