import { useMemo, useState } from "preact/hooks";

import { isKept, type Settings, type Theme } from "../settings";
import { Popover } from "./popover";
import { canNotify } from "./tab";

interface Props {
  settings: Settings;
  choose: (settings: Settings) => void;
}

export function SettingsMenu(props: Props) {
  return (
    <Popover label="Settings" class="settings" side="right">
      <Choices {...props} />
    </Popover>
  );
}

/** The browser asks its user once; a refusal is undone in the browser only. */
function Notifications({ settings, choose }: Props) {
  const [permission, learn] = useState(canNotify() ? Notification.permission : undefined);
  const toggle = async () => {
    if (settings.notifies) return choose({ ...settings, notifies: false });
    const answer = await Notification.requestPermission();
    learn(answer);
    if (answer === "granted") choose({ ...settings, notifies: true });
  };
  return (
    <>
      <label class="check">
        <input
          type="checkbox"
          disabled={permission === undefined || permission === "denied"}
          checked={settings.notifies && permission === "granted"}
          onChange={() => void toggle()}
        />
        Notify when a job fails, stalls or ends
      </label>
      <small>
        {permission === undefined
          ? "This browser notifies only of pages under https or on this machine."
          : permission === "denied"
            ? "The browser does not allow it: change that in its settings of this site."
            : "Of the job or the list that a tab shows, while another window is in front."}
      </small>
    </>
  );
}

/** Drawn when the menu is open: naming 400 time zones takes the browser a while. */
function Choices({ settings, choose }: Props) {
  const zones = useMemo(() => Intl.supportedValuesOf("timeZone"), []);
  const own = useMemo(() => new Intl.DateTimeFormat().resolvedOptions().timeZone, []);
  return (
    <>
      <label class="field">
        Colours
        <select
          value={settings.theme}
          onChange={(event) => choose({ ...settings, theme: event.currentTarget.value as Theme })}
        >
          <option value="auto">As the system</option>
          <option value="light">Light</option>
          <option value="dark">Dark</option>
        </select>
      </label>
      <label class="field">
        Time zone
        <select
          value={settings.zone ?? ""}
          onChange={(event) => choose({ ...settings, zone: event.currentTarget.value || undefined })}
        >
          <option value="">Mine ({own})</option>
          <option value="UTC">UTC</option>
          {zones
            .filter((zone) => zone !== "UTC")
            .map((zone) => (
              <option key={zone} value={zone}>
                {zone}
              </option>
            ))}
        </select>
      </label>
      <Notifications settings={settings} choose={choose} />
      <NotKept />
    </>
  );
}

export const NotKept = () =>
  isKept ? null : <small>The browser keeps nothing for this page: what is chosen lasts until it is closed.</small>;
