"use strict";
// Sorts, narrows, copies and saves the table of all cases. Without this script the page holds the same, in its first order.
document.documentElement.classList.add("js");

const table = document.querySelector("table.cases");
if (table) {
  const body = table.tBodies[0], rows = [...body.rows], tools = document.querySelector(".tools");
  const heads = [...table.tHead.rows[0].cells], count = tools.querySelector(".count");
  const shown = () => [...body.rows].filter((row) => !row.hidden);

  // --- sorting: by number where both are, cells without a value last
  const compare = (x, y, sign) => {
    if (x === "" || y === "") return (x === "") - (y === "");
    return sign * (isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y);
  };
  heads.forEach((head, index) => head.querySelector("button").addEventListener("click", () => {
    const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    const key = (row) => row.cells[index].dataset.sort;
    body.append(...[...body.rows].sort((a, b) => compare(key(a), key(b), sign)));
  }));

  // --- narrowing
  const narrow = () => {
    const { find, ...choices } = Object.fromEntries(new FormData(tools));
    const words = find.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      row.hidden = !(words.every((word) => row.dataset.find.includes(word)) &&
        Object.entries(choices).every(([name, value]) => !value || row.dataset[name] === value));
    }
    count.textContent = `${shown().length} of ${rows.length} cases`;
  };
  tools.hidden = false;
  tools.addEventListener("input", narrow);
  tools.addEventListener("submit", (event) => event.preventDefault());

  // --- taking away: what is shown, a column for each limit
  const plain = (text) => text.replaceAll("\u2212", "-").trim();
  const grid = () => {
    const limited = heads.map((_, index) => rows.some((row) => /^\[/.test(limits(row, index))));
    const titles = heads.flatMap((head, index) => {
      const title = head.textContent.trim();
      return limited[index] ? [title, `${title}, low`, `${title}, high`] : [title];
    });
    return [["case", ...titles], ...shown().map((row) => [
      row.cells[0].dataset.csv,
      ...[...row.cells].flatMap((cell, index) => {
        const value = plain((cell.querySelector("summary") ?? cell.querySelector("b") ?? cell).textContent);
        if (!limited[index]) return [value];
        const [low = "", high = ""] = plain(limits(row, index)).replace(/[[\]]/g, "").split(", ");
        return [value, low, high];
      }),
    ])];
  };
  const limits = (row, index) => {
    const text = row.cells[index].querySelector(".limits")?.textContent ?? "";
    return text.startsWith("[") ? text : "";
  };
  // A spreadsheet runs what begins like a formula; a number may begin with its sign.
  const inert = (text) => (/^\s*[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]/.test(text) && isNaN(text) ? `'${text}` : text);
  const quote = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const say = (text) => {
    const before = `${shown().length} of ${rows.length} cases`;
    count.textContent = text;
    setTimeout(() => { count.textContent = before; }, 2000);
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

// --- a link into something folded opens it; paper shows what is folded but for long lists
const reveal = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (const part of parts) if (part.parentElement === target) part.open = true;
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  if (target) target.scrollIntoView();
};
addEventListener("hashchange", reveal);
reveal();
