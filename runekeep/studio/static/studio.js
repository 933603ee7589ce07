// Times in the browser's zone, sliders that say their value, and forms that htmx sends with the page's token.
"use strict";
(() => {
  const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
  const localize = (root) => {
    for (const time of root.querySelectorAll("time[datetime]:not([data-local])")) {
      time.title = time.textContent;
      time.textContent = format.format(new Date(time.dateTime));
      time.dataset.local = "yes";
    }
  };
  const slide = (event) => {
    const input = event.target;
    if (!(input instanceof HTMLInputElement) || input.type !== "range") return;
    const output = document.querySelector(`output[for="${input.id}"]`);
    if (output) output.textContent = input.value;
  };
  const submit = (event) => {
    const form = event.target.closest("form[data-slider]");
    if (form && event.target.type === "range") form.requestSubmit();
  };
  // The menu stands open beside wide pages, and folds away on narrow ones.
  const wide = matchMedia("(min-width: 60rem)");
  const unfold = () => {
    const menu = document.getElementById("menu");
    if (menu) menu.open = wide.matches;
  };
  document.addEventListener("DOMContentLoaded", () => {
    localize(document);
    unfold();
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target) target.scrollIntoView();
  });
  wide.addEventListener("change", unfold);
  document.addEventListener("input", slide);
  document.addEventListener("change", submit);
  document.addEventListener("htmx:load", (event) => localize(event.detail.elt.parentElement || document));
  document.addEventListener("htmx:sseMessage", () => localize(document));
  // What goes on changes the buttons and the attempts of a task: its page is loaded once more at the end.
  document.addEventListener("htmx:sseClose", (event) => {
    if (event.detail.type === "message") location.reload();
  });
})();
