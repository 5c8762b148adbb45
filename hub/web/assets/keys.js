// Keys for who has no mouse at hand: "/" searches, j and k go along the rows of a list, o opens one, "?" says so. The pages work without.
"use strict";
{
  const help = document.getElementById("keys"), search = document.querySelector("header input[type=search]");
  const rows = () => [...document.querySelectorAll("main tbody tr, main .needs li")].filter(row => row.querySelector("a[href]"));
  const step = by => {
    const all = rows(), now = all.indexOf(document.activeElement.closest("tr, li"));
    const row = all[now < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(now + by, 0), all.length - 1)];
    row?.querySelector("a[href]").focus();
    row?.scrollIntoView({block: "nearest"});
  };
  const keys = {
    "/": () => { search.focus(); search.select(); },
    "j": () => step(1),
    "k": () => step(-1),
    "o": () => { if (document.activeElement.matches("main a[href]")) document.activeElement.click(); },
    "?": () => help.showModal(),
  };
  document.addEventListener("keydown", event => {
    const key = keys[event.key];
    if (!key || event.ctrlKey || event.metaKey || event.altKey || help.open || event.target.matches("input, textarea, select")) return;
    event.preventDefault();
    key();
  });
  search.setAttribute("aria-keyshortcuts", "/");
  search.placeholder = "Search ( / )";
}
