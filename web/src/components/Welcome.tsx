import { useApp } from "../state/app";
import { useStore } from "../state/store";

interface Example {
  title: string;
  task: string;
}

const offline: readonly Example[] = [
  { title: "Run a shell command", task: "Show me what is here:\n$ ls" },
  { title: "See a longer run", task: "Count slowly, then look at the date.\n$ for i in 1 2 3; do echo $i; sleep 1; done\n$ date" },
];

const connected: readonly Example[] = [
  { title: "Get to know a folder", task: "List the files here and explain what this project does." },
  { title: "Fix something", task: "Run the tests, find the first failure and propose a fix." },
];

export function Welcome() {
  const { composer, server } = useApp();
  const { config } = useStore(server);
  const examples = config?.demonstration === false ? connected : offline;
  return (
    <section className="welcome" aria-label="Getting started">
      <h2>What should be done?</h2>
      <p>
        Write a task below and watch every step as it happens. Each one is saved before it counts, so
        you can close this tab, kill the server or lose power, and continue the session later.
      </p>
      <div className="examples">
        {examples.map((example) => (
          <button
            key={example.title}
            type="button"
            className="example"
            data-testid="example"
            onClick={() => {
              composer.write(example.task);
              document.getElementById("composer-text")?.focus();
            }}
          >
            <strong>{example.title}</strong>
            <pre>{example.task}</pre>
          </button>
        ))}
      </div>
      <p className="keys quiet">
        <kbd>/</kbd> search <kbd>j</kbd> <kbd>k</kbd> move in the list <kbd>Enter</kbd> send{" "}
        <kbd>Esc</kbd> close
      </p>
    </section>
  );
}
