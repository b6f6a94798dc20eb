"use strict";
// The page is complete without this script, and then reloads itself. The script fetches the page anew
// now and then and puts in the parts that changed, copies the join line, and shows the values where the
// pointer is on the curve.

const lost = document.getElementById("lost");
const shown = new Map(); // by id, each part as the server sent it
for (const part of document.querySelectorAll("[data-live]")) shown.set(part.id, part.outerHTML);

let asked = 0;
let answered = 0; // the newest request that is: a slow one may end after it

async function renew() {
  if (document.hidden) return;
  const request = ++asked;
  try {
    const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(10000) });
    if (!answer.ok) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (request < answered) return;
    answered = request;
    if (fixedIn(page) !== fixedIn(document)) return location.reload();
    document.querySelectorAll("[data-live]").forEach((part) => replace(part, page.getElementById(part.id)));
    lost.hidden = true;
  } catch {
    if (request >= answered) lost.hidden = false;
  }
}

// The swarm, and our files, which change when the monitor is upgraded.
const fixedIn = (page) => [
  page.querySelector(".id").textContent,
  ...[...page.querySelectorAll("[href^='/page/']")].map((link) => link.getAttribute("href")),
  ...[...page.querySelectorAll("[src^='/page/']")].map((script) => script.getAttribute("src")),
].join(" ");

function replace(part, fresh) {
  // What did not change stays, and with it the reader's selection.
  if (!fresh || fresh.outerHTML === shown.get(part.id)) return;
  shown.set(part.id, fresh.outerHTML);
  const focused = [...part.querySelectorAll("a")].indexOf(document.activeElement);
  part.className = fresh.className;
  part.replaceChildren(...fresh.childNodes);
  part.querySelectorAll("a")[focused]?.focus();
  if (part.id === "curve") point(pointerX);
}

setInterval(renew, 1000 * Number(document.body.dataset.refreshSeconds));
document.addEventListener("visibilitychange", renew);

let pointerX = null; // pixels from the left of the window; null while the pointer is elsewhere

function point(x) {
  pointerX = x;
  document.querySelectorAll(".tip, .hair, .mark").forEach((element) => element.remove());
  const plot = document.querySelector(".plot");
  if (!plot || x === null) return;
  const box = plot.getBoundingClientRect();
  const percent = (100 * (x - box.left)) / box.width;
  const far = ([at]) => Math.abs(at - percent);
  const [at, y, text] = JSON.parse(plot.dataset.hover).reduce((a, b) => (far(b) < far(a) ? b : a));
  draw(plot, "line", { class: "hair", x1: `${at}%`, x2: `${at}%`, y1: 0, y2: "100%" });
  if (y !== null) draw(plot, "circle", { class: "end mark training", cx: `${at}%`, cy: y, r: 4 });
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.textContent = text;
  plot.after(tip);
  const middle = plot.previousElementSibling.clientWidth + (box.width * at) / 100;
  tip.style.left = `${middle + (at > 50 ? -tip.offsetWidth - 10 : 10)}px`;
}

function draw(plot, name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  plot.append(element);
}

const curve = document.getElementById("curve");
curve.addEventListener("pointermove", (event) => point(event.target.closest(".plot") ? event.clientX : null));
curve.addEventListener("pointerleave", () => point(null));

const button = document.getElementById("copy");
const line = document.getElementById("join-line");
button.hidden = false;
button.addEventListener("click", async () => {
  let done = true;
  try {
    // Browsers offer the clipboard on https and localhost only; elsewhere the old way works.
    await navigator.clipboard.writeText(line.textContent);
  } catch {
    getSelection().selectAllChildren(line);
    done = document.execCommand("copy");
  }
  button.textContent = done ? "Copied" : "Selected";
  setTimeout(() => (button.textContent = "Copy"), 2000);
});
