import { Dialog } from "./Dialog";

const command = /Mac|iPhone|iPad/.test(navigator.platform) ? "Cmd" : "Ctrl";

const groups: readonly { title: string; keys: readonly (readonly [string[], string])[] }[] = [
  {
    title: "Everywhere",
    keys: [
      [[command, "K"], "Find a session or a command"],
      [["/"], "Search sessions"],
      [["N"], "New session"],
      [["A"], "What waits for approval"],
      [["?"], "This help"],
      [["Esc"], "Close what is open"],
    ],
  },
  {
    title: "In the list",
    keys: [
      [["Up"], "or K: the session above"],
      [["Down"], "or J: the session below"],
      [["Home"], "and End: the first, the last"],
      [["Enter"], "Open"],
      [["F2"], "Rename"],
      [["P"], "Pin or unpin"],
      [["E"], "Archive or restore"],
      [["X"], "Pick, to change several at once"],
      [["Delete"], "Delete; it can be undone"],
    ],
  },
  {
    title: "In the composer",
    keys: [
      [["Enter"], "Send; during a run, queue"],
      [["Shift", "Enter"], "New line"],
      [["Up"], "in an empty field: your earlier prompts"],
      [["Esc", "Esc"], "Stop the run"],
    ],
  },
];

export default function HelpDialog({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keyboard" onClose={onClose} kind="wide" testId="help">
      <div className="help">
        {groups.map((group) => (
          <section key={group.title}>
            <h3>{group.title}</h3>
            <dl>
              {group.keys.map(([keys, text]) => (
                <div key={text}>
                  <dt>
                    {keys.map((key, at) => (
                      <kbd key={at}>{key}</kbd>
                    ))}
                  </dt>
                  <dd>{text}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
    </Dialog>
  );
}
