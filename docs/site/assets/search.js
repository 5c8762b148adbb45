// Finds the sections that have all words of the question, or, if none has, most of them; what stands in a heading counts more, and a
// code, a reason or a heading that is the question itself comes first.
const question = new URLSearchParams(location.search).get("q") || "";
const words = question.toLowerCase().split(/[^\p{L}\p{N}]+/u).filter((word) => word.length > 1);

function score(section) {
  const name = (section.title + " " + section.name).toLowerCase();
  const text = section.text.toLowerCase();
  let found = 0, points = section.name.toLowerCase() === question.trim().toLowerCase() ? 1000 : 0;
  for (const word of words) {
    const inName = name.includes(word);
    if (inName || text.includes(word)) found++;
    points += (inName ? 5 : 0) + Math.min(text.split(word).length - 1, 3);
  }
  return { section, found, points };
}

function excerpt(text) {
  const at = Math.max(0, Math.min(...words.map((word) => text.toLowerCase().indexOf(word)).filter((i) => i >= 0)) - 60);
  return (at > 0 ? "… " : "") + text.slice(Number.isFinite(at) ? at : 0).slice(0, 220);
}

const scored = words.length ? sections.map(score) : [];
const most = Math.max(1, ...scored.map((row) => row.found));
const best = scored.filter((row) => row.found === most && row.points > 0).sort((a, b) => b.points - a.points).slice(0, 25);

document.querySelector("input[name=q]").value = question;
document.getElementById("found").textContent = !words.length ? "Type what you look for, or the words of an error."
  : !best.length ? "Nothing has these words: " + question
  : best.length + (best.length === 1 ? " section" : " sections") + (most < words.length ? " with " + most + " of the " + words.length + " words" : "");
for (const { section } of best) {
  const item = document.createElement("li"), link = document.createElement("a"), text = document.createElement("p");
  link.href = section.page + "#" + section.anchor;
  link.textContent = section.title === section.name ? section.title : section.title + " › " + section.name;
  text.textContent = excerpt(section.text);
  item.append(link, text);
  document.getElementById("results").append(item);
}
