// Says on a page about now that something has changed since it was made. Nothing moves before the person loads the page again.
(() => {
  const mark = document.getElementById("live");
  if (!mark || !window.EventSource) return;
  const from = new URL(mark.dataset.stream, location.href);
  const again = document.createElement("a");
  again.href = location.href;
  again.textContent = "refresh";
  let stream, changed = 0, waits = 0;
  const draw = () => {
    waits = 0;
    mark.replaceChildren(`${changed} changed · `, again);
  };
  const count = (event) => {
    if (event.lastEventId) from.searchParams.set("after", event.lastEventId);
    changed++;
    waits ||= setTimeout(draw, 250);
  };
  const close = () => {
    stream?.close();
    stream = undefined;
  };
  // A page out of sight keeps no connection: a browser has few for one host.
  const open = () => {
    if (stream || document.hidden) return;
    stream = new EventSource(from);
    for (const kind of ["change", "cluster", "published", "decision", "promotion"]) stream.addEventListener(kind, count);
    stream.addEventListener("error", (event) => event.data && close()); // the hub has said why it ends
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  open();
})();
