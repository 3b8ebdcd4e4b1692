// Finds out what is served, and shows the page for it.

import { ask } from "/page/api.js";
import { make, notice } from "/page/dom.js";

const PAGES = { table: "/page/table.js", text: "/page/text.js", image: "/page/image.js" };

async function begin() {
  const main = document.getElementById("main");
  try {
    const model = await ask("/v1/model");
    const { show } = await import(PAGES[model.domain]);
    main.replaceChildren();
    main.className = model.domain;
    document.title = `${model.name} · anyorder`;
    await show(model, main);
    document.body.dataset.ready = "yes";
  } catch (error) {
    notice(error.message);
    main.replaceChildren(make("p", { class: "loading", text: "The model could not be shown." }));
  }
}

begin();
