import { useState } from "react";
import { useApp } from "../state/app";
import type { Density, Theme } from "../state/settings";
import { useStore } from "../state/store";
import { Dialog } from "./Dialog";

const themes: readonly (readonly [Theme, string])[] = [
  ["auto", "As the system"],
  ["light", "Light"],
  ["dark", "Dark"],
];
const densities: readonly (readonly [Density, string])[] = [
  ["comfortable", "Comfortable"],
  ["compact", "Compact"],
];

export default function SettingsDialog({ onClose }: { onClose: () => void }) {
  const { settings } = useApp();
  const { theme, density } = useStore(settings.state);
  return (
    <Dialog title="Settings" onClose={onClose} testId="settings">
      <Choice legend="Theme" options={themes} value={theme} onPick={(theme) => settings.choose({ theme })} />
      <Choice
        legend="List"
        options={densities}
        value={density}
        onPick={(density) => settings.choose({ density })}
      />
      <Notifications />
      <p className="quiet small-print">Settings are kept in this browser only.</p>
    </Dialog>
  );
}

interface ChoiceProps<T extends string> {
  legend: string;
  options: readonly (readonly [T, string])[];
  value: T;
  onPick: (value: T) => void;
}

function Choice<T extends string>({ legend, options, value, onPick }: ChoiceProps<T>) {
  return (
    <fieldset className="choice">
      <legend>{legend}</legend>
      {options.map(([option, label]) => (
        <label key={option}>
          <input
            type="radio"
            name={legend}
            value={option}
            checked={option === value}
            onChange={() => onPick(option)}
          />
          {label}
        </label>
      ))}
    </fieldset>
  );
}

function Notifications() {
  const { settings } = useApp();
  const { notify } = useStore(settings.state);
  const possible = typeof Notification !== "undefined";
  const [permission, setPermission] = useState(possible ? Notification.permission : "denied");
  const on = notify && permission === "granted";
  return (
    <section className="choice" aria-label="Notifications">
      <h3>Notifications</h3>
      <p className="quiet">
        When this tab is out of sight: a run needs your approval, or has ended.
      </p>
      {permission === "denied" ? (
        <p className="quiet">
          {possible
            ? "This browser was told to show none from here. Its settings for this site can change that."
            : "This browser shows none from here."}
        </p>
      ) : (
        <button
          type="button"
          className="button"
          aria-pressed={on}
          data-testid="notify"
          onClick={() => {
            if (on) settings.choose({ notify: false });
            else void settings.wantNotifications().then(setPermission);
          }}
        >
          {on ? "Turn off" : "Turn on"}
        </button>
      )}
    </section>
  );
}
