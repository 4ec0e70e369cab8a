import { useMemo } from "preact/hooks";

import type { Settings, Theme } from "../settings";
import { Popover } from "./popover";

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
    </>
  );
}
