"use strict";
// Sorts, narrows, copies and saves the table of all cases, and opens what a link leads to. Without this script the page
// holds the same, in its first order.
document.documentElement.classList.add("js");

const table = document.querySelector("table.cases");
const tools = document.getElementById("tools");
if (table) {
  const cases = [...table.tBodies], count = tools.querySelector(".count"), reset = tools.querySelector(".reset");
  const none = document.querySelector(".nothing"), order = tools.elements.namedItem("order");
  const heads = [...table.tHead.rows[0].cells];
  const shown = () => [...table.tBodies].filter((body) => !body.hidden);

  // --- sorting: up, down, the first order again; by number where both are, cells without a value last
  const compare = (x, y, sign) => {
    if (x === "" || y === "") return (x === "") - (y === "");
    return sign * (isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y);
  };
  const sort = (index, direction) => {
    heads.forEach((head, at) => {
      if (at === index) head.setAttribute("aria-sort", direction);
      else head.removeAttribute("aria-sort");
    });
    const key = (body) => body.rows[0].cells[index].dataset.sort, sign = direction === "ascending" ? 1 : -1;
    table.append(...(direction ? [...cases].sort((a, b) => compare(key(a), key(b), sign)) : cases));
    order.value = direction ? `${index} ${direction}` : "";
    offer();
  };
  heads.forEach((head, index) => {
    const title = head.textContent.trim(), button = Object.assign(document.createElement("button"), { type: "button" });
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const next = { ascending: "descending", descending: "" }[head.getAttribute("aria-sort")] ?? "ascending";
      sort(next ? index : -1, next);
    });
    order.add(new Option(`${title} \u2191`, `${index} ascending`));
    order.add(new Option(`${title} \u2193`, `${index} descending`));
  });

  // --- narrowing
  const tell = () => `${shown().length} of ${cases.length} cases`;
  const offer = () => {
    none.hidden = shown().length > 0;
    reset.hidden = shown().length === cases.length && !order.value;
  };
  const narrow = () => {
    const { find, order: _, ...choices } = Object.fromEntries(new FormData(tools));
    const words = find.toLowerCase().split(/\s+/).filter(Boolean);
    for (const body of cases) {
      body.hidden = !(words.every((word) => body.dataset.find.includes(word)) &&
        Object.entries(choices).every(([name, value]) => !value || body.dataset[name] === value));
    }
    count.textContent = tell();
    offer();
  };
  tools.hidden = false;
  tools.addEventListener("input", (event) => {
    if (event.target !== order) return narrow();
    const [index, direction] = order.value.split(" ");
    sort(direction ? Number(index) : -1, direction ?? "");
  });
  tools.addEventListener("submit", (event) => event.preventDefault());
  tools.addEventListener("reset", () => setTimeout(() => { narrow(); sort(-1, ""); }));

  // --- taking away: what is shown, as raw numbers
  const grid = () => [table, ...shown()].map((row) => JSON.parse(row.dataset.raw).map((value) => String(value ?? "")));
  // A spreadsheet runs what begins like a formula; a number may begin with its sign.
  const inert = (text) => (/^\s*[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]/.test(text) && isNaN(text) ? `'${text}` : text);
  const quote = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const say = (text) => {
    count.textContent = text;
    setTimeout(() => { count.textContent = tell(); }, 2000);
  };
  tools.querySelector(".copy").addEventListener("click", async () => {
    const text = grid().map((line) => line.map((cell) => inert(cell.replace(/[\t\n\r]/g, " "))).join("\t")).join("\n");
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = Object.assign(document.createElement("textarea"), { value: text });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    say("copied");
  });
  tools.querySelector(".save").addEventListener("click", (event) => {
    const text = grid().map((line) => line.map((cell) => quote(inert(cell))).join(",")).join("\r\n");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(["\ufeff", text, "\r\n"], { type: "text/csv" }));
    link.download = `${event.target.dataset.name.replace(/[^\w.-]+/g, "-").slice(0, 60) || "cases"}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    say("saved");
  });
}

// --- a phone begins with the answer: what is further down is folded
const parts = document.querySelectorAll("details.part");
if (matchMedia("(max-width: 720px)").matches) parts.forEach((part) => { part.open = false; });

// --- a link opens what it leads to: a case's row, what is folded
const reveal = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  if (target.parentElement === table) {
    if (target.hidden) tools.reset();
    target.querySelector("details").open = true;
  }
  for (const part of parts) if (part.parentElement === target) part.open = true;
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  setTimeout(() => target.scrollIntoView());
};
addEventListener("hashchange", reveal);
reveal();
