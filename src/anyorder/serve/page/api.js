// How the page speaks to the server: one question in flight of a kind, and the latest wins.

const KEY = "anyorder-token";

// A token comes after the # of the address, which no server and no log sees; then it is hidden.
const found = new URLSearchParams(location.hash.slice(1)).get("token");
if (found) {
  sessionStorage.setItem(KEY, found);
  history.replaceState(null, "", location.pathname);
}

export class Refusal extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

export function hasToken() {
  return sessionStorage.getItem(KEY) !== null;
}

export async function ask(path, body) {
  const token = sessionStorage.getItem(KEY);
  const headers = token === null ? {} : { Authorization: `Bearer ${token}` };
  const options = body === undefined ? { headers } : {
    method: "POST",
    headers: { ...headers, "Content-Type": "application/json" },
    body: JSON.stringify(body),
  };
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Refusal(0, "The server does not answer. Is it still running?");
  }
  if (answer.status === 401) {
    await askForToken();
    return ask(path, body);
  }
  const content = await answer.json().catch(() => ({ detail: "The answer could not be read." }));
  if (!answer.ok) throw new Refusal(answer.status, content.detail);
  return content;
}

let asking = null;

function askForToken() {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("token-dialog");
    dialog.addEventListener("close", () => {
      sessionStorage.setItem(KEY, document.getElementById("token").value);
      asking = null;
      resolve();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

// Runs one job at a time. What is asked meanwhile waits, and of that only the last is done: a
// slider that is dragged gets answers as fast as they come, and never an old one after a new one.
export class Latest {
  constructor(work) {
    this.work = work;
    this.running = false;
    this.waiting = null;
  }

  async run(...values) {
    if (this.running) {
      this.waiting = values;
      return;
    }
    this.running = true;
    try {
      await this.work(...values);
    } finally {
      this.running = false;
      if (this.waiting !== null) {
        const next = this.waiting;
        this.waiting = null;
        this.run(...next);
      }
    }
  }
}

export function settled(work, milliseconds) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...values), milliseconds);
  };
}
